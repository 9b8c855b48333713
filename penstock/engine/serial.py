"""The serial backend: every role in this process and thread, in a fixed order. Reproducible bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from penstock.engine.roles import Role, RoleSpec
from penstock.experience.arena import ExperienceArena

Handler = Callable[[str, str, Any], None]


class SerialBackend:
    """Polls all roles in turn.

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
            while any([role.poll() for role in self._roles.values()]) and time.monotonic() < end:
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

    def _reporter(self, role: str) -> Callable[[str, Any], None]:
        return lambda kind, payload: self._handle(role, kind, payload)
