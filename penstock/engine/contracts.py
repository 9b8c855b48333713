"""Contracts between the engine's rooms: roles and their specs, backends, writers, the start of a run.

Every module of the engine may import this one; of the engine, it imports only the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

from penstock.engine.messages import Command, Tell

if TYPE_CHECKING:
    import numpy as np

    from penstock.experience.arena import ExperienceArena, Pending
    from penstock.ipc import Doorbell

SLEEP = 0.1  # seconds: longest sleep on a bell
SPIN = 50e-6  # seconds: time to poll a bell before sleeping on it, if a core is idle


class Role(Protocol):
    """Part of the engine that a backend polls, and that sleeps on its bell when there is nothing to do."""

    bell: Doorbell

    def poll(self) -> bool:
        """Do one piece of work without waiting for anything; False if there was none."""
        ...

    def handle(self, command: Command) -> None:
        """Carry out a command of the supervisor."""
        ...

    def close(self) -> None:
        """Release files, connections and environments."""
        ...


class RoleSpec(Protocol):
    """Picklable description of a role, from which the role is made."""

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
        """Whether the run ends when the role dies; other roles are replaced."""
        ...

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the role."""
        ...

    def successor(self, arena: ExperienceArena) -> RoleSpec:
        """Free what the dead role held in the arena; return the spec of its replacement."""
        ...


class LeavesNothing:
    """Base of specs whose role holds nothing in the arena when it dies: the replacement has the same spec."""

    def successor(self, arena: ExperienceArena) -> Self:
        """Return the same spec."""
        return self


@dataclass(frozen=True)
class LearnerState:
    """Progress of learning: steps learned from, version of the weights, updates made."""

    steps: int = 0
    version: int = 0
    updates: int = 0


@dataclass(frozen=True)
class Start:
    """Start of a policy's learning: from nothing, or from a checkpoint.

    Attributes
    ----------
    state
        Progress of learning.
    learning
        Saved state of the learner beside the weights; None: it starts afresh, as from a checkpoint of weights only.
    meta
        Metadata of the checkpoint; empty: from nothing.
    """

    state: LearnerState = field(default_factory=LearnerState)
    learning: dict[str, Any] | None = None
    meta: dict[str, Any] = field(default_factory=dict)


class ExperienceWriter(Protocol):
    """Writer of a group's experience, which holds the row of each lane."""

    waits_for: str
    """Activity of the rollout worker while `open` returns False."""
    is_open: bool

    @property
    def rows(self) -> np.ndarray:
        """Global row of each lane, int64 ``[N]``."""
        ...

    def open(self) -> bool:
        """Make room for a step of every lane; return False while there is none."""
        ...

    def restart_if_fenced(self) -> None:
        """Restart segments that a new run epoch has fenced off."""
        ...

    def record(self) -> None:
        """Write the experience of the lanes' last step."""
        ...

    def flush(self) -> None:
        """Release experience that others wait for; called while the group's lanes of another policy cannot step."""
        ...


class Actor(Protocol):
    """Part of a role that answers requests at once."""

    def answer(self, pending: Pending) -> None: ...


class Backend(Protocol):
    """Runner of roles; made with the run's arena, the roles' specs, a `Handler`, and `Restarts`.

    Attributes
    ----------
    has_lanes
        Whether there have been lanes to step; on a cluster, the first nodes take a while to start.
    """

    has_lanes: bool

    def start(self) -> None:
        """Make the roles."""
        ...

    def pump(self, timeout: float) -> None:
        """Poll the roles and deliver their reports, for up to `timeout` seconds.

        Raises
        ------
        RoleDied, LauncherDied
            A process ended that cannot be replaced.
        """
        ...

    def send(self, role: str, command: Command) -> bool:
        """Send a role a command, at once or when its replacement starts; False if it is gone for good."""
        ...

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by name of the roles that have a process of their own."""
        ...

    def close(self, patience: float) -> None:
        """Stop all roles: on request at first, by force after `patience` seconds. A second call does nothing."""
        ...
