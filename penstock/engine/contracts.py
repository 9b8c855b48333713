"""Contracts between the engine's rooms: roles and their specs, backends, writers, the start of a run.

The ground floor of the engine: every room may use it, and it uses none of them but the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from penstock.engine.messages import Command, Tell

if TYPE_CHECKING:
    import numpy as np

    from penstock.experience.arena import ExperienceArena, Pending
    from penstock.ipc import Doorbell


class Role(Protocol):
    """A part of the engine: a backend polls it, and lets it sleep on its bell when there is nothing to do."""

    bell: Doorbell

    def poll(self) -> bool:
        """Do one piece of work without waiting for anything; False if there was none."""
        ...

    def handle(self, command: Command) -> None:
        """Take a command of the supervisor."""
        ...

    def close(self) -> None:
        """Let go of what is held open."""
        ...


class RoleSpec(Protocol):
    """Makes a role; picklable."""

    @property
    def name(self) -> str:
        """Name of the role, such as "rollout-0"."""
        ...

    @property
    def num_threads(self) -> int:
        """Native threads that the role may use."""
        ...

    @property
    def is_vital(self) -> bool:
        """Whether the run ends with the role; others are replaced."""
        ...

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the role."""
        ...

    def successor(self, arena: ExperienceArena) -> RoleSpec:
        """Take back what the role held, which is dead; return who comes in its place."""
        ...


@runtime_checkable
class OfPolicy(Protocol):
    """Spec of a role that works for one of a run's policies."""

    @property
    def policy(self) -> int:
        """Number of the policy."""
        ...


class LeavesNothing:
    """A role that holds nothing when it dies: its successor is told the same."""

    def successor(self, arena: ExperienceArena) -> Self:
        """Return the same."""
        return self


@dataclass(frozen=True)
class LearnerState:
    """Progress of learning, without weights and the learner's own state.

    Attributes
    ----------
    steps, version, updates
        Steps learned from, version of the weights, updates made.
    """

    steps: int = 0
    version: int = 0
    updates: int = 0


@dataclass(frozen=True)
class Start:
    """Start of a run: from nothing, or from a checkpoint.

    Attributes
    ----------
    state
        Where learning stands.
    learning
        What the learner alone has, as it was saved.
    seconds
        Wall-clock time spent.
    matches
        What was known of the pool of opponents, as it was saved.
    tuned
        Values of tunable settings that had been set.
    """

    state: LearnerState = field(default_factory=LearnerState)
    learning: dict[str, Any] | None = None
    seconds: float = 0.0
    matches: dict[str, Any] | None = None
    tuned: dict[str, float] = field(default_factory=dict)


class ExperienceWriter(Protocol):
    """Keeps the rows in which a group's lanes stand, and writes what their steps bring."""

    waits_for: str
    """Activity of the rollout worker while `open` returns False."""
    is_open: bool

    @property
    def rows(self) -> np.ndarray:
        """Global row at which each lane stands, int64 ``[N]``."""
        ...

    def open(self) -> bool:
        """Make room for a step of every lane; False while there is none."""
        ...

    def restart_if_fenced(self) -> None:
        """Begin anew what a new run epoch has made worthless."""
        ...

    def record(self) -> None:
        """Write what the lanes' last step brought."""
        ...

    def flush(self) -> None:
        """Hand over what others' experience waits for; called while the group's lanes of another policy cannot step."""
        ...


class Actor(Protocol):
    """Role part that answers requests at once."""

    def answer(self, pending: Pending) -> None: ...


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
