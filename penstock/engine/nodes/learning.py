"""A learner of a group on a node of its own: it reads calls from the group's board instead of home's arena."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import DistError, DistStoreError

from penstock.engine.contracts import Role
from penstock.engine.groups.board import BoardStore, GroupSpec
from penstock.engine.groups.follower import Follower, RankRole
from penstock.engine.groups.meeting import CALLED, mark
from penstock.engine.groups.rank_learner import RankLearner
from penstock.engine.messages import Tell
from penstock.experience.arena import Control, ExperienceArena

LONGEST = timedelta(hours=1)  # of one wait
KEPT_MARKS = 64  # for learners that are behind


class HomeLost(RuntimeError):
    """The connection to the home node is lost."""


class NodeRank(Follower):
    """A further learner of a group, which ends when home is lost; parameters are those of `Follower`."""

    def __init__(self, learner: RankLearner, spec: GroupSpec, rank: int, arena: ExperienceArena) -> None:
        super().__init__(learner, spec, rank, arena)
        self._calls_of_home = BoardFollower(spec, arena)
        self._calls_of_home.start()

    def poll(self) -> bool:
        """Follow the next call of the group; False while there is none."""
        if not self._calls_of_home.is_alive():
            raise HomeLost("the connection to the board of the learner group is broken")
        with _home_is_there():
            return super().poll()


@dataclass(frozen=True)
class NodeRankRole(RankRole):
    """A learner of a group on a node; its death loses nothing of the run."""

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the follower with its networks and optimisers."""
        with _home_is_there():
            return self._follower(NodeRank, arena)


class BoardFollower(threading.Thread):
    """Thread that copies the first learner's calls from the board into the node's arena, and ends with home.

    Parameters
    ----------
    spec
        Description of the group.
    arena
        Arena of the node.
    """

    def __init__(self, spec: GroupSpec, arena: ExperienceArena) -> None:
        super().__init__(name="board", daemon=True)
        self._store = BoardStore(spec)
        self._control, self._bell = arena.control, arena.learner_bell

    def run(self) -> None:
        """Copy calls until the connection breaks."""
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
            except DistStoreError:  # no value within the time
                continue
            return


@contextlib.contextmanager
def _home_is_there() -> Iterator[None]:
    """Replace torch's connection errors by `HomeLost`."""
    try:
        yield
    except DistError as error:
        raise HomeLost(str(error).partition("\n")[0]) from error
