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
    """Population-based training of the run's policies: at intervals a weak policy becomes a copy of a stronger one,
    with perturbed settings. "truncation": the worst are replaced by the best; "tournament": a policy that loses against
    a random other is replaced by it; "sample-factory": as "truncation", and settings of the policies in between are
    perturbed in place."""
    pbt_space: str | os.PathLike[str] | dict[str, Any] | None = None
    """Settings that may change: a TOML file with a table per setting, as for `penstock search`; in Python also the
    tables."""
    pbt_interval: int | None = None
    """Steps of each policy between two decisions about it; None: a twentieth of its share of total_steps."""
    pbt_start: int | None = None
    """Steps of each policy before the first decision about it; None: pbt_interval."""
    pbt_fraction: float | None = None
    """Share of the policies that counts as the worst, and as the best; None: 0.2, for "sample-factory" 0.3."""
    pbt_metric: str = "return"
    """Metric that ranks policies: "return", the mean return of training episodes, or a name in info["metrics"]."""
    pbt_episodes: int = 10
    """Episodes since its last replacement that a policy needs to be ranked."""
    schedule: str | os.PathLike[str] | dict[Any, Any] | None = None
    """Tunable settings over the steps of the policy, which override the settings themselves: a population's
    lineage.jsonl or run directory, or {steps: {setting: value}}, on the command line as JSON."""
    schedule_policy: str | None = None
    """Policy of the lineage whose schedule is followed; None: the one with the best final score."""

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
