"""Settings that may change over a run: a number, or a function of progress.

Progress is the share of ``total_steps`` that is learned from: 0 where the run begins, 1 where its budget is spent (and
1 beyond it). After a resume it goes on where the run stood, as a share of the new ``total_steps``.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.config.checking import ConfigError, find_object
from penstock.config.elsewhere import value_hint

Schedule = Callable[[float], float]
"""A setting at each progress, from 0.0 to 1.0."""

Scheduled = float | str | Schedule
"""A number, a function of progress, or where one is found: "module:function" or "file.py:function"."""

C = TypeVar("C")

_LOOKS = (0.0, 0.5, 1.0)  # at which a schedule is tried before anything starts


def with_schedules(config: C) -> C:
    """A config in which functions of progress are functions, found where they were named; each is tried.

    Raises
    ------
    ConfigError
        There is no such function, or what it returns is not a finite number of 0 or more.
    """
    found: dict[str, Schedule] = {}
    for name, hint in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        if Schedule in typing.get_args(hint) and (isinstance(value, str) or callable(value)):
            found[name] = _function(name, value)
            _try(name, found[name])
    return dataclasses.replace(config, **found) if found else config  # type: ignore[type-var]


def value_at(name: str, setting: Scheduled, progress: float) -> float:
    """The value of a setting at this progress of the run.

    Raises
    ------
    ConfigError
        A function returned what is not a finite number of 0 or more.
    """
    if isinstance(setting, int | float):
        return setting
    value: Any = _function(name, setting)(min(1.0, progress))
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    if not 0.0 <= number < math.inf:
        raise ConfigError(
            f"{name} is a function of progress that returns {value!r} at {min(1.0, progress):g}: it must return a "
            "finite number, 0 or more"
        )
    return number


def _try(name: str, schedule: Schedule) -> None:
    for progress in _LOOKS:
        try:
            value_at(name, schedule, progress)
        except ConfigError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} is a function of progress that fails at {progress:g}: {problem}") from error


def _function(name: str, setting: str | Schedule) -> Schedule:
    if not isinstance(setting, str):
        return setting
    if ":" not in setting:
        raise ConfigError(
            f"{name}={setting!r} is not legal{value_hint(name, setting)}: {name} must be a number, or a function of "
            'progress (from 0 to 1): "module:function", "file.py:function", in Python also the function itself'
        )
    try:
        function = find_object(setting, name)
    except ConfigError as error:
        is_lost = setting.startswith("__main__:") or "<" in setting  # a script's own, a lambda, a function in another
        again = f"; what is no function of a module or file has to be given again: {name}=..." if is_lost else ""
        raise ConfigError(f"{error}{again}") from error
    if not callable(function):
        raise ConfigError(f"{name}={setting!r} is a {type(function).__name__}, and no function of progress")
    found: Schedule = function
    return found


def is_json(schedule: object) -> bool:
    """Whether a schedule is given as the text of an object, as on a command line, and is no path."""
    return isinstance(schedule, str) and schedule.lstrip().startswith("{")
