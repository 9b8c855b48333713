"""Segments that are kept to be learned from again: a row of a replay buffer holds a whole one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.config import ConfigError, Source
from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import Column, RunShape, row_name
from penstock.experience.run_replay import SHARED_FROM
from penstock.experience.segments import SegmentWriter
from penstock.replay import Elite, Field, Prioritized, ReplayBuffer, Reservoir, Uniform
from penstock.replay.settings import Sampler

FRAMES_SPARE = 1.05  # frames kept for each distinct one of full rows: the ends of episodes bring a few more
MOST_FRAMES = 4_096  # that a row may hold one by one
Segments = dict[str, np.ndarray]
"""Columns of N segments ``[N, T + 1, ...]`` by name, and ``memory`` ``[N, S]``, ``lane`` ``[N]``, ``ids`` ``[N]``."""


@dataclass(frozen=True)
class SegmentStore:
    """The segments of one source, shared by all processes that it travels to.

    Attributes
    ----------
    source
        What it is.
    count
        Segments of it in each batch.
    buffer
        Where they lie, a segment in each row.
    """

    source: Source
    count: int
    buffer: ReplayBuffer

    @property
    def is_ready(self) -> bool:
        """Whether learning may start, for all that this source holds."""
        return len(self.buffer) >= self.source.starts_at(self.count)


def make_store(source: Source, count: int, shape: RunShape, seed: int) -> SegmentStore:
    """Make the store of a source.

    Parameters
    ----------
    source, count
        What it is, and how many segments of it are in each batch.
    shape
        The run's numbers.
    seed
        Of what is drawn.

    Raises
    ------
    MemoryError
        It does not fit in memory; the message shows the arithmetic.
    """
    sampler: Sampler = Uniform()
    if source.kind == "reservoir":
        sampler = Reservoir()
    elif source.insertion == "elite":
        sampler = Elite(source.insertion_group)
    elif source.kind == "prioritized":
        sampler = Prioritized(source.alpha, source.beta, normalize="batch")
    rows = shape.rows_per_slot
    is_stacked = shape.observation.is_stacked
    keeps_newest = isinstance(sampler, Uniform | Prioritized)
    fields = {
        row_name(column.name): _field(column, rows, is_stacked=is_stacked, keeps_newest=keeps_newest)
        for column in shape.step_columns()
    }
    fields["lane"] = Field((), "int64")
    if shape.state_size:
        fields["memory"] = Field((shape.state_size,), "float32")
    has_frames = any(field.stack is not None for field in fields.values())
    frames = math.ceil(FRAMES_SPARE * source.capacity * shape.segment_length) + 2 * shape.num_lanes * rows
    try:
        buffer = ReplayBuffer(
            source.capacity, fields, sampler=sampler, seed=seed, disk=source.disk,
            frame_capacity=frames if has_frames else None,
        )  # fmt: skip
    except OSError as error:
        where = f"disk={source.disk!r}" if source.disk is not None else "no disk"
        raise ConfigError(f"replay source {source.kind!r} cannot be made, with {where}: {error}") from error
    except MemoryError as error:
        raise MemoryError(f"replay source {source.kind!r} of capacity={source.capacity:,} segments: {error}") from error
    return SegmentStore(source, count, buffer)


class StoringSegmentWriter(SegmentWriter):
    """Segments that are kept, besides, in every store when they are full.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    stores
        Where they are kept.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, stores: Sequence[SegmentStore]
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane)
        self._writers = [(store.buffer.writer(lanes.num_lanes), _shapes(store.buffer)) for store in stores]

    def _deliver(self) -> None:
        segments = segments_in(self.arena, self.slots)
        for writer, shapes in self._writers:
            writer.add(**{name: segments[name].reshape(-1, *shape) for name, shape in shapes.items()})
        super()._deliver()


def segments_in(arena: ExperienceArena, slots: np.ndarray) -> Segments:
    """Return the segments that lie in slots (int64 ``[N]``)."""
    rows = arena.shape.rows_per_slot
    found = {
        row_name(name): column.reshape(-1, rows, *column.shape[1:])[slots] for name, column in arena.columns.items()
    }
    found["lane"] = arena.lane_of(slots)
    if arena.shape.state_size:
        found["memory"] = arena.slot_memory[slots]
    return found


def _shapes(buffer: ReplayBuffer) -> dict[str, tuple[int, ...]]:
    return {name: buffer.allocate(1)[name].shape[1:] for name in buffer.fields}


def _field(column: Column, rows: int, *, is_stacked: bool, keeps_newest: bool) -> Field:
    """A field that holds a column of a segment. Large observations lie in memory once, stacks of them frame by frame.

    Not so where other segments than the newest are kept: the frames, of which the newest are, would not last as long.
    """
    shape, dtype = column.shape, column.dtype
    is_large = math.prod(shape) * np.dtype(dtype).itemsize >= SHARED_FROM
    if column.name == "obs" and is_large and keeps_newest:
        frames = (rows * shape[0], *shape[1:]) if is_stacked else (rows, *shape)
        if frames[0] <= MOST_FRAMES:
            return Field(frames, dtype, stack=0)
    return Field((rows, *shape), dtype)
