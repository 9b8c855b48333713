"""Writing segments: the lanes of a group fill a slot each, row by row."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import scatter

HEADROOM = 1.25  # safety factor on the time of the last segment, as an estimate of the next one's


class SegmentWriter:
    """Writer of a group's lanes into slots of the arena, with the current row of each lane.

    Slots of a group are opened and closed together: when the first lane has written T transitions, the others (which
    may be behind by a final row) are padded with transitions that are not valid. A lane's observation lies in its
    row before an action is chosen for it; `record` then writes the result of the action and advances.

    While enough segments wait to keep the learner busy (`busy_backlog`), a lane begins a segment only if none of its
    earlier ones waits: an additional one would only be learned from with more policy lag.

    Parameters
    ----------
    arena
        Arena of the policy.
    worker
        Number of the rollout worker, which owns the slots while it writes them.
    lanes
        Lanes of the group.
    first_lane
        Number of the group's first lane in the run.
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
        self._began = 0  # when the open segments were opened, in nanoseconds of the monotonic clock
        self._took = 0  # nanoseconds between opening and closing of the last segments

    @property
    def rows(self) -> np.ndarray:
        """Global row at which each lane stands, int64 ``[N]``."""
        return self.base + self.cursor

    def open(self) -> bool:
        """Begin new segments with the lanes' current observations; return False while a lane gets no slot.

        A lane gets none if none of its slots is free, or if one of its segments waits and the learner is busy.
        """
        if not self.arena.take(self.lane_numbers, self.slots, self.worker, busy_backlog(self.arena, self._took)):
            return False
        self.base = self.slots * (self.length + 1)
        self._begin()
        return True

    def restart_if_fenced(self) -> None:
        """Restart the open segments, in the same slots, if a new run epoch has begun."""
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
        """Write the results of the lanes' last step, and close the segments when the first lane has reached T."""
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
        """Close the open segments if a batch needs all lanes, and segments of other lanes wait.

        Two groups of several policies may each have delivered the segments of a different policy: without this, either
        policy's learner would wait for the other group.
        """
        if self.is_open and self.arena.shape.slots_per_lane == 1 and len(self.arena.waiting()):
            self._close(self.lanes.finals[:0])

    def _record_finals(self) -> np.ndarray:
        """Write final observations into rows of their own; return the lanes where that is the segment's last row."""
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
        """Pass the full slots to the learner."""
        self.arena.deliver(self.slots, self.worker)
        self.arena.learner_bell.ring()
        self.slots.fill(-1)

    def _void(self, rows: np.ndarray) -> None:
        columns = self.arena.columns
        for name in ("reward", "terminated", "truncated", "valid", "version", "log_prob", "action"):
            columns[name][rows] = 0


def busy_backlog(arena: ExperienceArena, took: float) -> float:
    """Return the number of waiting segments that keep the learner busy while lanes write their next ones.

    Parameters
    ----------
    arena
        Arena of the policy.
    took
        Nanoseconds that the lanes needed for their last segments.

    Returns
    -------
    float
        At least a batch; infinite if nothing depends on time.
    """
    pace = int(arena.control[Control.PACE])
    batches = max(1.0, HEADROOM * took / pace) if pace else math.inf
    return batches * arena.shape.segments_per_batch


class PendingRows:
    """Rows of actions whose transitions are incomplete when their segments close: they move to the next segments.

    Parameters
    ----------
    arena
        Arena of the policy.
    lanes
        Lanes of a group: seats of games.
    lane_numbers
        int64 ``[N]``: numbers of the lanes in the run.
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
        """Write the copied rows into the first rows of new segments, with the memory states of their actions.

        If `is_fenced`, a new run epoch has begun: the transitions of these actions are not learned from.
        """
        places, self._places = self._places, np.empty(0, np.int64)
        self._is_fenced[places] |= is_fenced
        for name, values in self._rows.items():
            self._arena.columns[name][rows[places]] = values
        self._arena.slot_memory[slots[places]] = self._arena.decision_memory[self._lane_numbers[places]]
        self._rows = {}

    def learned_from(self) -> np.ndarray:
        """Return which of the lanes' last transitions are learned from, bool ``[N]``."""
        valid = self._lanes.valid & ~self._is_fenced
        self._is_fenced &= ~self._lanes.moved
        return valid


class OwnSegmentWriter(SegmentWriter):
    """Writer of segments that are learned from by their own worker: each lane keeps its slot.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`; the arena has a slot for each lane.
    is_wanted
        Function that returns whether the goal is ahead.
    learn
        Function that learns from full slots; it returns False if it did nothing, because the goal is reached.
    """

    waits_for = "wait for goal"

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, *, is_wanted: Callable[[], bool],
        learn: Callable[[np.ndarray], bool],
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane)
        self._is_wanted = is_wanted
        self._learn = learn
        self._is_full = False

    def open(self) -> bool:
        """Learn from full segments, then begin new ones; return False while that is not possible."""
        if self._is_full:
            if not self._learn(self.slots):
                return False
            self._is_full = False
        return self._is_wanted() and super().open()

    def _deliver(self) -> None:
        self._is_full = True
