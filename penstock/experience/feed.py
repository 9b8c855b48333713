"""Steps on their way to a role that nobody waits for: what it does not read in time is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.envs.spaces import ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.experience.segments import SegmentWriter
from penstock.replay import Field, ReplayBuffer
from penstock.replay.writer import Writer

ROUNDS = 8  # segments of each lane that there is room for
FLAGS = ("first", "ended", "truncated", "valid")
STEPS = ("obs", "action", "reward", *FLAGS)
EXPECTED = "value"  # what was expected when a step's action was chosen


@dataclass(frozen=True)
class Feed:
    """The last segments of all lanes, shared by all processes that it travels to.

    Attributes
    ----------
    buffer
        A segment in each row: obs, action and reward ``[T, ...]``, the flags first, ended, truncated and valid ``[T]``,
        and the numbers of its lane and of itself among its lane's. Where values are recorded, also value ``[T]``.
    observation
        What a lane shows. Of stacks of frames only the newest one is kept.
    names
        Of the columns of steps.
    """

    buffer: ReplayBuffer
    observation: ObservationSpec
    names: tuple[str, ...] = STEPS

    @classmethod
    def make(cls, shape: RunShape, length: int | None = None) -> Feed:
        """Make the feed of a run.

        Parameters
        ----------
        shape
            The run's.
        length
            T; None: that of a segment.

        Raises
        ------
        MemoryError
            It does not fit in memory; the message shows the arithmetic.
        """
        length, newest = length or shape.segment_length, shape.observation.newest
        number = Field((), "int64")
        has_values = any(column.name == EXPECTED for column in shape.records)
        fields = {
            "obs": Field((length, *newest.shape), newest.dtype),
            "action": Field((length, *shape.action.column_shape), shape.action.column_dtype),
            "reward": Field((length,), "float32"),
            **dict.fromkeys(FLAGS, Field((length,), "bool")),
            **({EXPECTED: Field((length,), "float32")} if has_values else {}),
            "lane": number,
            "number": number,
        }
        names = (*STEPS, EXPECTED) if has_values else STEPS
        return cls(ReplayBuffer(ROUNDS * shape.num_lanes, fields), shape.observation, names)

    def reader(self) -> FeedReader:
        """Make what reads it."""
        return FeedReader(self)


class FeedReader:
    """Reads each segment once, those of a lane in their order, as far as they are still there."""

    def __init__(self, feed: Feed) -> None:
        self._buffer = feed.buffer
        self._names = feed.names
        self._read = np.empty(0, np.int64)  # ids among those that are there

    def take(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Return what came since: lane, number and columns ``[T, ...]`` of each segment."""
        rows, ids = self._buffer.live()
        is_new = ~np.isin(ids, self._read)
        self._read = ids
        if not is_new.any():
            return
        found, is_there = self._buffer.read(rows[is_new], ids[is_new])
        for n in np.flatnonzero(is_there).tolist():
            segment = {name: found[name][n] for name in self._names}
            yield int(found["lane"][n]), int(found["number"][n]), segment


class FeedingSegmentWriter(SegmentWriter):
    """Segments that are fed, besides, to a role that learns from them in its own time, and are changed then.

    Nobody waits for that role, but in a serial run: there it has its turn before slots are handed over.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    feed
        Where they go.
    redistribute
        Called with the slots when they are full and fed: changes the rewards in them.
    gives_turn
        Whether full slots are kept until that role has published anew, as in a serial run, where all have their turn.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, feed: Feed,
        redistribute: Callable[[np.ndarray], None], *, gives_turn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane)
        self._feed = feed
        self._feed_writer = feed.buffer.writer(lanes.num_lanes)
        self._redistribute = redistribute
        self._gives_turn = gives_turn
        self._fed_at: int | None = None  # version of the predictor when the full slots were fed; None: none are kept

    def open(self) -> bool:
        """Begin new segments as `SegmentWriter` does.

        Full ones that are kept are handed over before, if it is time. Then the learner has its turn first: False.
        """
        if self._fed_at is None:
            return super().open()
        if self.arena.redistribution.version != self._fed_at:
            self._hand_over()
        return False

    def _deliver(self) -> None:
        feed_segments(self.arena, self._feed, self._feed_writer, self.slots)
        if self._gives_turn:
            self._fed_at = self.arena.redistribution.version
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        self._fed_at = None
        self._redistribute(self.slots)
        super()._deliver()


def feed_segments(arena: ExperienceArena, feed: Feed, writer: Writer, slots: np.ndarray) -> None:
    """Feed the segments that lie in slots (int64 ``[N]``) through a writer of the feed's buffer."""
    length, lanes = arena.shape.segment_length, arena.lane_of(slots)

    def steps(column: np.ndarray) -> np.ndarray:
        found: np.ndarray = column.reshape(-1, length + 1, *column.shape[1:])[:, :length][slots]
        return found

    columns = arena.columns
    writer.add(
        obs=steps(feed.observation.newest_of(columns["obs"])),
        ended=steps(columns["terminated"]) | steps(columns["truncated"]),
        **{name: steps(columns[name]) for name in feed.names if name not in ("obs", "ended")},
        lane=lanes,
        number=arena.slot_number[slots],
    )
    arena.redistributor_bell.ring()


class FeedWriter:
    """Feeds the steps of lanes that write no segments, piece by piece.

    Parameters
    ----------
    feed
        Where they go.
    lane_numbers
        The lanes' numbers among all lanes of the run, int64 ``[N]``.

    Attributes
    ----------
    length
        Most steps of a piece.
    """

    def __init__(self, feed: Feed, lane_numbers: np.ndarray) -> None:
        self._writer = feed.buffer.writer()
        self._observation = feed.observation
        self._lanes = lane_numbers
        self._numbers = np.zeros(len(lane_numbers), np.int64)
        found = feed.buffer.allocate(1)
        self._row = {name: found[name][0] for name in STEPS}
        self.length = len(self._row["valid"])

    def add(
        self, lane: int, steps: Mapping[str, np.ndarray], *, begins: bool, ends: bool, is_cut: bool = False
    ) -> None:
        """Feed successive steps of a lane.

        Parameters
        ----------
        lane
            Which of the lanes.
        steps
            obs, action and reward ``[T, ...]``, of at most `length` steps.
        begins, ends
            Whether the first of them begins an episode, and whether the last one ends it.
        is_cut
            Whether that end is a truncation.
        """
        row, count = self._row, len(steps["reward"])
        row["obs"][:count] = self._observation.newest_of(steps["obs"])
        for name in ("action", "reward"):
            row[name][:count] = steps[name]
        for name in FLAGS:
            row[name][:] = False
        row["valid"][:count] = True
        row["first"][0], row["ended"][count - 1], row["truncated"][count - 1] = begins, ends, is_cut
        self._numbers[lane] += 1
        self._writer.add(**row, lane=self._lanes[lane], number=self._numbers[lane])
