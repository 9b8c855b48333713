"""The first learner of a group, which has the experience and sends each batch to the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.engine.groups.board import ANSWER_SECONDS, GroupSpec
from penstock.engine.groups.meeting import GroupMember
from penstock.engine.groups.parcels import ParcelChannel, state_in
from penstock.engine.messages import Command, Note, Tell
from penstock.engine.roles.learner import Learner
from penstock.experience.arena import Control, ExperienceArena
from penstock.nn import GroupBroken, sharing

LOOK_INTERVAL = 0.02  # seconds between checks whether all learners are ready


class Leader:
    """The first learner of a group, which learns with the others while they are connected, and alone otherwise.

    It collects, draws, counts, publishes, saves and reports like a single learner, and sends its batches to the others.
    All have the same weights, so that each can give its state to a successor of another. If no learner has a state,
    the last published weights are used, and everything else is as at the start of the run.

    Parameters
    ----------
    learner
        Learner of the data path, as used without a group.
    spec
        Description of the group.
    arena
        Arena of the policy.
    report
        Called with `Note` when others join or leave.
    """

    def __init__(self, learner: Learner, spec: GroupSpec, arena: ExperienceArena, report: Tell) -> None:
        self.bell = learner.bell
        self._learner = learner
        self._size = spec.size
        self._control = arena.control
        self._report = report
        self._member = GroupMember(spec, 0, learner.device)
        self._has_state = not spec.is_successor
        self._deferred: list[Command] = []
        self._channel: ParcelChannel | None = None  # None: it learns alone
        self._next_look = 0.0
        self._state_by = time.monotonic() + ANSWER_SECONDS  # deadline for the state of another learner
        learner.in_group = self._together
        if self._has_state:
            self._write_counts()
        self._hold_meeting()

    def poll(self) -> bool:
        """Connect with the others if all are ready, and learn; False if there was nothing to learn from."""
        if self._channel is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_INTERVAL
            self._try_to_meet()
        has_worked = self._has_state and self._learner.poll()
        if has_worked:
            self._write_counts()
        return has_worked

    def handle(self, command: Command) -> None:
        """Execute a command, or defer it until the learner has a state."""
        if self._has_state:
            self._learner.handle(command)
        else:
            self._deferred.append(command)

    def close(self) -> None:
        """Leave the group."""
        self._channel = None
        self._learner.close()

    # -- meetings ----------------------------------------------------------------------------------------------------

    def _hold_meeting(self) -> None:
        """Announce a new meeting: all learners leave their present group, and get ready."""
        self._channel = None
        self._control[Control.MEETING] += 1
        self._announce(is_new=True)
        self._show()

    def _try_to_meet(self) -> None:
        """Connect with the others if all are ready; adopt the state of one of them, or the published weights."""
        meeting = int(self._control[Control.MEETING])
        others = self._member.others_ready(meeting)
        if others is None:
            if not self._has_state and time.monotonic() > self._state_by:
                self._take_published(f"not all others were ready within {ANSWER_SECONDS:.0f} s")
            return
        if not self._has_state and not any(other.has_state for other in others):
            self._take_published("no other has learned yet")
        source = [self._has_state, *(other.has_state for other in others)].index(True)
        self._member.invite(meeting, others, source)
        self._call()
        try:
            channel = ParcelChannel(self._member.connect(meeting))
            if source == 0:
                channel.send_state(self._learner.whole_state())
            else:
                self._learner.take_state(state_in(channel.receive(source)[1]))
        except RuntimeError:  # one of them has died
            self._hold_meeting()
            return
        self._channel = channel
        self._control[Control.TOGETHER] += 1
        self._has_state, self._learner.is_changed_apart = True, False
        self._show()
        self._report(Note(f"{self._size} learners learn together from step {self._learner.standing()['steps']:,}"))
        self._execute_deferred()

    def _take_published(self, why: str) -> None:
        """Adopt the weights and counts that a dead first learner had published."""
        state, control = self._learner.published_state(), self._control
        state["standing"] |= {"updates": int(control[Control.UPDATES]), "batches": int(control[Control.BATCHES])}
        self._learner.take_state(state)
        self._has_state, steps = True, state["standing"]["steps"]
        self._report(Note(
            f"the learner continues from the weights that were published last, of step {steps:,}: it is new, and "
            f"{why}; optimisers and target networks are as at the start of the run"
        ))  # fmt: skip
        self._execute_deferred()

    def _write_counts(self) -> None:
        """Write into the arena, for a successor, the counts that are not published with the weights."""
        standing = self._learner.standing()
        self._control[Control.UPDATES] = standing["updates"]
        self._control[Control.BATCHES] = standing.get("batches", 0)

    def _execute_deferred(self) -> None:
        while self._deferred:
            self._learner.handle(self._deferred.pop(0))

    def _show(self) -> None:
        together = 1 if self._channel is None else self._size
        times = int(self._control[Control.TOGETHER])
        self._learner.of_group = {"learners/active": together, "learners/rendezvous": times}

    # -- learning together -------------------------------------------------------------------------------------------

    @contextmanager
    def _together(self, batch: Any) -> Iterator[None]:
        """Context in which to learn from a batch: with all learners, or with this one alone."""
        channel = self._send(batch)
        if channel is None:
            yield
            return
        with sharing(channel.group):
            yield
        if channel.group.is_broken:
            self._part()

    def _send(self, batch: Any) -> ParcelChannel | None:
        """Send the others a batch, and first any state changed other than by batches; None: there are no others."""
        if self._channel is None:
            return None
        try:
            if self._learner.is_changed_apart:
                self._call()
                self._channel.send_state(self._learner.whole_state())
                self._learner.is_changed_apart = False
            self._call()
            self._channel.send_batch(batch, self._learner.about_batch())
        except GroupBroken:
            self._part()
        return self._channel

    def _call(self) -> None:
        """Call the others to receive one parcel, or to connect."""
        self._control[Control.CALLS] += 1
        self._announce(is_new=False)

    def _announce(self, *, is_new: bool) -> None:
        """Wake the others, here and on nodes."""
        self.bell.ring()
        self._member.call(int(self._control[Control.MEETING]), int(self._control[Control.CALLS]), is_new=is_new)

    def _part(self) -> None:
        steps = self._learner.standing()["steps"]
        self._report(Note(f"a learner of the group is gone at step {steps:,}: the first learns alone until it is back"))
        self._hold_meeting()
