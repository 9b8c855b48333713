"""Modules and files by name, and the names by which what they define is found again."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

_FILE_MODULE = "penstock_file_"


_check: ContextVar[Callable[[str], bool] | None] = ContextVar("check", default=None)


class UntrustedCodeError(Exception):
    """Code is named by a run that may have come from elsewhere; the message says how to run it nevertheless."""


class NoSuchPlaceError(LookupError):
    """There is no such module or file; unlike other LookupErrors never one of the module's own."""


def load_module(place: str) -> ModuleType:
    """Import a module by its dotted name, or a file by its path; what a file defines travels by value.

    Raises
    ------
    NoSuchPlaceError
        There is none. What goes wrong inside of it is raised as it is.
    UntrustedCodeError
        It is not imported within this block.
    """
    is_own(place)
    return _load_file(Path(place)) if place.endswith(".py") else _import_module(place)


@contextmanager
def checking_places(check: Callable[[str], bool]) -> Iterator[None]:
    """Within the block, a module or file is imported by its place only if `check` does not raise for it.

    Parameters
    ----------
    check
        Returns whether the code is the user's own, or that of a package; raises `UntrustedCodeError`.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def is_own(place: str) -> bool:
    """Whether code is the user's own, wherever it lies; raises `UntrustedCodeError` where it must not be imported."""
    check = _check.get()
    return check is None or check(place)


def place_of(named: Any) -> str:
    """Return where a class or function is found again, from any folder.

    Parameters
    ----------
    named
        A class or function, or its place as a user writes it.

    Returns
    -------
    str
        "module:Class", or "<absolute path>.py:Class" for what a file defines that `load_module` loaded.
    """
    if isinstance(named, str):
        place, _, name = named.rpartition(":")
        return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else named
    place = named.__module__
    if place.startswith(_FILE_MODULE):
        place = str(sys.modules[place].__file__)
    return f"{place}:{named.__qualname__}"


def why_not_built() -> str:
    """Return what is wrong where this package lies without its native core, and what to do."""
    own = Path(__file__).parent
    places = {Path(entry or os.curdir).resolve() / own.name for entry in sys.path} - {own.resolve()}
    installed = next((place for place in sorted(places) if any(place.glob("_native*.so"))), None)
    problem = f"penstock is imported from {own}, a source tree whose native core is not built"
    if installed is not None:
        return f"{problem}; it hides the installed package in {installed}: work in another folder than {own.parent}"
    return f"{problem}: pip install -e {own.parent}"


def _import_module(name: str) -> ModuleType:
    # A console script starts without the working directory on its path, unlike `python -m`.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise NoSuchPlaceError(
            f"there is no module {error.name!r} in {os.getcwd()} or on the Python path: write 'module:Class', "
            "'file.py:Class', or install the package"
        ) from None


def _load_file(path: Path) -> ModuleType:
    import cloudpickle  # here, because settings are read long before any file is loaded

    if not path.is_file():
        raise NoSuchPlaceError(f"there is no file {str(path)!r} in {os.getcwd()}: write 'file.py:Class'")
    path = path.resolve()
    # Files of one name in two folders are two modules.
    name = f"{_FILE_MODULE}{path.stem}_{zlib.crc32(os.fsencode(path)):08x}"
    location = importlib.util.spec_from_file_location(name, path)
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    # The file may import its neighbours, as a script can.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    location.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
