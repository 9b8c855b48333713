"""Ranges of numeric settings, as tables of a TOML file: used by searches and populations."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.config.checking import ConfigError, alternatives, checked, read_toml


@dataclass(frozen=True)
class Range:
    """Range of a numeric setting.

    Attributes
    ----------
    name
        Name of the setting.
    low, high
        Bounds, inclusive: both int, or both float.
    log
        Whether sampling is uniform on a logarithmic scale.
    step
        Distance between legal values, counted from `low`; None: any value within the bounds.
    """

    name: str
    low: float
    high: float
    log: bool = False
    step: float | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the values are integers."""
        return isinstance(self.low, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Extreme values: if they are legal, all are."""
        return self.low, self.high

    def holds(self, value: Any) -> bool:
        """Return whether a value lies in the range, on its grid."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        return self.step is None or is_multiple(value - self.low, self.step)

    def to_json(self) -> dict[str, Any]:
        """Return the table of the TOML file."""
        return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}


def tables_in(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the tables of a space; raise `ConfigError` as `read_toml` does."""
    return read_toml(path, f"the space {os.fspath(path)!r}")


def range_of(name: str, table: Mapping[str, Any], hint: Any) -> Range:
    """Make a range of a setting of type `hint` from a table with low and high, and log or step.

    Raises
    ------
    ConfigError
        The setting is not numeric, or the bounds or the step are not legal.
    """
    number: type = _number_of(name, table, hint)
    low, high = checked(name, table["low"], number), checked(name, table["high"], number)
    log, step = checked("log", table.get("log", False), bool), table.get("step")
    where = f"[{name}] low={low!r} high={high!r}"
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"{where} is not legal: low must be less than high, and both finite")
    if log and low <= 0:
        raise ConfigError(f"{where} log=true is not legal: low must be more than 0 on a logarithmic scale")
    if step is not None:
        if log:
            raise ConfigError(f"{where} has log and step: equal steps do not fit a logarithmic scale; give only one")
        step = checked("step", step, number)
        if not 0 < step < high - low or not is_multiple(high - low, step):
            raise ConfigError(f"{where} step={step!r} is not legal: two or more steps from low must end at high")
    return Range(name, low, high, log, step)


def _number_of(name: str, table: Mapping[str, Any], hint: Any) -> type:
    """Return int or float, by the setting's type; for a setting that may be either, by the type of the bounds."""
    kinds = [option for option in alternatives(hint) if option in (int, float)]
    if not kinds:
        raise ConfigError(f"[{name}] has low and high, but {name} is not a number: list its values")
    are_whole = all(isinstance(table[end], int) for end in ("low", "high"))
    return kinds[0] if len(kinds) == 1 else int if are_whole else float


def is_multiple(distance: float, step: float) -> bool:
    """Return whether `distance` is a whole number of steps, up to rounding."""
    return math.isclose(distance / step, round(distance / step), abs_tol=1e-9)
