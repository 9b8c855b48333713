"""Roles of a run from the supervisor's side: commands to them, polls until a condition holds, their failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.engine.backends.interruption import Interrupted
from penstock.engine.backends.restarts import RoleDied
from penstock.engine.contracts import Backend, RoleSpec
from penstock.engine.messages import Command, Copied, Failed, WeightsSet
from penstock.engine.roles.learner import LearningDiverged
from penstock.engine.roles.shared_process import parts_of, policies_by_role, with_policy_names
from penstock.envs.failures import EnvironmentFailure
from penstock.experience.layout import RoleKind

Answer = WeightsSet | Copied
"""Report that answers a command."""


class RoleFailed(RoleDied):
    """A role failed and is not replaced; the message explains it, `cause` is the role's exception."""

    def __init__(self, story: str, cause: BaseException | None) -> None:
        super().__init__(story)
        self.cause = cause


class Roles:
    """Sends commands to the roles, polls them, and raises the first failure.

    Parameters
    ----------
    backend
        Backend of the run.
    specs
        The roles.
    policies
        Names of the run's policies.

    Attributes
    ----------
    interrupted
        Whether a signal has ended the run. Then only a learner's failure is raised, because the signal may also have
        ended processes of an environment.
    failure
        Name and report of the first role that failed; None: no failure.
    is_failing
        Whether the run is ending with a failure; no further one is raised then.
    """

    def __init__(self, backend: Backend, specs: Sequence[RoleSpec], policies: Sequence[str]) -> None:
        self._backend = backend
        self._policies_of_roles = policies_by_role(parts_of(specs), policies)
        self._policies_of_processes = policies_by_role(specs, policies)
        self._answer: Answer | None = None
        self.interrupted = Interrupted()
        self.failure: tuple[str, Failed] | None = None
        self.is_failing = False

    def send(self, role: str, command: Command) -> bool:
        """Send a command to a role; False: the role is gone for good."""
        return self._backend.send(role, command)

    def request(self, role: str, command: Command, seconds: float) -> Answer | None:
        """Send a command and poll until it is answered; None: the role is gone, or has not answered in time."""
        self._answer = None
        is_there = self.send(role, command)
        self.until(lambda: self._answer is not None or not is_there, seconds)
        return self._answer

    def turn(self, seconds: float = 0.1) -> None:
        """Poll the roles for up to `seconds`, and deliver their reports.

        Raises
        ------
        RoleDied, LauncherDied
            A process ended that cannot be replaced.
        RoleFailed
            A role failed.
        """
        self._backend.pump(seconds)
        if self.failure is None or self.is_failing:
            return
        role, failed = self.failure
        if self.interrupted.has_come and not role.startswith(RoleKind.LEARNER):
            return
        is_explained = isinstance(failed.error, EnvironmentFailure | LearningDiverged)
        story = f"{role}: {failed.error}" if is_explained else f"{role} failed:\n{failed.text}"
        raise RoleFailed(with_policy_names(story, self._policies_of_roles), failed.error)

    def until(self, is_done: Callable[[], bool], seconds: float) -> None:
        """Poll until a condition holds, for up to `seconds`; raises as `turn` does."""
        end = time.monotonic() + seconds
        while not is_done() and time.monotonic() < end:
            self.turn(0.05)

    def take_answer(self, answer: Answer) -> None:
        """Record the answer to the last `request`."""
        self._answer = answer

    def take_failure(self, role: str, failed: Failed) -> None:
        """Record the failure of a role, if it is the first."""
        self.failure = self.failure or (role, failed)

    def with_policies(self, story: str) -> str:
        """Insert the policies of a process into a story that begins with the name of the process."""
        return with_policy_names(story, self._policies_of_processes)

    def policies_of(self, role: str) -> str | None:
        """Return the policies of a role in words, such as "of policy 'a'"; None: the role serves all."""
        return self._policies_of_roles.get(role) or self._policies_of_processes.get(role)
