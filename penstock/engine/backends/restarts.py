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
MAX_LEARNER_RESTARTS = 20  # of a group within RESTART_WINDOW: while one is away, the others go on
LEARNER_BACK_OFF = 0.25  # seconds


class RoleDied(RuntimeError):
    """A role ended that cannot be replaced, or too many did."""


class Restarts:
    """Counts the deaths of a run.

    Parameters
    ----------
    forgive_environments
        Whether a role may come back whose environment failed (``on_env_error="restart"``).
    """

    def __init__(self, forgive_environments: bool) -> None:
        self._forgive_environments = forgive_environments
        self._kills: deque[float] = deque()
        self._learner_kills: deque[float] = deque()
        self._failures: dict[str, deque[float]] = {}
        self._failures_at_start: dict[str, int] = {}

    def begun(self, role: str) -> None:
        """Note that a role was made, environments and all, and works."""
        self._failures_at_start[role] = 0

    def forgives(self, role: str, failure: Failed | None) -> bool:
        """Whether a role may come back that failed: its environment did, and not again and again at the very start.

        Parameters
        ----------
        role
            Its name.
        failure
            What it raised; None: its process ended in its environment, without a word.
        """
        is_stillborn = self._failures_at_start.get(role, 0) >= MAX_RESTARTS
        is_environments = failure is None or isinstance(failure.error, EnvironmentFailure)
        return self._forgive_environments and is_environments and not is_stillborn

    def after_failure(self, role: str) -> float:
        """Count a failure that was forgiven; return the seconds to wait before the role comes back."""
        self._failures_at_start[role] = self._failures_at_start.get(role, 0) + 1
        failures = self._failures.setdefault(role, deque())
        return _back_off(_count(failures, FAILURE_WINDOW))

    def after_kill(self, story: str) -> float:
        """Count a killed role; return the seconds to wait before it comes back.

        Raises
        ------
        RoleDied
            Too many were killed within RESTART_WINDOW; the message begins with `story`.
        """
        return _back_off(_replaceable(self._kills, MAX_RESTARTS, story, "", "workers or lanes"))

    def after_learner_killed(self, story: str) -> float:
        """Count a killed learner of a group; return the seconds to wait before it comes back.

        Raises
        ------
        RoleDied
            Too many were killed within RESTART_WINDOW; the message begins with `story`.
        """
        count = _replaceable(self._learner_kills, MAX_LEARNER_RESTARTS, story, " learner", "num_learners")
        return min(LEARNER_BACK_OFF, _back_off(count))


def _replaceable(kills: deque[float], most: int, story: str, kind: str, fewer: str) -> int:
    """Count a killed role; return how many were killed within RESTART_WINDOW, or raise `RoleDied` above `most`."""
    count = _count(kills, RESTART_WINDOW)
    if count > most:
        raise RoleDied(
            f"{story}, the {count}th{kind} within {RESTART_WINDOW / 60:.0f} minutes, and {most} are replaced: "
            f"see what kills them (too little memory? then use fewer {fewer})"
        )
    return count


def _count(moments: deque[float], window: float) -> int:
    """Add this moment, forget those before the window, and return how many are left."""
    now = time.monotonic()
    moments.append(now)
    while now - moments[0] > window:
        moments.popleft()
    return len(moments)


def _back_off(count: int) -> float:
    return 0.0 if count == 1 else min(LONGEST_BACK_OFF, 0.1 * 2.0**count)
