"""The serial backend: every role in this process and thread, in a fixed order. Reproducible bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock.engine.roles import Role, RoleSpec
from penstock.engine.rollout_worker import RolloutWorker
from penstock.experience.arena import Control, ExperienceArena

Handler = Callable[[str, str, Any], None]


class SerialBackend:
    """Polls all roles in turn, rollout workers only while the learner has a goal ahead.

    So what happens never depends on when the supervisor looks, and training in two calls is training in one.

    Parameters
    ----------
    arena
        The run's arena.
    specs
        The roles, in the order in which they are polled.
    handle
        Called with (role, kind, payload) for whatever a role reports.
    """

    def __init__(self, arena: ExperienceArena, specs: Sequence[RoleSpec], handle: Handler) -> None:
        self._arena = arena
        self._specs = specs
        self._handle = handle
        self._roles: dict[str, Role] = {}
        self._steps = 0

    def start(self) -> None:
        """Make the roles."""
        for spec in self._specs:
            self._roles[spec.name] = spec.build(self._arena, self._reporter(spec.name))

    def pump(self, timeout: float) -> None:
        """Poll all roles in turn for `timeout` seconds, or until none has anything to do."""
        threads = torch.get_num_threads()
        torch.set_num_threads(max(spec.num_threads for spec in self._specs))
        try:
            end = time.monotonic() + timeout
            while self._poll() and time.monotonic() < end:
                pass
        finally:
            torch.set_num_threads(threads)

    def send(self, role: str, command: str, payload: Any) -> None:
        """Give a role a command."""
        self._roles[role].handle(command, payload)

    def close(self) -> None:
        """Close the roles."""
        for role in self._roles.values():
            role.close()
        self._roles.clear()

    def _poll(self) -> bool:
        has_goal = self._steps < self._arena.control[Control.GOAL]
        return any([role.poll() for role in self._roles.values() if has_goal or not isinstance(role, RolloutWorker)])

    def _reporter(self, role: str) -> Callable[[str, Any], None]:
        def report(kind: str, payload: Any) -> None:
            if kind == "learned":
                self._steps = payload["steps"]
            self._handle(role, kind, payload)

        return report
