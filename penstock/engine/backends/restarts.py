"""Rules for replacing roles that were killed or have failed."""

from __future__ import annotations

import time
from collections import deque

from penstock.engine.messages import Failed
from penstock.envs.failures import EnvironmentFailure

MAX_RESTARTS = 5
RESTART_WINDOW = 600.0  # seconds in which MAX_RESTARTS killed roles may be replaced
FAILURE_WINDOW = 60.0  # seconds after which a failed environment is forgotten
LONGEST_BACK_OFF = 10.0  # seconds
MAX_LEARNER_RESTARTS = 20  # of a learner group within RESTART_WINDOW: the others continue meanwhile
LEARNER_BACK_OFF = 0.25  # seconds


class RoleDied(RuntimeError):
    """A role ended that cannot be replaced, or too many roles ended."""


class Restarts:
    """Counter of a run's deaths, which decides on replacements.

    Parameters
    ----------
    forgive_environments
        Whether a role is replaced after its environment failed (``on_env_error="restart"``).
    """

    def __init__(self, forgive_environments: bool) -> None:
        self._forgive_environments = forgive_environments
        self._kills: deque[float] = deque()
        self._learner_kills: deque[float] = deque()
        self._failures: dict[str, deque[float]] = {}
        self._failures_at_start: dict[str, int] = {}

    def begun(self, role: str) -> None:
        """Record that a role was made, with its environments, and works."""
        self._failures_at_start[role] = 0

    def forgives(self, role: str, failure: Failed | None) -> bool:
        """Return whether a failed role is replaced: if its environment failed, and not repeatedly at the start.

        Parameters
        ----------
        role
            Name of the role.
        failure
            Failure that was reported; None: the process ended in its environment without a report.
        """
        is_stillborn = self._failures_at_start.get(role, 0) >= MAX_RESTARTS
        is_environments = failure is None or isinstance(failure.error, EnvironmentFailure)
        return self._forgive_environments and is_environments and not is_stillborn

    def after_failure(self, role: str) -> float:
        """Count a forgiven failure; return the seconds to wait before the role is replaced."""
        self._failures_at_start[role] = self._failures_at_start.get(role, 0) + 1
        failures = self._failures.setdefault(role, deque())
        return _back_off(_count(failures, FAILURE_WINDOW))

    def after_kill(self, story: str) -> float:
        """Count a killed role; return the seconds to wait before it is replaced.

        Raises
        ------
        RoleDied
            Too many were killed within RESTART_WINDOW; the message begins with `story`.
        """
        return _back_off(_replaceable(self._kills, MAX_RESTARTS, story, "", "workers or lanes"))

    def after_learner_killed(self, story: str) -> float:
        """Count a killed learner of a group; return the seconds to wait before it is replaced.

        Raises
        ------
        RoleDied
            Too many were killed within RESTART_WINDOW; the message begins with `story`.
        """
        count = _replaceable(self._learner_kills, MAX_LEARNER_RESTARTS, story, " learner", "num_learners")
        return min(LEARNER_BACK_OFF, _back_off(count))


def _replaceable(kills: deque[float], most: int, story: str, kind: str, fewer: str) -> int:
    """Count a killed role; return the number killed within RESTART_WINDOW, or raise `RoleDied` above `most`."""
    count = _count(kills, RESTART_WINDOW)
    if count > most:
        raise RoleDied(
            f"{story}, the {count}th{kind} within {RESTART_WINDOW / 60:.0f} minutes, and {most} are replaced: "
            f"see what kills them (too little memory? then use fewer {fewer})"
        )
    return count


def _count(moments: deque[float], window: float) -> int:
    """Add this moment, drop those before the window, and return the number left."""
    now = time.monotonic()
    moments.append(now)
    while now - moments[0] > window:
        moments.popleft()
    return len(moments)


def _back_off(count: int) -> float:
    return 0.0 if count == 1 else min(LONGEST_BACK_OFF, 0.1 * 2.0**count)
