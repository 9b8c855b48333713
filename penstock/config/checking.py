"""What values are legal for a field, and what is said of those that are not."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Callable
from typing import Any, Literal


class ConfigError(ValueError):
    """A setting is unknown, of the wrong type, or outside what is legal. The message names the field."""


def require(condition: bool, name: str, value: object, legal: str) -> None:
    """Raise `ConfigError` naming the field, what was found and what is legal, unless `condition` holds."""
    if not condition:
        raise ConfigError(f"{name}={value!r} is not legal: {name} must be {legal}")


def closest(name: str, candidates: list[str]) -> str:
    """'; did you mean "x"?' where something is close, else nothing."""
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.55)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return `value` as `hint` wants it (an int where a float is wanted becomes one), or raise `ConfigError`."""
    for option in typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,):
        origin = typing.get_origin(option) or option
        if origin is Literal and any(value == v and type(value) is type(v) for v in typing.get_args(option)):
            return value
        if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if origin is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if origin is tuple and isinstance(value, tuple | list):
            return tuple(checked(name, item, typing.get_args(option)[0]) for item in value)
        if origin is Callable or origin is typing.get_origin(Callable[..., Any]):
            if callable(value):
                return value
        elif origin in (str, bool, dict, types.NoneType) and isinstance(value, origin):
            return value
    legal = _legal(hint)
    near = closest(value, [v for v in typing.get_args(hint) if isinstance(v, str)]) if isinstance(value, str) else ""
    raise ConfigError(f"{name}={value!r} is not legal{near}: {name} must be {legal}, found {type(value).__name__}")


def _legal(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(v) for v in typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_legal(option) for option in typing.get_args(hint))
    if hint is types.NoneType:
        return "None"
    return getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint).replace("typing.", "")
