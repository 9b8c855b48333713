"""Death of a role, from the moment when a backend notices it to the start of the role's replacement.

1. A role raises and sends `Failed`, or its process ends and the launcher reports it. Both reach the backend's `_bury`.
2. `Restarts` counts the death. Either the run ends, or the role is replaced after a pause. Failures of an environment
   are forgiven with ``on_env_error="restart"``; a killed role is replaced unless it is vital, as a single learner is.
3. `Died` is delivered to the supervisor (`Reports`), which shows it and repeats requests that the dead role leaves
   unanswered.
4. Meanwhile a `Replacement` keeps commands to the role. It withdraws the requests of a dead rollout worker and waits
   until no policy worker can still be answering them.
5. `RoleSpec.successor` frees what the dead role held in the arena, and returns the spec that the backend starts next.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from penstock.engine.contracts import RoleSpec
from penstock.engine.groups.follower import RankRole
from penstock.engine.messages import Command, Failed
from penstock.engine.roles.shared_process import parts_of
from penstock.engine.roles.specs import LearnerRole, PolicyRole, RolloutRole
from penstock.envs.failures import EnvironmentFailure
from penstock.experience.arena import ExperienceArena

MAX_RESTARTS = 5
RESTART_WINDOW = 600.0  # seconds in which MAX_RESTARTS killed roles may be replaced
FAILURE_WINDOW = 60.0  # seconds after which a failed environment is forgotten
LONGEST_BACK_OFF = 10.0  # seconds
MAX_LEARNER_RESTARTS = 20  # of a group within RESTART_WINDOW, while the other learners continue
LEARNER_BACK_OFF = 0.25  # seconds

_ENDED_BY_ENVIRONMENT = (
    ", in its environment, which must not end the process: fix the environment, or continue with on_env_error='restart'"
)


class RoleDied(RuntimeError):
    """A role ended that cannot be replaced, or too many did."""


class Restarts:
    """Decisions about dead roles: whether a role is replaced, and after which pause.

    Parameters
    ----------
    forgive_environments
        Whether a role is replaced if its environment failed (``on_env_error="restart"``).
    """

    def __init__(self, forgive_environments: bool) -> None:
        self._forgive_environments = forgive_environments
        self._kills: deque[float] = deque()
        self._learner_kills: deque[float] = deque()
        self._failures: dict[str, deque[float]] = {}
        self._failures_at_start: dict[str, int] = {}

    def begun(self, role: str) -> None:
        """Note that a role and its environments were made, and that it works."""
        self._failures_at_start[role] = 0

    def after_failure(self, role: str, failure: Failed | None) -> float | None:
        """Count a failure; return the seconds until the role is replaced, None if it is not.

        A role is replaced if its environment failed, unless it fails repeatedly before it has started to work.

        Parameters
        ----------
        role
            Name of the role.
        failure
            Report of the role; None: its process ended in its environment, without a report.
        """
        at_start = self._failures_at_start.get(role, 0)
        is_environments = failure is None or isinstance(failure.error, EnvironmentFailure)
        if not (self._forgive_environments and is_environments and at_start < MAX_RESTARTS):
            return None
        self._failures_at_start[role] = at_start + 1
        return _back_off(_count(self._failures.setdefault(role, deque()), FAILURE_WINDOW))

    def after_end(self, spec: RoleSpec, story: str, *, is_killed: bool, is_in_env: bool) -> float:
        """Count a process that ended without a report; return the seconds until its role is replaced.

        Parameters
        ----------
        spec
            The role.
        story
            What happened, for the user.
        is_killed
            Whether a signal ended the process.
        is_in_env
            Whether it ended in its environment.

        Raises
        ------
        RoleDied
            The role cannot be replaced, or too many were killed within RESTART_WINDOW; the message begins with `story`.
        """
        if is_in_env and (pause := self.after_failure(spec.name, None)) is not None:
            return pause
        if spec.is_vital or not is_killed:
            raise RoleDied(story + (_ENDED_BY_ENVIRONMENT if is_in_env else ""))
        return self.after_kill(story, any(isinstance(part, LearnerRole | RankRole) for part in parts_of([spec])))

    def after_kill(self, story: str, is_learner: bool) -> float:
        """Count a killed role, learners of a group separately; returns and raises as `after_end` does."""
        kills, most = (self._learner_kills, MAX_LEARNER_RESTARTS) if is_learner else (self._kills, MAX_RESTARTS)
        count = _count(kills, RESTART_WINDOW)
        if count > most:
            kind, fewer = (" learner", "num_learners") if is_learner else ("", "workers or lanes")
            raise RoleDied(
                f"{story}: {count}{kind} deaths in {RESTART_WINDOW / 60:.0f} minutes, and only {most} are replaced; "
                f"find out what kills them (if memory is short, use fewer {fewer})"
            )
        return min(LEARNER_BACK_OFF, _back_off(count)) if is_learner else _back_off(count)


class Replacement:
    """A dead role until its replacement starts.

    Parameters
    ----------
    spec
        The dead role.
    arena
        The run's arena.
    pause
        Seconds until the replacement may start.

    Attributes
    ----------
    spec : RoleSpec
        The dead role.
    commands : list of Command
        Commands to send to the replacement.
    """

    def __init__(self, spec: RoleSpec, arena: ExperienceArena, pause: float) -> None:
        self.spec = spec
        self._not_before = time.monotonic() + pause
        self._deaths: list[tuple[ExperienceArena, int, int]] = []  # arena, worker and death of each policy's requests
        if isinstance(spec, RolloutRole):
            worker = spec.rollout.worker
            self._deaths = [(each, worker, each.requests.withdraw(worker)) for each in arena.policies]
        self.commands: list[Command] = []

    def is_due(self, alive: Sequence[RoleSpec]) -> bool:
        """Whether the pause is over, and no live role can still be answering a request from before the death."""
        acting = {(spec.policy, spec.number) for spec in parts_of(alive) if isinstance(spec, PolicyRole)}
        return time.monotonic() >= self._not_before and all(
            (arena.policy, arena.requests.policy_worker_of(worker)) not in acting
            or arena.requests.has_passed(death, worker)
            for arena, worker, death in self._deaths
        )


def _count(moments: deque[float], window: float) -> int:
    """Add the current moment, drop those before the window, and return how many are left."""
    now = time.monotonic()
    moments.append(now)
    while now - moments[0] > window:
        moments.popleft()
    return len(moments)


def _back_off(count: int) -> float:
    return 0.0 if count == 1 else min(LONGEST_BACK_OFF, 0.1 * 2.0**count)
