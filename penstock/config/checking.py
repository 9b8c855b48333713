"""Checks of field values, messages about illegal ones, and objects and files found by name."""

from __future__ import annotations

import difflib
import functools
import numbers
import os
import tomllib
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from penstock.config.foreign_names import value_hint
from penstock.imports import NoSuchPlaceError, is_own, load_module, why_lost
from penstock.redaction import masked

T = TypeVar("T")

_KEPT = (str, bool, dict, types.NoneType)
_CHECKED = (*_KEPT, Any, Literal, int, float, Callable, os.PathLike, ...)

TUNABLE = "may change during a run"
Tunable = Annotated[T, TUNABLE]
"""Type of a number that may change during a run: the learner reads it before every batch."""


class ConfigError(ValueError):
    """Setting that is unknown, ill-typed or out of range. The message names the field."""


def require(condition: bool, name: str, value: object, legal: str) -> None:
    """Raise `ConfigError` with the field, the value found and the legal ones, unless `condition` holds."""
    if not condition:
        shown = repr(masked(value, name))
        raise ConfigError(f"{name}={shown} is not legal{value_hint(name, value)}: {name} must be {legal}")


def closest(name: str, candidates: list[str]) -> str:
    """Return '; did you mean "x"?' for the closest candidate, ignoring case and outer spaces; "" if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.strip().lower(), list(by_lower), n=1, cutoff=0.55)
    return f"; did you mean {by_lower[matches[0]]!r}?" if matches else ""


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return `value` converted to the type `hint`, or raise `ConfigError`.

    Conversions: int to float, whole float (1e5) to int, list to tuple, path to text, NumPy number to Python number.
    """
    whole = _whole(value)
    for option in alternatives(hint):
        origin = typing.get_origin(option) or option
        if origin is Literal and any(whole == v and type(whole) is type(v) for v in typing.get_args(option)):
            return whole
        if origin is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
            return float(value)
        if origin is int and isinstance(whole, int) and not isinstance(whole, bool):
            return whole
        if origin is tuple and isinstance(value, tuple | list):
            kinds = typing.get_args(option) or (Any, ...)
            kinds = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
            if len(kinds) == len(value):
                return tuple(checked(name, item, kind) for item, kind in zip(value, kinds, strict=True))
        if origin is os.PathLike and isinstance(value, os.PathLike):
            return os.fsdecode(value)
        if origin is Any or (callable(value) if origin is Callable else origin in _KEPT and isinstance(value, origin)):
            return value
    words = [word for option in alternatives(hint) for word in typing.get_args(option) if isinstance(word, str)]
    near = value_hint(name, value) or (closest(value, words) if isinstance(value, str) else "")
    shown = repr(masked(value, name))
    raise ConfigError(f"{name}={shown} is not legal{near}: {name} must be {_legal(hint)}, found {_type_of(value)}")


def require_fields(owner: type, hints: dict[str, Any]) -> None:
    """Raise `ConfigError` if an annotation in a config is not a field, or a field has a type without a check."""
    names = [name for name in vars(owner).get("__annotations__", ()) if "ClassVar" not in str(hints[name])]
    if names and "__dataclass_fields__" not in vars(owner):
        fields = f"{owner.__name__} is not decorated, so that its {', '.join(names)} would be ignored"
        raise ConfigError(f"{fields}: write @dataclass(frozen=True, kw_only=True) above it, or annotate ClassVar")
    for name in names:
        require_type(f"{owner.__name__}.{name}", hints[name])


def require_type(name: str, hint: Any) -> None:
    """Raise `ConfigError` unless values of a type can be checked."""
    if (origin := typing.get_origin(hint) or hint) in (typing.Union, types.UnionType, tuple):
        for part in typing.get_args(hint):
            require_type(name, part)
    elif origin not in _CHECKED:
        legal = "bool, int, float, str, None, Any, Literal (for Enum), tuple (for list), dict, Callable, os.PathLike"
        raise ConfigError(f"{name} has the type {_legal(hint)}; legal types are {legal} and unions of them")


def _whole(value: Any) -> Any:
    """Return a whole number of any type as an int; any other value unchanged."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return int(number) if (number := float(value)).is_integer() else value


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union; for any other type hint, the hint itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _type_of(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def _legal(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(v) for v in typing.get_args(hint))
    if len(options := alternatives(hint)) > 1:
        return " or ".join(map(_legal, options))
    words = {types.NoneType: "None", os.PathLike: "Path", Callable: "a callable"}
    if (origin := typing.get_origin(hint) or hint) in words:
        return words[origin]
    return getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint).replace("typing.", "")


def find_object(name: str, what: str) -> Any:
    """Import the object named by "module:Class" or "file.py:Class".

    Raises
    ------
    ConfigError
        The module, file or attribute does not exist; the message begins with `what`.
    """
    place, _, attribute = name.rpartition(":")
    lost = why_lost(what, name, f"{what}=... again in Python (load_policy, Trainer.resume)")
    if "<" in name:  # a lambda, local definition or object, which cannot be imported
        raise ConfigError(lost)
    try:
        module = load_module(place)
    except NoSuchPlaceError as error:
        raise ConfigError(f"{what}={name!r}: {error}") from None
    try:
        found = functools.reduce(getattr, attribute.split("."), module)
        if not is_own(place):
            is_own(getattr(found, "__module__", None) or place)  # what a package imports may be Python's own
        return found
    except AttributeError:
        near = closest(attribute, list(vars(module)))
        raise ConfigError(lost or f"{what}={name!r}: {place} has no {attribute!r}{near}") from None


def read_toml(path: str | os.PathLike[str], name: str) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    ConfigError
        The file cannot be read, or is not TOML; the message begins with `name`.
    """
    try:
        return tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{name} is not TOML: {error}") from None
