"""Turns: roles go on and are heard, for a moment or until something is so, as long as none has failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from penstock.engine.backends.interruption import Interrupted
from penstock.engine.backends.restarts import RoleDied
from penstock.engine.contracts import Backend
from penstock.engine.messages import Failed
from penstock.engine.roles.learner import LearningDiverged
from penstock.engine.roles.together import with_policy_names
from penstock.envs.failures import EnvironmentFailure
from penstock.experience.layout import RoleKind


class RoleFailed(RoleDied):
    """A role failed, and is not to come back; the message is its story, `cause` what it raised."""

    def __init__(self, story: str, cause: BaseException | None) -> None:
        super().__init__(story)
        self.cause = cause


class Turns:
    """Gives the roles their turns, and raises what one of them has failed with.

    Parameters
    ----------
    backend
        Where they run.
    policies
        Whose the roles are, see `policies_by_role`.

    Attributes
    ----------
    interrupted
        Whether a signal wants the run to end. Then only a learner's failure counts: the signal has reached what an
        environment had started, too.
    failure
        The name of the first role that failed, and what it reported; None: none has.
    is_failing
        Whether the run fails anyway: then nothing more is raised.
    """

    def __init__(self, backend: Backend, policies: Mapping[str, str]) -> None:
        self._backend = backend
        self._policies = policies
        self.interrupted = Interrupted()
        self.failure: tuple[str, Failed] | None = None
        self.is_failing = False

    def turn(self, seconds: float = 0.1) -> None:
        """Let the roles go on, and hear them, for so many seconds at most.

        Raises
        ------
        RoleDied, LauncherDied
            Something is gone that cannot be replaced.
        RoleFailed
            A role failed.
        """
        self._backend.pump(seconds)
        if self.failure is None or self.is_failing:
            return
        role, failed = self.failure
        if self.interrupted.has_come and not role.startswith(RoleKind.LEARNER):
            return
        speaks_for_itself = isinstance(failed.error, EnvironmentFailure | LearningDiverged)
        story = f"{role}: {failed.error}" if speaks_for_itself else f"{role} failed:\n{failed.text}"
        raise RoleFailed(with_policy_names(story, self._policies), failed.error)

    def until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Give turns until something is so, for so many seconds at most; raises what `turn` does."""
        end = time.monotonic() + seconds
        while not is_done() and time.monotonic() < end:
            self.turn(0.05)

    def take(self, role: str, failed: Failed) -> None:
        """Hear that a role has failed."""
        self.failure = self.failure or (role, failed)
