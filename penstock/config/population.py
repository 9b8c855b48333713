"""The settings of populations: who is replaced by whom, how often, what may change then, and how that is repeated."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from penstock.config.checking import ConfigError, require


@dataclass(frozen=True, kw_only=True)
class PopulationConfig:
    """Settings of population-based training (arXiv:1711.09846)."""

    pbt: Literal["truncation", "tournament", "sample-factory"] | None = None
    """Population-based training of the run's policies: now and then a bad one goes on as a copy of a better one, with
    settings a little different. "truncation" replaces the worst by one of the best, "tournament" whoever is worse than
    another drawn at random, "sample-factory" as "truncation", and changes settings of those between in place."""
    pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None
    """What may change: a TOML file with a table for each setting, as `penstock search` takes; in Python also the
    tables."""
    pbt_interval: int | None = None
    """Steps of each policy between two decisions about it; None: twenty in its share of total_steps."""
    pbt_start: int | None = None
    """Steps of each policy before the first decision about it; None: pbt_interval."""
    pbt_fraction: float | None = None
    """Share of the policies that counts as the worst, and as the best; None: 0.2, of "sample-factory" 0.3."""
    pbt_metric: str = "return"
    """What policies are ranked by: "return", the mean return of training episodes, or a name in info["metrics"]."""
    pbt_episodes: int = 10
    """Episodes that a policy needs since it was last replaced before it is ranked."""
    schedule: str | os.PathLike[str] | dict[Any, Any] | None = None
    """Tunable settings over the steps of the policy: lineage.jsonl of a population, or its directory, whose schedule is
    repeated; or {steps: {setting: value}}, on a command line as JSON. They win over the settings themselves."""
    schedule_policy: str | None = None
    """Whose schedule of the lineage it is; None: that of the policy with the best of the last scores."""

    def _validate_population(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        for name in ("pbt_interval", "pbt_start"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "1 or more, or None")
        share = self.pbt_fraction
        require(share is None or 0.0 < share <= 0.5, "pbt_fraction", share, "more than 0 and at most 0.5, or None")
        require(self.pbt_episodes > 0, "pbt_episodes", self.pbt_episodes, "1 or more")
        require(bool(self.pbt_metric), "pbt_metric", self.pbt_metric, '"return", or a name in info["metrics"]')
        if self.pbt is not None and not self.pbt_space:
            raise ConfigError(
                f"pbt={self.pbt!r} needs a pbt_space: a TOML file that says which settings may change within which "
                'bounds, such as [learning_rate] with low = 1e-5, high = 1e-2 and log = true'
            )
        if self.pbt is None and self.pbt_space:
            raise ConfigError('pbt_space is given, and pbt is None: use pbt="truncation", or leave pbt_space out')
        if self.pbt is not None and self.schedule is not None:
            raise ConfigError(f"schedule and pbt={self.pbt!r} both say which settings policies have: give one")
        if self.schedule_policy is not None and (is_json(self.schedule) or isinstance(self.schedule, Mapping)):
            raise ConfigError(
                f"schedule_policy={self.schedule_policy!r} says whose schedule of a lineage is meant, and schedule is "
                "one policy's already: leave schedule_policy out, or give the path of a lineage as schedule"
            )
        if self.schedule_policy is not None and not isinstance(self.schedule, str):
            raise ConfigError(
                f"schedule_policy={self.schedule_policy!r} says whose schedule of a lineage is meant: give schedule, "
                "the path of the lineage, too"
            )


def is_json(schedule: object) -> bool:
    """Whether a schedule is given as the text of an object, as on a command line, and is no path."""
    return isinstance(schedule, str) and schedule.lstrip().startswith("{")
