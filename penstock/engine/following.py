"""A schedule of settings, carried out: policies have the values that it gives for the steps they have learned from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.config import ConfigError, tuned
from penstock.engine.policies import Policy
from penstock.engine.watching.progress import Progress
from penstock.population.schedule import Schedule, schedule_of, settings_at
from penstock.runs.checkpoint import Checkpoint


def open_schedule(
    schedule: Schedule, policies: Sequence[Policy], checkpoints: Sequence[Checkpoint], changed: Collection[str]
) -> None:
    """Let policies that go on with the schedule that they had know again which moment they have heard last.

    Parameters
    ----------
    schedule
        That of the run.
    policies
        The run's policies, all of which it is to fit.
    checkpoints
        From which they go on, one for each; empty: from nothing.
    changed
        Settings that a run that goes on is given now.

    Raises
    ------
    ConfigError
        It names a setting that is not tunable, or a value that is not legal; or one of `changed`.
    """
    for moment in schedule:
        values = settings_at(schedule, moment)
        if given := [name for name in values if name in changed]:
            raise ConfigError(f"{given[0]} is what the schedule of this run says: resume it with schedule=None, too")
        for policy in policies:
            try:
                tuned(policy.untuned, values)
            except ConfigError as error:
                raise ConfigError(f"schedule, from step {moment:,} on: {error}") from None
    for policy, checkpoint in zip(policies, checkpoints, strict=False):
        policy.heard = _heard(schedule, checkpoint.meta)


def _heard(schedule: Schedule, meta: Mapping[str, Any]) -> int | None:
    """The moment of this schedule that a policy has heard last by its checkpoint; of another schedule it is none."""
    heard: int | None = meta.get("heard")
    return heard if heard is not None and schedule_of(meta["config"]["schedule"], None) == schedule else None


class ScheduleFollower:
    """Lets policies follow a schedule, each by its own steps, from the first batch on.

    Parameters
    ----------
    schedule
        Values by steps; empty: nothing is changed.
    policies, progress
        The run's. A run that goes on has the values of the steps that it goes on from, and what was set since it came
        to these.
    """

    def __init__(self, schedule: Schedule, policies: Sequence[Policy], progress: Progress) -> None:
        self._schedule, self._policies, self._progress = schedule, policies, progress
        self.schedule()

    def schedule(self) -> None:
        """Let policies that have come to a later moment of the schedule have its values."""
        for policy, progress in zip(self._policies, self._progress.policies, strict=True):
            moment = max((moment for moment in self._schedule if moment <= progress.steps), default=None)
            if moment is not None and (policy.heard is None or moment > policy.heard):
                policy.heard = moment
                policy.tune(settings_at(self._schedule, moment))
                progress.tuned = policy.tuned
