"""Search space: a TOML file with a table of bounds or values for each searched setting.

::

    [learning_rate]
    low = 1e-5
    high = 1e-2
    log = true

    [num_epochs]      # whole numbers, because the setting is one
    low = 1
    high = 8

    [hidden_sizes]    # one of these
    values = [[64, 64], [256, 256]]
"""

from __future__ import annotations

import itertools
import os
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from penstock.config import Config, ConfigError, checked, closest, setting_hint
from penstock.config.features import group_of
from penstock.config.ranges import Range, range_of, tables_in

_KEYS = ("low", "high", "log", "step", "values")
_TASK_GROUPS = "environment", "budget and run"
_TASK_SETTINGS = "env", "total_steps", "target_return", "seed", "run_dir"  # of other groups
_LEARNED_FROM = "reward_scale", "reward_clip"  # settings of the environment that change only learning
_COMBINATIONS = 1000  # of the other settings' ends that are tried with an end before it counts as illegal


@dataclass(frozen=True)
class Choice:
    """Unordered values of a setting."""

    name: str
    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values that must be legal: all of them."""
        return self.values

    def holds(self, value: Any) -> bool:
        """Return whether a value is one of these; True is not 1."""
        return any(value == one and type(value) is type(one) for one in self.values)

    def to_json(self) -> dict[str, Any]:
        """Return the table of the TOML file."""
        return {"values": [list(value) if isinstance(value, tuple) else value for value in self.values]}


@dataclass(frozen=True)
class Space:
    """Searched settings, in the order of the file."""

    dimensions: tuple[Range | Choice, ...]

    @property
    def names(self) -> list[str]:
        """Names of the settings."""
        return [dimension.name for dimension in self.dimensions]

    def holds(self, config: Config) -> bool:
        """Return whether the settings of a config are within the space."""
        return all(dimension.holds(getattr(config, dimension.name)) for dimension in self.dimensions)

    def to_json(self) -> dict[str, Any]:
        """Return the tables of the TOML file."""
        return {dimension.name: dimension.to_json() for dimension in self.dimensions}


def read_space(path: str | os.PathLike[str], config: Config, given: Collection[str] = ()) -> Space:
    """Read the file of a space, and check it against the config class of an algorithm.

    Parameters
    ----------
    path
        A TOML file.
    config
        Settings that all trials share, except those of the space.
    given
        Names of the settings that flags give; these cannot be searched.

    Raises
    ------
    ConfigError
        The file is missing, not TOML or empty; a setting is unknown (the closest is shown), given by a flag, or
        cannot be searched; its bounds are not legal for the algorithm.
    """
    tables = tables_in(path)
    if not tables:
        raise ConfigError(f"the space {os.fspath(path)!r} is empty: write a table for each setting to search, {_LEGAL}")
    try:
        return space_of(tables, config, given)
    except ConfigError as error:
        raise ConfigError(f"the space {os.fspath(path)!r}: {error}") from None


def space_of(tables: Mapping[str, Any], config: Config, given: Collection[str] = ()) -> Space:
    """Make a space from tables by setting; parameters and errors as in `read_space`."""
    hints = typing.get_type_hints(type(config))
    known = [field.name for field in fields(config)]
    for name in tables:
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}{setting_hint(name, known) or closest(name, known)}")
        if name in given:
            raise ConfigError(
                f"{name} is searched, but also given by a flag: leave out --{name.replace('_', '-')} or [{name}]"
            )
        if (group_of(name) in _TASK_GROUPS or name in _TASK_SETTINGS) and name not in _LEARNED_FROM:
            why = "--seeds averages over seeds" if name == "seed" else "trials compare only with one task and budget"
            raise ConfigError(f"{name} cannot be searched: {why}")
    space = Space(tuple(_dimension(name, table, hints[name]) for name, table in tables.items()))
    _require_legal(space, config)
    return space


def refusal_of(config: Config, settings: Mapping[str, Any]) -> str:
    """Return the reason why settings are not legal together in a config; "" if they are."""
    try:
        replace(config, **settings).with_schedules()
    except ConfigError as error:
        return str(error)
    return ""


def shown(value: object) -> str:
    """Return a value of a setting as text, floats with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_LEGAL = "with low and high (and log or step), or with values"


def _dimension(name: str, table: Any, hint: Any) -> Range | Choice:
    if not isinstance(table, dict):
        raise ConfigError(f"{name} is not a table: write [{name}] {_LEGAL}")
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"[{name}] has an unknown key {key!r}{closest(key, list(_KEYS))} (legal: {_LEGAL})")
    is_choice, is_range = "values" in table, "low" in table and "high" in table
    if is_choice == is_range or (is_choice and len(table) > 1):
        raise ConfigError(f"[{name}] has {', '.join(table) or 'no keys'}: write it {_LEGAL}")
    return _choice(name, table["values"], hint) if is_choice else range_of(name, table, hint)


def _choice(name: str, values: Any, hint: Any) -> Choice:
    if not isinstance(values, list):
        raise ConfigError(f"[{name}] values={values!r} is not legal: values must be a list")
    if any(isinstance(value, dict) for value in values):
        raise ConfigError(f"[{name}] values={values!r} is not legal: a value cannot be a table")
    choice = Choice(name, tuple(checked(name, value, hint) for value in values))
    if len({repr(value) for value in choice.values}) < max(2, len(values)):
        raise ConfigError(f"[{name}] values={values!r} is not legal: write two or more, each once")
    return choice


def _require_legal(space: Space, config: Config) -> None:
    """Raise `ConfigError` for an end that the algorithm rejects in every combination with the other settings' ends."""
    for dimension in space.dimensions:
        others = [[(other.name, end) for end in other.ends] for other in space.dimensions if other is not dimension]
        for end in dimension.ends:
            this = {dimension.name: end}
            if not (refusal := refusal_of(config, this)):
                continue
            combinations = itertools.islice(itertools.product(*others), _COMBINATIONS)
            if all(refusal_of(config, {**this, **dict(combination)}) for combination in combinations):
                raise ConfigError(f"[{dimension.name}]: {refusal}")
