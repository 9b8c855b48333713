"""Interface of a backend: it runs roles and carries commands and reports."""

from __future__ import annotations

from typing import Protocol

from penstock.engine.messages import Command


class Backend(Protocol):
    """Runs the roles of a run; made with the run's arena, the roles' specs, a `Handler`, and `Restarts`."""

    def start(self) -> None:
        """Make the roles."""
        ...

    def pump(self, timeout: float) -> None:
        """Give the roles their turn, and deliver what they report, for up to `timeout` seconds.

        Raises
        ------
        RoleDied, LauncherDied
            Something is gone that cannot be replaced.
        """
        ...

    def send(self, role: str, command: Command) -> bool:
        """Give a role a command, at once or when its replacement is there; False if it is gone for good."""
        ...

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the roles alive, by name, as far as they have processes of their own."""
        ...

    def close(self, patience: float) -> None:
        """Stop all roles: at first by asking them, after `patience` seconds for certain. A second call does nothing."""
        ...
