"""Modules and files by name, and the import paths of their definitions."""

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
    """Code named by a run that may have been copied from elsewhere; the message says how to run it anyway."""


class NoSuchPlaceError(LookupError):
    """Missing module or file. Never raised for a LookupError within the module itself."""


def load_module(place: str) -> ModuleType:
    """Import a module by its dotted name, or a file by its path; definitions of a file are pickled by value.

    Raises
    ------
    NoSuchPlaceError
        There is no such module or file. Errors raised by its code pass through.
    UntrustedCodeError
        The enclosing `checking_places` block refuses the code.
    """
    is_own(place)
    return _load_file(Path(place)) if place.endswith(".py") else _import_module(place)


@contextmanager
def checking_places(check: Callable[[str], bool]) -> Iterator[None]:
    """Within the block, import a module or file only if `check` does not raise for its place.

    Parameters
    ----------
    check
        Returns True for the user's own code and False for a package's; raises `UntrustedCodeError` for any other.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def is_own(place: str) -> bool:
    """Return whether code is the user's own, not a package's; raise `UntrustedCodeError` for forbidden code."""
    check = _check.get()
    return check is None or check(place)


def place_of(named: Any) -> str:
    """Return the place of a class or function, from which it can be imported in any working directory.

    Parameters
    ----------
    named
        Class or function, or its place as a user writes it.

    Returns
    -------
    str
        "module:Class", or "<absolute path>.py:Class" for a definition in a file that `load_module` loaded.
    """
    if isinstance(named, str):
        place, _, name = named.rpartition(":")
        return f"{Path(place).resolve()}:{name}" if place.endswith(".py") else named
    place = named.__module__
    if place.startswith(_FILE_MODULE):
        place = str(sys.modules[place].__file__)
    return f"{place}:{named.__qualname__}"


def why_lost(what: str, place: Any, remedy: str = "") -> str:
    """Return why no other process can import the `place` given as the setting `what`, with a remedy; "" if it can."""
    script = f"{str(place)[9:]} was defined in a script: move it to a file, and give {remedy}"
    why = f"this {what} was not saved by name: give {remedy}" if "<" in str(place) else script
    return f"{what}={place!r}: {why}" if isinstance(place, str) and ("<" in place or place[:9] == "__main__:") else ""


def why_not_built() -> str:
    """Describe why this package has no native core, and the remedy."""
    own = Path(__file__).parent
    places = {Path(entry or os.curdir).resolve() / own.name for entry in sys.path} - {own.resolve()}
    installed = next((place for place in sorted(places) if any(place.glob("_native*.so"))), None)
    problem = f"penstock is imported from {own}, a source tree whose native core is not built"
    if installed is not None:
        return f"{problem}; it hides the installed package in {installed}: start Python outside {own.parent}"
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
    import cloudpickle  # here, because settings are read long before a file is loaded

    if not path.is_file():
        where = "" if path.is_absolute() else f" in {os.getcwd()}"
        raise NoSuchPlaceError(f"there is no file {str(path)!r}{where}: write 'file.py:Class' with the file's place")
    path = path.resolve()
    # Files with the same name in two folders are two modules.
    name = f"{_FILE_MODULE}{path.stem}_{zlib.crc32(os.fsencode(path)):08x}"
    location = importlib.util.spec_from_file_location(name, path)
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    # Like a script, the file may import modules beside it.
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    location.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
