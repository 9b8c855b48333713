"""A learner of a group on a node of its own: it hears by the group's board what others read in the run's arena."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import DistError, DistStoreError

from penstock.engine.contracts import Role
from penstock.engine.groups.following import RankRole
from penstock.engine.groups.meeting import CALLED, GroupSpec, mark, store_of
from penstock.engine.messages import Command, Tell
from penstock.experience.arena import Control, ExperienceArena

LONGEST = timedelta(hours=1)  # that is waited at once
KEPT_MARKS = 64  # for who is behind


class HomeLost(RuntimeError):
    """The home node cannot be reached any more."""


@dataclass(frozen=True)
class RankThereRole(RankRole):
    """A learner of a group on a node. Nothing of the run is lost with it."""

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make its networks and optimisers, and listen."""
        with _home_is_there():
            return RankThere(super().build(arena, report), Listening(self.group, arena))


class RankThere:
    """A learner beside the first, which ends when home is gone.

    Parameters
    ----------
    follower
        What it would be at home.
    listening
        What it hears by.
    """

    def __init__(self, follower: Role, listening: Listening) -> None:
        self.bell = follower.bell
        self._follower = follower
        self._listening = listening
        listening.start()

    def poll(self) -> bool:
        """Do what all learners are called to; False while there is nothing."""
        if not self._listening.is_alive():
            raise HomeLost("home has called nothing more: the connection to the group's board is broken")
        with _home_is_there():
            return self._follower.poll()

    def handle(self, command: Command) -> None:
        """Take no command, as at home."""
        self._follower.handle(command)

    def close(self) -> None:
        """Leave the group."""
        self._follower.close()


class Listening(threading.Thread):
    """Writes what the first learner calls into the node's arena, where it would stand at home. It ends with home.

    Parameters
    ----------
    spec
        The group.
    arena
        The node's.
    """

    def __init__(self, spec: GroupSpec, arena: ExperienceArena) -> None:
        super().__init__(name="listening", daemon=True)
        self._store = store_of(spec)
        self._control, self._bell = arena.control, arena.learner_bell

    def run(self) -> None:
        """Listen until the connection breaks."""
        with contextlib.suppress(DistError):
            self._wait_for(CALLED)
            while True:
                meeting, calls = map(int, self._store.get(CALLED).split())
                self._control[Control.CALLS], self._control[Control.MEETING] = calls, meeting
                self._bell.ring()
                self._wait_for(mark(meeting + calls + 1))
                self._store.delete_key(mark(meeting + calls + 1 - KEPT_MARKS))
        self._bell.ring()

    def _wait_for(self, name: str) -> None:
        while True:
            try:
                self._store.wait([name], LONGEST)
            except DistStoreError:  # nothing came
                continue
            return


@contextlib.contextmanager
def _home_is_there() -> Iterator[None]:
    """Say `HomeLost` for what torch says of connections."""
    try:
        yield
    except DistError as error:
        raise HomeLost(str(error).partition("\n")[0]) from error
