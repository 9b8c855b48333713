"""Serial backend: every role in this process and thread, in a fixed order, reproducible bit for bit."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import torch

from penstock.engine.backends.restarts import Restarts
from penstock.engine.contracts import Role, RoleSpec
from penstock.engine.messages import Command, Died, Evaluated, Failed, Handler, Learned, Report, Tell
from penstock.engine.roles.specs import RolloutRole, left_as_found, policy_of
from penstock.experience.arena import Control, ExperienceArena


class SerialBackend:
    """Polls the learner; when it is idle, polls all other roles in turn, rollout workers only below a goal.

    So an update that is due is made before the next step, no result depends on when the supervisor calls, and training
    in two calls equals training in one.

    Parameters
    ----------
    arena, handle, restarts
        As for `penstock.engine.backends.local.LocalBackend`.
    specs
        Roles, in the order in which they are polled.
    """

    has_lanes = True

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler, restarts: Restarts) -> None:
        self._arena = arena
        self._specs = {spec.name: spec for spec in specs}
        self._handle = handle
        self._restarts = restarts
        self._roles: dict[str, Role] = {}
        self._surroundings = contextlib.ExitStack()
        self._steps: dict[int, int] = {}  # learned from, by policy
        self._has_news = False

    def start(self) -> None:
        """Make the roles; `close` restores the settings of the process that they change."""
        self._surroundings.enter_context(left_as_found())
        for name in self._specs:
            self._build(name)

    def pump(self, timeout: float) -> None:
        """Poll all roles in turn, until one has learned or evaluated, all are idle, or `timeout` seconds are over."""
        threads = torch.get_num_threads()
        torch.set_num_threads(max(spec.num_threads for spec in self._specs.values()))
        try:
            self._has_news = False
            end = time.monotonic() + timeout
            while self._poll_all() and not self._has_news and time.monotonic() < end:
                pass
        finally:
            torch.set_num_threads(threads)

    def send(self, role: str, command: Command) -> bool:
        """Pass a command to a role; return False if it has failed."""
        if role not in self._roles:
            return False
        try:
            self._roles[role].handle(command)
        except Exception as error:
            self._bury(role, error)
        return True

    @property
    def pids(self) -> dict[str, int]:
        """Empty: no role has a process of its own."""
        return {}

    def close(self, patience: float = 0.0) -> None:
        """Close the roles, without waiting."""
        for role in self._roles.values():
            _close(role)
        self._roles.clear()
        self._specs.clear()
        self._surroundings.close()

    def _build(self, name: str) -> None:
        try:
            self._roles[name] = self._specs[name].build(self._arena, self._reporter(name))
        except Exception as error:
            self._bury(name, error)

    def _poll_all(self) -> bool:
        if any([self._poll(spec.name) for spec in self._specs.values() if spec.is_vital]):
            return True
        has_goal = any(self._steps.get(a.policy, 0) < a.control[Control.GOAL] for a in self._arena.policies)
        others = [spec for spec in self._specs.values() if not spec.is_vital]
        return any([self._poll(spec.name) for spec in others if has_goal or not isinstance(spec, RolloutRole)])

    def _poll(self, name: str) -> bool:
        if name not in self._roles:
            return False
        try:
            has_worked = self._roles[name].poll()
        except Exception as error:
            self._bury(name, error)
            return False
        self._restarts.begun(name)
        return has_worked

    def _bury(self, name: str, error: Exception) -> None:
        """Replace a role that raised, or deliver its failure: see `penstock.engine.backends.restarts`."""
        role = self._roles.pop(name, None)
        if role is not None:
            _close(role)
        failure = Failed.of(error)
        if (pause := self._restarts.after_failure(name, failure)) is None:
            self._handle(name, failure)
            return
        self._handle(name, Died(f"{name}: {error}"))
        time.sleep(pause)
        self._specs[name] = self._specs[name].successor(self._arena)
        self._build(name)

    def _reporter(self, role: str) -> Tell:
        def report(message: Report) -> None:
            if isinstance(message, Learned):
                self._steps[policy_of(role)] = message.steps
            self._has_news |= isinstance(message, Learned | Evaluated)  # reports that the supervisor acts on
            self._handle(role, message)

        return report


def _close(role: Role) -> None:
    with contextlib.suppress(Exception):  # failures of environments no longer matter
        role.close()
