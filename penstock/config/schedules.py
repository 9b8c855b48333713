"""Settings that may change over a run: a number, or a function of progress.

Progress is the fraction of ``total_steps`` learned so far: 0 at the start, 1 at the end of the budget, more beyond it.
A resumed run continues at its steps as a fraction of the new ``total_steps``.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from penstock.config.checking import ConfigError, find_object
from penstock.config.foreign_names import value_hint

Schedule = Callable[[float], float]
"""Value of a setting as a function of progress, from 0.0 to 1.0."""

Scheduled = float | str | Schedule
"""A number, a function of progress, or its import path: "module:function" or "file.py:function"."""


def value_at(name: str, setting: Scheduled, progress: float) -> float:
    """Return the value of a setting at a given progress of the run.

    Raises
    ------
    ConfigError
        The function returned something other than a finite number, 0 or more.
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


def tried_schedule(name: str, setting: str | Schedule) -> Schedule:
    """Return the function of progress of a setting, after a trial at the start, the middle and the end of a run.

    Raises
    ------
    ConfigError
        The function does not exist, fails, or returns something other than a finite number, 0 or more.
    """
    schedule = _function(name, setting)
    for progress in (0.0, 0.5, 1.0):
        try:
            value_at(name, schedule, progress)
        except ConfigError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ConfigError(f"{name} is a function of progress that fails at {progress:g}: {problem}") from error
    return schedule


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
        is_lost = setting.startswith("__main__:") or "<" in setting  # of a script, a lambda, or a local function
        again = f"; a function that cannot be imported must be given again: {name}=..." if is_lost else ""
        raise ConfigError(f"{error}{again}") from error
    if not callable(function):
        raise ConfigError(f"{name}={setting!r} is a {type(function).__name__}, not a function of progress")
    found: Schedule = function
    return found


def is_json(schedule: object) -> bool:
    """Return whether a schedule is a JSON object, as on a command line, not a path."""
    return isinstance(schedule, str) and schedule.lstrip().startswith("{")
