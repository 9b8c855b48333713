"""Finding what a setting names: a class or function in a module or file."""

from __future__ import annotations

import functools
from typing import Any

from penstock.config.checking import ConfigError, closest
from penstock.imports import NoSuchPlaceError, load_module


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
    except NoSuchPlaceError as error:
        raise ConfigError(f"{what}={name!r}: {error}") from None
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        near = closest(attribute, list(vars(module)))
        raise ConfigError(f"{what}={name!r}: {place} has no {attribute!r}{near}") from None
