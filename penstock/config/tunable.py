"""Tunable settings: those that may change during a run.

A field declares it once by its type, ``gae_lambda: Tunable[float]``; subclasses inherit it with other defaults. A
setting that is fixed within a run (`Config.fixed`) is not tunable.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

from penstock.config.base import Config
from penstock.config.checking import TUNABLE, ConfigError, checked, closest

C = TypeVar("C", bound=Config)


def tunable_settings(config_class: type[Config]) -> tuple[str, ...]:
    """Return the names of the tunable settings, in the order of the fields."""
    found: set[str] = set()
    for owner in config_class.__mro__:
        if dataclasses.is_dataclass(owner):
            hints = inspect.get_annotations(owner, eval_str=True)
            found |= {name for name, hint in hints.items() if TUNABLE in getattr(hint, "__metadata__", ())}
    fixed = config_class.fixed_settings()
    return tuple(field.name for field in dataclasses.fields(config_class) if field.name in found - fixed.keys())


def tunable_values(config: Config) -> dict[str, float]:
    """Return a config's tunable numbers by name, except None and functions of progress."""
    values = {name: getattr(config, name) for name in tunable_settings(type(config))}
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def require_tunable(config: Config, name: str) -> None:
    """Raise `ConfigError` unless a setting of this config is tunable; the message gives the reason."""
    legal = list(tunable_settings(type(config)))
    if name in legal:
        value = getattr(config, name)
        if isinstance(value, int | float):
            return
        why = "a function of progress" if value is not None else "which switches it off"
        raise ConfigError(f"{name} cannot be tuned in a run with {name}={value!r}, {why}: start the run with a number")
    known = [field.name for field in dataclasses.fields(config)]
    may = f"(tunable: {', '.join(legal)})"
    if name not in known:
        raise ConfigError(f"unknown setting {name!r}{closest(name, legal) or closest(name, known)} {may}")
    reason = type(config).fixed_settings().get(name)
    owner = next(each for each in type(config).__mro__ if name in vars(each).get("__annotations__", ()))
    own = f"it is not declared Tunable; write `{name}: Tunable[float]` in {owner.__name__}"
    because = f": {reason or (own if owner.__module__.partition('.')[0] != 'penstock' else 'roles and memory need it')}"
    raise ConfigError(f"{name} cannot change during a run{because}{closest(name, legal)} {may}")


def tuned(config: C, values: Mapping[str, Any]) -> C:
    """Return a config with new values of tunable settings.

    Raises
    ------
    ConfigError
        A setting is not tunable (the message names the closest that is), or a value is not legal.
    """
    for name in values:
        require_tunable(config, name)
    return dataclasses.replace(config, **{name: checked(name, value, float) for name, value in values.items()})

