"""Training and evaluation mode: a network is in training mode within updates only."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


def training_mode(network: nn.Module, seed: int, *, freezes_statistics: bool = False) -> AbstractContextManager[None]:
    """Return the context of updates, in which a network is in training mode; it may be entered any number of times.

    Random draws of its modules use a separate stream: equal in every run with one seed, and independent of the
    process's generators.

    Parameters
    ----------
    network
        Network that learns.
    seed
        Seed of the stream on the CPU. On a GPU, the process's stream is used.
    freezes_statistics
        Whether layers with running statistics keep them and normalise by them, as in evaluation mode.
    """
    modules = [module for module in modules_with_modes(network) if not (freezes_statistics and has_statistics(module))]
    return _TrainingMode(modules, seed) if modules else nullcontext()


class _TrainingMode(AbstractContextManager[None]):
    def __init__(self, modules: list[nn.Module], seed: int) -> None:
        self._modules = modules
        self._stream = torch.Generator().manual_seed(seed).get_state()
        self._stream_around = self._stream

    def __enter__(self) -> None:
        _set(self._modules, True)
        self._stream_around = torch.get_rng_state()
        torch.set_rng_state(self._stream)

    def __exit__(self, *_: object) -> None:
        self._stream = torch.get_rng_state()
        torch.set_rng_state(self._stream_around)
        _set(self._modules, False)


def evaluating(network: nn.Module) -> AbstractContextManager[bool]:
    """Return a context within updates in which a network is in evaluation mode, for targets that it computes itself.

    The context yields whether the mode makes a difference to the network, and may be entered any number of times.
    """
    return _Evaluating(network) if modules_with_modes(network) else nullcontext(False)


class _Evaluating(AbstractContextManager[bool]):
    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._training: list[nn.Module] = []

    def __enter__(self) -> bool:
        self._training = [module for module in modules_with_modes(self._network) if module.training]
        _set(self._training, False)
        return bool(self._training)

    def __exit__(self, *_: object) -> None:
        _set(self._training, True)


@contextmanager
def following(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Within the block, layers with running statistics update them."""
    changed = [layer for layer in layers if not layer.training]
    _set(changed, True)
    try:
        yield
    finally:
        _set(changed, False)


def modules_with_modes(network: nn.Module) -> list[nn.Module]:
    """Return the modules of a network that behave differently in training mode; cached."""
    found: list[nn.Module] | None = vars(network).get("_modules_with_modes")
    if found is None:
        found = [module for module in network.modules() if _looks_at_mode(type(module))]  # type: ignore[arg-type]
        vars(network)["_modules_with_modes"] = found
    return found


def has_statistics(module: nn.Module) -> bool:
    """Return whether a module normalises by a batch's statistics and keeps running ones, as torch's BatchNorm does."""
    return isinstance(vars(module)["_buffers"].get("running_mean"), Tensor)


def foreign_buffers(network: nn.Module) -> list[tuple[nn.Module, str]]:
    """Return the buffers that follow the weights: of modules not Penstock's, and of those with ``moves_with_weights``.

    Each is given as a module and the buffer's name in it, because a module may replace the tensor.
    """
    return [
        (module, name)
        for module in network.modules()
        if not type(module).__module__.startswith("penstock.") or hasattr(module, "moves_with_weights")
        for name, _ in module.named_buffers(recurse=False)
    ]  # fmt: skip


def buffer_in(place: tuple[nn.Module, str]) -> Tensor:
    """Return the current buffer at a place from `foreign_buffers`."""
    module, name = place
    buffer: Tensor = vars(module)["_buffers"][name]
    return buffer


def put_buffer(place: tuple[nn.Module, str], buffer: Tensor) -> None:
    """Replace the buffer at a place from `foreign_buffers`."""
    module, name = place
    vars(module)["_buffers"][name] = buffer


def _set(modules: Iterable[nn.Module], training: bool) -> None:
    for module in modules:
        module.training = training


@functools.cache
def _looks_at_mode(kind: type[nn.Module]) -> bool:
    """Return whether a module class reads its attribute ``training``, or defines modes of its own."""
    for base in kind.__mro__:
        if base is nn.Module:
            return False
        if "train" in vars(base) or any(_names_training(_code_of(value)) for value in vars(base).values()):
            return True
    return True


def _code_of(value: Any) -> types.CodeType | None:
    if isinstance(value, property):
        value = value.fget
    return getattr(getattr(value, "__wrapped__", getattr(value, "__func__", value)), "__code__", None)


def _names_training(code: types.CodeType | None) -> bool:
    return code is not None and (
        "training" in code.co_names
        or any(_names_training(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))
    )
