"""The first learner of a group: it has the experience, and calls the others to each batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.engine.groups.meeting import ANSWER_SECONDS, GroupMember, GroupSpec
from penstock.engine.groups.parcels import ParcelChannel, state_in
from penstock.engine.messages import Command, Note, Tell
from penstock.engine.roles.learner import Learner
from penstock.experience.arena import Control, ExperienceArena
from penstock.nn import Group, GroupBroken, sharing

LOOK_INTERVAL = 0.02  # seconds between two looks whether all learners are ready


class Leader:
    """A learner that learns with others as soon as they are there, and alone while they are not.

    It collects, draws, counts, publishes, saves and reports as if it were the only one. What it learns from goes to the
    others, too. All come to the same weights, so any of them can say what another has to go on with. Where none is left
    that can, the weights are those that were published last, and the rest is as it was when the run began.

    Parameters
    ----------
    learner
        What it would be alone.
    spec
        The group.
    arena
        Its policy's arena.
    report
        Called with `Note` when the others come or go.
    """

    def __init__(self, learner: Learner, spec: GroupSpec, arena: ExperienceArena, report: Tell) -> None:
        self.bell = learner.bell
        self._learner = learner
        self._size = spec.size
        self._control = arena.control
        self._report = report
        self._seat = GroupMember(spec, 0, learner.device)
        self._has_state = not spec.is_successor
        self._deferred: list[Command] = []
        self._group: Group | None = None
        self._post: ParcelChannel | None = None
        self._next_look = 0.0
        self._asks_until = time.monotonic() + ANSWER_SECONDS  # what another has to go on with
        learner.together = self._together
        if self._has_state:
            self._write_down()
        self._hold_meeting()

    def poll(self) -> bool:
        """Learn; see first to it that the others are there."""
        if self._group is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_INTERVAL
            self._look()
        has_worked = self._has_state and self._learner.poll()
        if has_worked:
            self._write_down()
        return has_worked

    def handle(self, command: Command) -> None:
        """Take a command; without anything learned yet, later."""
        if self._has_state:
            self._learner.handle(command)
        else:
            self._deferred.append(command)

    def close(self) -> None:
        """Leave the group."""
        self._group = self._post = None
        self._learner.close()

    # -- coming together -------------------------------------------------------------------------------------------

    def _hold_meeting(self) -> None:
        """Ask all learners to get ready to come together, whatever group they are in."""
        self._group = self._post = None
        self._control[Control.MEETING] += 1
        self._announce(is_new=True)
        self._show()

    def _look(self) -> None:
        meeting = int(self._control[Control.MEETING])
        others = self._seat.others_ready(meeting)
        if others is None:
            if not self._has_state and time.monotonic() > self._asks_until:
                self._take_published(f"not all others have come within {ANSWER_SECONDS:.0f} s")
            return
        if not self._has_state and not any(other.has_state for other in others):
            self._take_published("no other has learned yet")
        source = [self._has_state, *(other.has_state for other in others)].index(True)
        self._seat.invite(meeting, others, source)
        self._call()
        try:
            self._group = self._seat.connect(meeting)
            self._post = ParcelChannel(self._group)
            if source == 0:
                self._post.send_state(self._learner.whole_state())
            else:
                self._learner.take_state(state_in(self._post.receive(source)[1]))
        except RuntimeError:  # one of them died on the way
            self._hold_meeting()
            return
        self._control[Control.TOGETHER] += 1
        self._has_state, self._learner.is_changed_apart = True, False
        self._show()
        self._report(Note(f"{self._size} learners learn together from step {self._learner.standing()['steps']:,}"))
        self._hear_deferred()

    def _take_published(self, why: str) -> None:
        """Go on, in the place of a first learner that has died, with what it has left to everybody."""
        state, control = self._learner.published_state(), self._control
        state["standing"] |= {"updates": int(control[Control.UPDATES]), "batches": int(control[Control.BATCHES])}
        self._learner.take_state(state)
        self._has_state, steps = True, state["standing"]["steps"]
        self._report(Note(
            f"the learner goes on from the weights that were published last, of step {steps:,}: it is new, and {why}; "
            "optimisers and target networks are as the run began"
        ))  # fmt: skip
        self._hear_deferred()

    def _write_down(self) -> None:
        """Leave to a successor what does not go with the weights."""
        standing = self._learner.standing()
        self._control[Control.UPDATES] = standing["updates"]
        self._control[Control.BATCHES] = standing.get("batches", 0)

    def _hear_deferred(self) -> None:
        while self._deferred:
            self._learner.handle(self._deferred.pop(0))

    def _show(self) -> None:
        together = 1 if self._group is None else self._size
        times = int(self._control[Control.TOGETHER])
        self._learner.of_group = {"learners/together": together, "learners/meetings": times}

    # -- learning together -----------------------------------------------------------------------------------------

    @contextmanager
    def _together(self, batch: Any) -> Iterator[None]:
        """Within the block all learners learn from a batch, or this one alone."""
        group = self._hand_out(batch)
        if group is None:
            yield
            return
        with sharing(group):
            yield
        if group.is_broken:
            self._part()

    def _hand_out(self, batch: Any) -> Group | None:
        """Send the others what is learned from now; return who does, None: nobody else."""
        if self._group is None or self._post is None:
            return None
        try:
            if self._learner.is_changed_apart:
                self._call()
                self._post.send_state(self._learner.whole_state())
                self._learner.is_changed_apart = False
            self._call()
            self._post.send_batch(batch, self._learner.about_batch())
        except GroupBroken:
            self._part()
        return self._group

    def _call(self) -> None:
        """Have the others come: each call is for one thing that all of them do."""
        self._control[Control.CALLS] += 1
        self._announce(is_new=False)

    def _announce(self, *, is_new: bool) -> None:
        """Wake the others, wherever they are."""
        self.bell.ring()
        self._seat.call(int(self._control[Control.MEETING]), int(self._control[Control.CALLS]), is_new=is_new)

    def _part(self) -> None:
        steps = self._learner.standing()["steps"]
        self._report(Note(f"a learner of the group is gone at step {steps:,}: the first learns alone until it is back"))
        self._hold_meeting()
