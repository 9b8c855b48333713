"""The other learners of a group, which learn from batches that the first sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.groups.board import GroupSpec
from penstock.engine.groups.meeting import GroupMember
from penstock.engine.groups.parcels import Kind, ParcelChannel, batch_in, state_in
from penstock.engine.groups.rank_learner import RankLearner, rank_learner
from penstock.engine.messages import Command, Tell, unknown
from penstock.engine.roles.specs import begin_on
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.nn import GroupBroken, sharing


class Follower:
    """A further learner of a group, which follows the calls of the first.

    When another learner dies during a batch, the follower makes the batch's remaining updates alone, so that its state
    is complete even if it was the first that died.

    Parameters
    ----------
    learner
        Networks and optimisers of the rank.
    spec, rank
        Description of the group, and rank of the learner.
    arena
        Arena of the policy.
    """

    ACTIVITIES = ("learn", "wait for batch", "wait for group")

    def __init__(self, learner: RankLearner, spec: GroupSpec, rank: int, arena: ExperienceArena) -> None:
        self.bell = arena.learner_bell
        self._learner = learner
        self._control = arena.control
        self._name = f"{RoleKind.RANK}-{rank}"
        self._clock = Clock(arena.gauges_of(self._name), self.ACTIVITIES)
        self._member = GroupMember(spec, rank, learner.device)
        self._has_state = self._is_ready = False
        self._channel: ParcelChannel | None = None  # None: not in a group
        self._meeting = self._calls = -1

    def poll(self) -> bool:
        """Follow the next call; False while there is none."""
        meeting = int(self._control[Control.MEETING])
        if meeting == 0:  # the first learner has not started yet
            self._clock.switch("wait for group")
            return False
        if meeting != self._meeting:
            self._get_ready(meeting)
            return True
        if self._control[Control.CALLS] == self._calls:
            self._clock.switch("wait for batch" if self._channel is not None else "wait for group")
            return False
        self._calls += 1
        self._clock.switch("learn")
        if self._channel is not None:
            self._learn(self._channel)
        elif self._is_ready and (source := self._member.invitation(meeting)) is not None:
            self._join(source)
        return True

    def handle(self, command: Command) -> None:
        """Refuse a command: commands go to the first learner."""
        raise unknown(self._name, command)

    def close(self) -> None:
        """Leave the group."""
        self._channel = None

    def _get_ready(self, meeting: int) -> None:
        self._channel = None
        self._meeting, self._calls = meeting, int(self._control[Control.CALLS])
        self._member.get_ready(meeting, self._has_state)
        self._is_ready = True
        self.bell.ring()

    def _join(self, source: int) -> None:
        self._is_ready = False  # a second invitation to this meeting is ignored
        try:
            self._channel = ParcelChannel(self._member.connect(self._meeting))
            if source == self._channel.group.rank:
                self._channel.send_state(self._learner.whole_state())
            else:
                self._take_state(self._channel.receive(source)[1])
        except RuntimeError:  # one of them has died: there will be another meeting
            self._channel = None

    def _learn(self, channel: ParcelChannel) -> None:
        """Receive a state or a batch from the first learner, and learn from the batch."""
        try:
            kind, data = channel.receive(0)
        except GroupBroken:
            self._channel = None
            return
        if kind is Kind.STATE:
            self._take_state(data)
            return
        batch, about = batch_in(data, self._learner.device)
        with sharing(channel.group):
            self._learner.learn(batch, about)
        if channel.group.is_broken:
            self._channel = None

    def _take_state(self, data: torch.Tensor) -> None:
        self._learner.take_state(state_in(data))
        self._has_state = True


@dataclass(frozen=True)
class RankRole(LeavesNothing):
    """A learner of a group other than the first; if it dies, the run loses nothing."""

    algorithm: Algorithm
    group: GroupSpec
    rank: int
    num_threads: int
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "rank-<number>"."""
        return f"{RoleKind.RANK}-{self.rank}"

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the follower with its networks and optimisers."""
        return self._follower(Follower, arena)

    def _follower(self, make: type[Follower], arena: ExperienceArena) -> Follower:
        begin_on(self.algorithm.config.device)
        return make(rank_learner(self.algorithm), self.group, self.rank, arena)
