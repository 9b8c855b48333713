"""Objects found by name: "module:Class" and "file.py:Class", for environments, encoders and algorithms."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from penstock.config import ConfigError, closest


def find_object(name: str, what: str) -> Any:
    """Import what "module:Class" or "file.py:Class" names.

    Raises
    ------
    ConfigError
        There is no such module, file or attribute; the message begins with `what`.
    """
    place, _, attribute = name.rpartition(":")
    try:
        module = load_module(place)
    except LookupError as error:
        raise ConfigError(f"{what}={name!r}: {error.args[0]}") from None
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        near = closest(attribute, list(vars(module)))
        raise ConfigError(f"{what}={name!r}: {place} has no {attribute!r}{near}") from None


def load_module(place: str) -> ModuleType:
    """Import a module by its dotted name, or a file by its path; what a file defines travels by value.

    Raises
    ------
    LookupError
        There is none. What goes wrong inside of it is raised as it is.
    """
    return _load_file(Path(place)) if place.endswith(".py") else _import_module(place)


def _import_module(name: str) -> ModuleType:
    # A console script starts without the working directory on its path, unlike `python -m`.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise LookupError(
            f"there is no module {error.name!r} in {os.getcwd()} or on the Python path: write 'module:Class', "
            "'file.py:Class', or install the package"
        ) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise LookupError(f"there is no file {str(path)!r} in {os.getcwd()}: write 'file.py:Class'")
    name = f"penstock_file_{path.stem}"
    location = importlib.util.spec_from_file_location(name, path)
    assert location is not None and location.loader is not None
    module = importlib.util.module_from_spec(location)
    # The file may import its neighbours, as a script can.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[name] = module
    location.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    return module
