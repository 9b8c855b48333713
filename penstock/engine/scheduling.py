"""Schedule of settings, which applies to each policy by the policy's own steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.config import ConfigError, tuned
from penstock.engine.policies import Policy
from penstock.engine.watching.progress import Progress
from penstock.population.schedule import Schedule, schedule_of, settings_at


def open_schedule(schedule: Schedule, policies: Sequence[Policy], changed: Collection[str]) -> None:
    """Check a run's schedule, and restore the position of each policy that was trained with the same schedule.

    Parameters
    ----------
    schedule, policies
        Schedule and policies of the run.
    changed
        Names of settings that a resume changes.

    Raises
    ------
    ConfigError
        The schedule has a setting that is not tunable, a value that is not legal, or one of `changed`.
    """
    for moment in schedule:
        values = settings_at(schedule, moment)
        if given := [name for name in values if name in changed]:
            raise ConfigError(f"{given[0]} is set by the schedule of this run: resume it with schedule=None as well")
        for policy in policies:
            try:
                tuned(policy.untuned, values)
            except ConfigError as error:
                raise ConfigError(f"schedule, from step {moment:,} on: {error}") from None
    for policy in policies:
        meta = policy.start.meta
        if "heard" in meta and schedule_of(meta["config"]["schedule"], None) == schedule:
            policy.scheduled = meta["heard"]


class ScheduleRunner:
    """Sets the values of a schedule, for each policy by its own steps, from the first batch on.

    Parameters
    ----------
    schedule
        Values by steps; empty: nothing is changed.
    policies
        Policies of the run. A resumed policy keeps the values in force at its steps, and settings changed since.
    progress
        Progress of the run.
    """

    def __init__(self, schedule: Schedule, policies: Sequence[Policy], progress: Progress) -> None:
        self._schedule, self._policies, self._progress = schedule, policies, progress
        self.schedule()

    def schedule(self) -> None:
        """Set the values of policies that have reached the next entry of the schedule."""
        for policy, progress in zip(self._policies, self._progress.policies, strict=True):
            moment = max((moment for moment in self._schedule if moment <= progress.steps), default=None)
            if moment is not None and (policy.scheduled is None or moment > policy.scheduled):
                policy.scheduled = moment
                policy.tune(settings_at(self._schedule, moment))
