"""Process state that environments' code may change, and its restoration.

A constructor or an imported module may change state of the whole process: working directory, environment variables,
random generators, warning filters, NumPy's error handling, locale, signal handlers, torch's defaults. Threads left
behind cannot be undone.
"""

from __future__ import annotations

import locale
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

_ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT})
"""Signals that ask a process to end; their handlers always remain the program's."""


class _Part(NamedTuple):
    """Part of a process's state."""

    look: Callable[[], Any]
    put_back: Callable[[Any], None]


class ProcessState:
    """Two states of a process: one for environments, one for the program.

    Attributes
    ----------
    is_shared
        Whether environments run in this process; otherwise both blocks do nothing.
    """

    def __init__(self, *, is_shared: bool = True) -> None:
        self.is_shared = is_shared
        self._is_inside = False
        self._other: list[Any] | None = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within the block, use the environments' state; initially the program's, with torch's own defaults."""
        with self._at(inside=True):
            yield

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Within the block, nested in one of `inside`, use the program's state."""
        with self._at(inside=False):
            yield

    @contextmanager
    def _at(self, *, inside: bool) -> Iterator[None]:
        if not self.is_shared or self._is_inside == inside:
            yield
            return
        self._change_over()
        try:
            yield
        finally:
            self._change_over()

    def _change_over(self) -> None:
        found = _found(_PARTS)
        if self._other is None:
            _set_torch(_plain_torch())
        else:
            _put_back(_PARTS, self._other)
        self._other, self._is_inside = found, not self._is_inside


@contextmanager
def kept_settings() -> Iterator[None]:
    """After the block, restore the state on which Penstock's own code depends in every process.

    This covers torch's defaults, NumPy's error handling, warning filters, locale, and handlers of termination signals.
    Working directory, environment variables and random generators belong to the environments in their own process.
    """
    found = _found(_SETTINGS)
    try:
        yield
    finally:
        _put_back(_SETTINGS, found)


@contextmanager
def plain_torch() -> Iterator[None]:
    """Within the block, torch creates float32 tensors on the CPU and records gradients, whatever its defaults."""
    found, plain = _torch(), _plain_torch()
    if found != plain:
        _set_torch(plain)
    try:
        yield
    finally:
        _set_torch(found)


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, NumPy and torch, where loaded; seed in [0, 2^32)."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed)
    if torch := sys.modules.get("torch"):
        # torch.manual_seed also seeds other devices, and reads source files for it: without CUDA, seed only the CPU.
        (torch if torch.backends.cuda.is_built() else torch.default_generator).manual_seed(seed)


def left_threads(before: Sequence[threading.Thread], patience: float) -> list[str]:
    """Return the names of threads, other than those of `before`, that still run after some seconds."""
    later = [thread for thread in threading.enumerate() if thread not in before]
    for thread in later:
        thread.join(patience / len(later))
    return [thread.name for thread in later if thread.is_alive()]


def _found(parts: Sequence[_Part]) -> list[Any]:
    return [part.look() for part in parts]


def _put_back(parts: Sequence[_Part], found: Sequence[Any]) -> None:
    for part, value in zip(parts, found, strict=True):
        part.put_back(value)


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # deleted
        return None


def _set_directory(directory: str | None) -> None:
    if directory is not None and directory != _directory():
        with suppress(OSError):  # deleted meanwhile
            os.chdir(directory)


def _set_variables(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _generators() -> tuple[Any, Any, Any]:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    return (
        random.getstate(),
        numpy and numpy.random.get_state(),
        torch and (torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []),
    )


def _set_generators(states: tuple[Any, Any, Any]) -> None:
    of_python, of_numpy, of_torch = states
    random.setstate(of_python)
    if of_numpy:
        sys.modules["numpy"].random.set_state(of_numpy)
    if of_torch:
        torch, (on_cpu, on_gpus) = sys.modules["torch"], of_torch
        torch.set_rng_state(on_cpu)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)


def _filters() -> list[Any]:
    return [*warnings.filters]


def _set_filters(filters: list[Any]) -> None:
    if warnings.filters != filters:
        warnings.resetwarnings()  # also forgets which warnings the earlier filters have shown
        warnings.filters.extend(filters)  # type: ignore[attr-defined]


def _numpy_errors() -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if numpy else {}


def _set_numpy_errors(errors: dict[str, Any]) -> None:
    if errors:
        sys.modules["numpy"].seterr(**errors)


def _locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def _set_locale(name: str) -> None:
    if name != _locale():
        locale.setlocale(locale.LC_ALL, name)


def _handlers(signals: frozenset[signal.Signals]) -> dict[signal.Signals, Any]:
    if threading.current_thread() is not threading.main_thread():
        return {}  # only the main thread can install handlers
    return {signum: signal.getsignal(signum) for signum in signals}


def _set_handlers(handlers: dict[signal.Signals, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    for signum, handler in handlers.items():
        # None: a handler installed outside Python, which Python cannot restore.
        if handler is not None and signal.getsignal(signum) is not handler:
            signal.signal(signum, handler)


class _Torch(NamedTuple):
    """Torch's defaults."""

    dtype: Any
    device: Any
    records_gradients: bool


def _torch() -> _Torch | None:
    if torch := sys.modules.get("torch"):
        try:
            device = torch.get_default_device()
        except AttributeError:  # in torch 2.8, after a default was reset
            device = torch.device("cpu")
        return _Torch(torch.get_default_dtype(), device, torch.is_grad_enabled())
    return None


def _plain_torch() -> _Torch | None:
    if torch := sys.modules.get("torch"):
        return _Torch(torch.float32, torch.device("cpu"), records_gradients=True)
    return None


def _set_torch(defaults: _Torch | None) -> None:
    if defaults is None or defaults == _torch():
        return
    torch = sys.modules["torch"]
    torch.set_default_dtype(defaults.dtype)
    torch.set_default_device(None if defaults.device == torch.device("cpu") else defaults.device)
    torch.set_grad_enabled(defaults.records_gradients)


_SETTINGS = (
    _Part(_torch, _set_torch), _Part(_numpy_errors, _set_numpy_errors), _Part(_filters, _set_filters),
    _Part(_locale, _set_locale), _Part(lambda: _handlers(_ENDING), _set_handlers),
)  # fmt: skip
_PARTS = (
    *_SETTINGS[:-1],  # without handlers of termination signals, which the program may change meanwhile
    _Part(lambda: _handlers(frozenset(signal.Signals) - _ENDING), _set_handlers),
    _Part(_directory, _set_directory),
    _Part(lambda: dict(os.environ), _set_variables),
    _Part(_generators, _set_generators),
)
