"""The other learners of a group: they learn from what the first hands out, and have nothing else to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.groups.meeting import GroupMember, GroupSpec
from penstock.engine.groups.parcels import Kind, ParcelChannel, batch_in, state_in
from penstock.engine.groups.rank_learner import RankLearner, rank_learner
from penstock.engine.messages import Command, Tell, unknown
from penstock.engine.roles.specs import begin_on
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.nn import Group, GroupBroken, sharing


@dataclass(frozen=True)
class RankRole(LeavesNothing):
    """A learner of a group beside the first. Nothing of the run is lost with it."""

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
        """Make its networks and optimisers."""
        begin_on(self.algorithm.config.device)
        return Follower(rank_learner(self.algorithm), self.group, self.rank, arena)


class Follower:
    """A learner that is called to each batch.

    When another learner dies in the midst of a batch, it makes the batch's remaining updates alone. So if it was the
    first that died, what goes on is complete.

    Parameters
    ----------
    learner
        Networks and optimisers of the rank.
    spec, rank
        The group, and which of its learners this is.
    arena
        The arena of the policy.
    """

    ACTIVITIES = ("learn", "wait for batch", "wait for group")

    def __init__(self, learner: RankLearner, spec: GroupSpec, rank: int, arena: ExperienceArena) -> None:
        self.bell = arena.learner_bell
        self._learner = learner
        self._control = arena.control
        self._name = f"{RoleKind.RANK}-{rank}"
        self._clock = Clock(arena.gauges_of(self._name), self.ACTIVITIES)
        self._seat = GroupMember(spec, rank, learner.device)
        self._has_state = self._is_ready = False
        self._group: Group | None = None
        self._post: ParcelChannel | None = None
        self._meeting = self._calls = -1

    def poll(self) -> bool:
        """Do what all learners are called to; False while there is nothing."""
        meeting = int(self._control[Control.MEETING])
        if meeting == 0:  # the first learner is not there yet
            self._clock.switch("wait for group")
            return False
        if meeting != self._meeting:
            self._get_ready(meeting)
            return True
        if self._control[Control.CALLS] == self._calls:
            self._clock.switch("wait for batch" if self._group is not None else "wait for group")
            return False
        self._calls += 1
        self._clock.switch("learn")
        if self._post is not None:
            self._take_part(self._post)
        elif self._is_ready and (source := self._seat.invitation(meeting)) is not None:
            self._join(source)
        return True

    def handle(self, command: Command) -> None:
        """Take no command: the first learner hears them all."""
        raise unknown(self._name, command)

    def close(self) -> None:
        """Leave the group."""
        self._leave()

    def _get_ready(self, meeting: int) -> None:
        self._leave()
        self._meeting, self._calls = meeting, int(self._control[Control.CALLS])
        self._seat.get_ready(meeting, self._has_state)
        self._is_ready = True
        self.bell.ring()

    def _join(self, source: int) -> None:
        self._is_ready = False  # whatever comes of it, this meeting is not come to again
        try:
            self._group = self._seat.connect(self._meeting)
            self._post = ParcelChannel(self._group)
            if source == self._group.rank:
                self._post.send_state(self._learner.whole_state())
            else:
                self._take_state(self._post.receive(source)[1])
        except RuntimeError:  # one of them died on the way: there will be another meeting
            self._leave()

    def _take_part(self, post: ParcelChannel) -> None:
        assert self._group is not None
        try:
            kind, data = post.receive(0)
        except GroupBroken:
            self._leave()
            return
        if kind is Kind.STATE:
            self._take_state(data)
            return
        batch, about = batch_in(data, self._learner.device)
        with sharing(self._group):
            self._learner.learn(batch, about)
        if self._group.is_broken:
            self._leave()

    def _take_state(self, data: torch.Tensor) -> None:
        self._learner.take_state(state_in(data))
        self._has_state = True

    def _leave(self) -> None:
        self._group = self._post = None
