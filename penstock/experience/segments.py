"""Writing segments: the lanes of a group fill a slot each, row by row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import SlotState, scatter

HEADROOM = 1.25  # so many times as long as their last segment took, lanes are reckoned to need for the next


class SegmentWriter:
    """The slots that a group's lanes are writing, and the row at which each lane stands.

    Slots of a group are opened and closed together: when the first lane has written T transitions, the others (which
    may be behind by a final row) are padded with transitions that are not valid. A lane's observation lies in its
    row before an action is chosen for it; `record` then writes what came of the action and moves on.

    No lane goes ahead of a learner that has plenty: while so many segments wait that the learner is at work with them
    until the lanes could have written their next, a lane begins one only if none of its earlier ones waits. It would
    be learned from later, and bring nothing sooner.

    Parameters
    ----------
    arena
        The run's arena.
    worker
        Number of the rollout worker, owner of the slots while they are written.
    lanes
        The lanes of this group.
    first_lane
        Number of the group's first lane among all lanes of the run.
    """

    waits_for = "wait for slots"

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int) -> None:
        self.arena = arena
        self.worker = worker
        self.lanes = lanes
        self.lane_numbers = np.arange(first_lane, first_lane + lanes.num_lanes, dtype=np.int64)
        self.length = arena.shape.segment_length
        self.slots = np.full(lanes.num_lanes, -1, np.int64)
        self.base = np.zeros(lanes.num_lanes, np.int64)
        self.cursor = np.zeros(lanes.num_lanes, np.int64)
        self.epoch = -1
        self.is_open = False
        self._carried = PendingRows(arena, lanes, self.lane_numbers) if lanes.agents else None
        self._number = 0  # of the open segments among those of their lanes
        self._began = 0  # of the open segments, in nanoseconds of the monotonic clock
        self._took = 0  # nanoseconds that the last ones needed

    @property
    def rows(self) -> np.ndarray:
        """Global row at which each lane stands, int64 ``[N]``."""
        return self.base + self.cursor

    def open(self) -> bool:
        """Begin new segments with what the lanes show now; False while a lane gets no slot.

        It has none free, or one of its segments waits and the learner has plenty.
        """
        if not self.arena.take(self.lane_numbers, self.slots, self.worker, self.plenty()):
            return False
        self.base = self.slots * (self.length + 1)
        self._begin()
        return True

    def plenty(self) -> float:
        """Segments that keep the learner at work while these lanes write their next ones; a batch is the least."""
        return plenty_of(self.arena, self._took)

    def restart_if_fenced(self) -> None:
        """Begin the open segments anew, in the same slots, if a new run epoch has begun since."""
        if self.is_open and self.epoch != self.arena.control[Control.RUN_EPOCH]:
            if self._carried is not None:
                self._carried.take(self.rows)
            self._begin()

    def _begin(self) -> None:
        self._began = time.monotonic_ns()
        epoch_before, self.epoch = self.epoch, int(self.arena.control[Control.RUN_EPOCH])
        self.arena.slot_epoch[self.slots] = self.epoch
        is_fenced = self.epoch != epoch_before
        self._number += 1 + (is_fenced and self._carried is not None)  # pending actions will be missing: a gap
        self.arena.slot_number[self.slots] = self._number
        self.cursor.fill(0)
        self._write_shown()
        if self._carried is not None:
            self._carried.put(self.rows, self.slots, is_fenced=is_fenced)
        self.is_open = True

    def record(self) -> None:
        """Write what the lanes' last step brought, and close the segments when the first lane has reached T."""
        lanes, columns = self.lanes, self.arena.columns
        rows = self.base + self.cursor
        scatter(columns["reward"], rows, lanes.reward)
        scatter(columns["terminated"], rows, lanes.terminated)
        scatter(columns["truncated"], rows, lanes.truncated)
        scatter(columns["valid"], rows, lanes.valid if self._carried is None else self._carried.learned_from())
        self.cursor += lanes.moved
        ends_in_final = self._record_finals() if lanes.finals.size else lanes.finals
        if self.cursor.max() >= self.length:
            self._close(ends_in_final)
        else:
            self._write_shown()

    def flush(self) -> None:
        """Close the open segments where the learner of a batch of all lanes has others already.

        Two groups of several policies may each have delivered the segments of one, and wait for its learner: without
        this, that of either policy would wait for the other group.
        """
        if self.is_open and self.arena.shape.slots_per_lane == 1 and len(self.arena.waiting()):
            self._close(self.lanes.finals[:0])

    def _record_finals(self) -> np.ndarray:
        """Give the final observations a row of their own; return the lanes where that is the segment's last row."""
        finals = self.lanes.finals
        rows = self.base[finals] + self.cursor[finals]
        self.lanes.write_finals(self.arena.columns["obs"], rows)
        self.arena.columns["first"][rows] = False
        inside = self.cursor[finals] < self.length
        self._void(rows[inside])
        self.cursor[finals] += inside
        return finals[~inside]

    def _write_shown(self) -> None:
        rows = self.base + self.cursor
        self.lanes.write_observations(self.arena.columns["obs"], rows)
        scatter(self.arena.columns["first"], rows, self.lanes.first)

    def _close(self, ends_in_final: np.ndarray) -> None:
        columns = self.arena.columns
        # A final observation in the last row stays: the new episode's first one belongs to the next segment.
        last = self.base[ends_in_final] + self.length
        finals = columns["obs"][last]
        self._write_shown()
        columns["obs"][last] = finals
        columns["first"][last] = False
        if self._carried is not None:
            self._carried.take(self.rows)
        for lane in np.flatnonzero(self.cursor < self.length):
            self._void(np.arange(self.base[lane] + self.cursor[lane], self.base[lane] + self.length))
        self.is_open = False
        self._deliver()
        self._took = time.monotonic_ns() - self._began

    def _deliver(self) -> None:
        """Hand full slots over to the learner."""
        self.arena.slots.claim(self.slots, SlotState.WRITING, SlotState.FULL, self.worker)
        self.arena.full.push_many(self.slots)
        self.arena.learner_bell.ring()
        self.slots.fill(-1)

    def _void(self, rows: np.ndarray) -> None:
        columns = self.arena.columns
        for name in ("reward", "terminated", "truncated", "valid", "version", "log_prob", "action"):
            columns[name][rows] = 0


