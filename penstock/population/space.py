"""Search space of a population: a TOML file with a table per setting.

::

    [learning_rate]
    low = 1e-5             # no member leaves these bounds
    high = 1e-2
    log = true             # each order of magnitude is as likely as the next
    perturb = [0.8, 1.2]   # factors, one of which is drawn
    resample = 0.25        # probability of a new value from the whole range instead
    initial = [1e-4, 1e-3] # initial values are spread over this range; default: the whole range

    [gamma]
    low = 0.9
    high = 0.999
    complement = true      # 1 - gamma is drawn and perturbed, not gamma
"""

from __future__ import annotations

import math
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.config import Config, ConfigError, checked, closest, require_tunable, tuned
from penstock.config.ranges import Range, range_of, tables_in

PERTURB = (0.8, 1.2)
RESAMPLE = 0.25
_KEYS = ("low", "high", "log", "perturb", "resample", "initial", "complement")


@dataclass(frozen=True)
class Dimension:
    """Setting that varies between members of a population.

    Attributes
    ----------
    range
        Bounds and scale of the values.
    perturb
        Factors, one of which is drawn.
    resample
        Probability that a new value is drawn from the whole range instead.
    initial
        Bounds of initial values.
    complement
        Whether 1 - x is drawn and multiplied, as suits discounts and decays.
    """

    range: Range
    perturb: tuple[float, ...]
    resample: float
    initial: tuple[float, float]
    complement: bool

    @property
    def name(self) -> str:
        """Name of the setting."""
        return self.range.name

    def drawn(self, random: np.random.Generator) -> float:
        """Draw a value from the whole range."""
        return self._at(random.random(), self.range.low, self.range.high)

    def initial_at(self, share: float) -> float:
        """Return the initial value at a share of the way between its bounds."""
        return self._at(share, *self.initial)

    def _at(self, share: float, low: float, high: float) -> float:
        if self.complement:
            low, high = 1.0 - high, 1.0 - low
        if self.range.log:
            low, high = math.log(low), math.log(high)
        value = low + share * (high - low)
        value = math.exp(value) if self.range.log else value
        return self.clipped(1.0 - value if self.complement else value)

    def multiplied(self, value: float, factor: float) -> float:
        """Multiply a value, or its complement, by a factor, within the bounds."""
        return self.clipped(1.0 - (1.0 - value) * factor if self.complement else value * factor)

    def clipped(self, value: float) -> float:
        """Clip a value to the bounds."""
        return float(min(max(value, self.range.low), self.range.high))


@dataclass(frozen=True)
class PopulationSpace:
    """Settings that vary between members, in the order of the file."""

    dimensions: tuple[Dimension, ...]

    @property
    def names(self) -> list[str]:
        """Names of the settings."""
        return [dimension.name for dimension in self.dimensions]

    def starts(self, given: Sequence[Mapping[str, Any]], random: np.random.Generator) -> list[dict[str, float]]:
        """Return the initial settings of the members: given values, and drawn values for the rest.

        Drawn values form a Latin hypercube: each of N members draws every setting from another Nth of its initial
        range, in an independent order for each setting.

        Raises
        ------
        ConfigError
            A given value is outside the bounds.
        """
        count = len(given)
        members: list[dict[str, float]] = [self.within(own) for own in given]
        for dimension in self.dimensions:
            shares = (random.permutation(count) + random.random(count)) / count
            for member, share in zip(members, shares.tolist(), strict=True):
                member.setdefault(dimension.name, dimension.initial_at(share))
        return members

    def within(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Return the given values of these settings; raise `ConfigError` if one is outside the bounds."""
        for dimension in self.dimensions:
            value, low, high = given.get(dimension.name), dimension.range.low, dimension.range.high
            if value is not None and not low <= value <= high:
                raise ConfigError(
                    f"{dimension.name}={value:g} is outside the bounds that pbt_space gives it, from {low:g} to "
                    f"{high:g}: start within them, or widen them"
                )
        return {name: float(given[name]) for name in self.names if name in given}


def tables_of(space: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a space, read from a file if one is given; raises `ConfigError`."""
    return dict(space) if isinstance(space, Mapping) else tables_in(space)


def population_space(tables: Mapping[str, Any], config: Config) -> PopulationSpace:
    """Make a space from tables by setting, and check it against a config.

    Raises
    ------
    ConfigError
        A setting is unknown or not tunable (the closest is named), a key is unknown, or bounds, factors or the initial
        spread are not legal.
    """
    if not tables:
        raise ConfigError("pbt_space is empty: write a table for each setting that may change")
    try:
        return PopulationSpace(tuple(_dimension(name, table, config) for name, table in tables.items()))
    except ConfigError as error:
        raise ConfigError(f"pbt_space: {error}") from None


def _dimension(name: str, table: Any, config: Config) -> Dimension:
    require_tunable(config, name)
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name} is no table: write [{name}] with low and high")
    for key in table:
        if key not in _KEYS:
            near = closest(key, list(_KEYS))
            raise ConfigError(f"[{name}] has an unknown key {key!r}{near} (legal: {', '.join(_KEYS)})")
    if not {"low", "high"} <= table.keys():
        raise ConfigError(f"[{name}] has {', '.join(table) or 'no keys'}: it needs low and high")
    complement = checked("complement", table.get("complement", False), bool)
    hint = typing.get_type_hints(type(config))[name]
    log = checked("log", table.get("log", False), bool)
    ends = {"low": float(table["low"]), "high": float(table["high"])}
    found = range_of(name, {**ends, "log": log and not complement}, hint)
    found = Range(name, found.low, found.high, log)
    where = f"[{name}] low={found.low:g} high={found.high:g}"
    if complement and log and found.high >= 1.0:
        raise ConfigError(f"{where} is not legal: with complement and log, high must be less than 1")
    for value in (found.low, found.high):
        try:
            tuned(config, {name: value})
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    perturb = checked("perturb", table.get("perturb", PERTURB), tuple[float, ...])
    if not perturb or not all(0.0 < factor < math.inf for factor in perturb):
        raise ConfigError(f"[{name}] perturb={list(perturb)} is not legal: write factors of more than 0")
    resample = checked("resample", table.get("resample", RESAMPLE), float)
    if not 0.0 <= resample <= 1.0:
        raise ConfigError(f"[{name}] resample={resample} is not legal: it is a probability, from 0 to 1")
    initial = checked("initial", table.get("initial", (found.low, found.high)), tuple[float, ...])
    if len(initial) != 2 or not found.low <= initial[0] <= initial[1] <= found.high:
        raise ConfigError(f"[{name}] initial={list(initial)} is not legal: write two values within {where}")
    return Dimension(found, perturb, resample, (initial[0], initial[1]), complement)