def plenty_of(arena: ExperienceArena, took: float) -> float:
    """Segments that keep the learner at work while lanes write their next ones, in so many nanoseconds."""
    pace = int(arena.control[Control.PACE])
    batches = max(1.0, HEADROOM * took / pace) if pace else math.inf
    return batches * arena.shape.segments_per_batch


class PendingRows:
    """Rows of actions whose transitions are not complete when their segments close: they go on in the next ones.

    Parameters
    ----------
    arena
        The run's arena.
    lanes
        The lanes of a group: seats of games.
    lane_numbers
        int64 ``[N]``: their numbers among all lanes of the run.
    """

    def __init__(self, arena: ExperienceArena, lanes: Lanes, lane_numbers: np.ndarray) -> None:
        self._arena = arena
        self._lanes = lanes
        self._lane_numbers = lane_numbers
        self._names = ("obs", "action", "log_prob", "version", *(column.name for column in arena.shape.records))
        self._rows: dict[str, np.ndarray] = {}
        self._places = np.empty(0, np.int64)
        self._is_fenced = np.zeros(lanes.num_lanes, np.bool_)

    def take(self, rows: np.ndarray) -> None:
        """Copy the rows of pending actions out of closing segments."""
        self._places = self._lanes.pending.nonzero()[0]
        self._rows = {name: self._arena.columns[name][rows[self._places]] for name in self._names}

    def put(self, rows: np.ndarray, slots: np.ndarray, *, is_fenced: bool) -> None:
        """Write them into the first rows of new segments, with the memory that their actions were chosen from.

        With `is_fenced` a new run epoch has begun since: the transitions of these actions are not learned from.
        """
        places, self._places = self._places, np.empty(0, np.int64)
        self._is_fenced[places] |= is_fenced
        for name, values in self._rows.items():
            self._arena.columns[name][rows[places]] = values
        self._arena.slot_memory[slots[places]] = self._arena.decision_memory[self._lane_numbers[places]]
        self._rows = {}

    def learned_from(self) -> np.ndarray:
        """Which of the lanes' last transitions are learned from, bool ``[N]``."""
        valid = self._lanes.valid & ~self._is_fenced
        self._is_fenced &= ~self._lanes.moved
        return valid


class OwnSegmentWriter(SegmentWriter):
    """Segments that are learned from where they are written: each lane keeps its slot.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`; the arena has a slot for each lane.
    is_wanted
        Says whether more is to be learned.
    learn
        Called with the slots when they are full; False if nothing was done, because no more is to be learned now.
    """

    waits_for = "wait for goal"

    def __init__(
        self,
        arena: ExperienceArena,
        worker: int,
        lanes: Lanes,
        first_lane: int,
        *,
        is_wanted: Callable[[], bool],
        learn: Callable[[np.ndarray], bool],
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane)
        self._is_wanted = is_wanted
        self._learn = learn
        self._is_full = False

    def open(self) -> bool:
        """Have full segments learned from, then begin new ones with what the lanes show now; False while none are."""
        if self._is_full:
            if not self._learn(self.slots):
                return False
            self._is_full = False
        return self._is_wanted() and super().open()

    def _deliver(self) -> None:
        self._is_full = True
