"""Stores of segments for replay: a row of a replay buffer holds a whole segment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.config import ConfigError, Source
from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape, row_name
from penstock.experience.run_replay import SHARED_FROM
from penstock.experience.segments import SegmentWriter
from penstock.replay import Elite, Field, Prioritized, ReplayBuffer, Reservoir, Uniform
from penstock.replay.settings import Sampler

FRAMES_SPARE = 1.05  # safety factor on the distinct frames of full rows: ends of episodes add a few
MOST_FRAMES = 4_096  # of a row that is stored frame by frame
FRAMES, PLACES, PLACES_DTYPE = "frames", "frame_places", "uint16"  # fields of stacks that are split into frames
Segments = dict[str, np.ndarray]
"""Columns of N segments ``[N, T + 1, ...]`` by name, and ``memory`` ``[N, S]``, ``lane`` ``[N]``, ``ids`` ``[N]``."""


@dataclass(frozen=True)
class FrameStacks:
    """Storage of a segment's stacked observations ``[R, k, ...]``, for segments that are stored whole.

    The first row has k new frames, each further row one. A row that begins an episode is padded with repetitions of its
    frame, or with one other frame, such as zeros. Thus ``R + k`` frames are enough.

    Attributes
    ----------
    num_rows, depth
        R and k.
    """

    num_rows: int
    depth: int

    @property
    def num_frames(self) -> int:
        """Largest number of distinct frames in a segment."""
        return self.num_rows + self.depth

    def pack(self, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Split the stacks of N segments into distinct frames.

        Parameters
        ----------
        obs
            ``[N, R, k, ...]``.

        Returns
        -------
        frames : ndarray
            ``[N, R + k, ...]``: distinct frames in order of appearance, then zeros.
        places : ndarray
            int64 ``[N, R, k]``: index of each stack's frames among them.

        Raises
        ------
        ValueError
            A segment has more than ``R + k`` distinct frames: its rows are not stacks of successive frames.
        """
        frames = np.zeros((len(obs), self.num_frames, *obs.shape[3:]), obs.dtype)
        places = np.empty((len(obs), self.num_rows, self.depth), np.int64)
        pixels = _as_words(obs.reshape(*obs.shape[:3], -1))
        follows = (pixels[:, 1:, :-1] == pixels[:, :-1, 1:]).all((2, 3))
        for number, stacks in enumerate(obs):
            self._pack_one(stacks, follows[number], frames[number], places[number])
        return frames, places

    def unpack(self, frames: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the stacks of N segments: the inverse of `pack`."""
        return frames[np.arange(len(frames))[:, None, None], places]

    def _pack_one(self, stacks: np.ndarray, follows: np.ndarray, frames: np.ndarray, places: np.ndarray) -> None:
        count = 0

        def keep(frame: np.ndarray) -> int:
            nonlocal count
            if count == len(frames):
                raise ValueError(
                    f"{self.num_rows} rows have more than {len(frames)} distinct frames: they are not stacks of "
                    f"{self.depth} successive ones"
                )
            frames[count] = frame
            count += 1
            return count - 1

        def find_or_keep(frame: np.ndarray) -> int:
            same = (place for place in range(count) if np.array_equal(frames[place], frame))
            found = next(same, None)
            return keep(frame) if found is None else found

        for row, stack in enumerate(stacks):
            if row and follows[row - 1]:
                places[row] = [*places[row - 1, 1:], keep(stack[-1])]
            else:
                places[row] = [find_or_keep(frame) for frame in stack]


def _as_words(array: np.ndarray) -> np.ndarray:
    """Return a view of the same bytes in words of eight, if the size allows, for faster comparison."""
    array = np.ascontiguousarray(array)
    return array.view(np.uint64) if array.shape[-1] * array.itemsize % 8 == 0 else array


@dataclass(frozen=True)
class SegmentStore:
    """Segments of one source, shared by all processes that the store is pickled to.

    Attributes
    ----------
    source
        Source of replay.
    count
        Segments of the source per batch.
    buffer
        Buffer, with a segment in each row.
    obs_shape
        Shape of a segment's observations, ``(T + 1, ...)``.
    stacks
        Storage of stacks by distinct frames; None: whole, or frame by frame by the buffer itself.
    """

    source: Source
    count: int
    buffer: ReplayBuffer
    obs_shape: tuple[int, ...]
    stacks: FrameStacks | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the source holds enough segments for learning to start."""
        return len(self.buffer) >= self.source.starts_at(self.count)

    def writer(self, lanes: int) -> StoreWriter:
        """Make the writer of one segment per lane at a time."""
        return StoreWriter(self, lanes)

    def sample(self) -> Segments:
        """Draw the segments of one batch."""
        return self._restored(self.buffer.sample(self.count))

    def read(
        self, rows: np.ndarray, ids: np.ndarray, fields: tuple[str, ...] | None = None
    ) -> tuple[Segments, np.ndarray]:
        """Read the segments in these rows, as `ReplayBuffer.read` does."""
        if self.stacks is not None and fields is not None and "obs" in fields:
            fields = *(field for field in fields if field != "obs"), FRAMES, PLACES
        found, is_there = self.buffer.read(rows, ids, fields=fields)
        return self._restored(found), is_there

    def _restored(self, found: Segments) -> Segments:
        if self.stacks is not None and FRAMES in found:
            found["obs"] = self.stacks.unpack(found.pop(FRAMES), found.pop(PLACES).astype(np.int64))
        elif "obs" in found:
            found["obs"] = found["obs"].reshape(-1, *self.obs_shape)
        return found


class StoreWriter:
    """Writer of whole segments, one per lane at a time."""

    def __init__(self, store: SegmentStore, lanes: int) -> None:
        self._writer = store.buffer.writer(lanes)
        self._stacks = store.stacks
        self._shapes = {name: array.shape[1:] for name, array in store.buffer.allocate(1).items()}
        self._shapes = {name: shape for name, shape in self._shapes.items() if name in store.buffer.fields}

    def add(self, segments: Segments) -> None:
        """Write the columns of N segments, by name."""
        if self._stacks is not None:
            frames, places = self._stacks.pack(segments["obs"])
            segments = segments | {FRAMES: frames, PLACES: places.astype(PLACES_DTYPE)}
        self._writer.add(**{name: segments[name].reshape(-1, *shape) for name, shape in self._shapes.items()})


def make_store(source: Source, count: int, shape: RunShape, seed: int) -> SegmentStore:
    """Make the store of a source.

    Parameters
    ----------
    source, count
        Source, and its segments per batch.
    shape
        Shape of the run.
    seed
        Seed of the draws.

    Raises
    ------
    MemoryError
        The store does not fit in memory; the message shows the arithmetic.
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
    obs_shape, dtype = (rows, *shape.observation.shape), shape.observation.dtype
    is_large = math.prod(shape.observation.shape) * np.dtype(dtype).itemsize >= SHARED_FROM
    fields = {row_name(column.name): Field((rows, *column.shape), column.dtype) for column in shape.step_columns()}
    stacks = None
    if is_large and keeps_newest:
        frames_of_row = (rows * obs_shape[1], *obs_shape[2:]) if is_stacked else obs_shape
        if frames_of_row[0] <= MOST_FRAMES:
            fields["obs"] = Field(frames_of_row, dtype, stack=0)
    elif is_large and is_stacked:  # the buffer itself would keep the newest frames, not those of the kept segments
        stacks = FrameStacks(rows, obs_shape[1])
        del fields["obs"]
        fields[FRAMES] = Field((stacks.num_frames, *obs_shape[2:]), dtype)
        fields[PLACES] = Field((rows, stacks.depth), PLACES_DTYPE)
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
    return SegmentStore(source, count, buffer, obs_shape, stacks)


class StoringSegmentWriter(SegmentWriter):
    """Writer that also puts full segments into stores.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    stores
        Stores of the segments.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, stores: Sequence[SegmentStore]
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane)
        self._writers = [store.writer(lanes.num_lanes) for store in stores]

    def _deliver(self) -> None:
        segments = segments_in(self.arena, self.slots)
        for writer in self._writers:
            writer.add(segments)
        super()._deliver()


def segments_in(arena: ExperienceArena, slots: np.ndarray) -> Segments:
    """Return the segments in slots (int64 ``[N]``)."""
    rows = arena.shape.rows_per_slot
    found = {
        row_name(name): column.reshape(-1, rows, *column.shape[1:])[slots] for name, column in arena.columns.items()
    }
    found["lane"] = arena.lane_of(slots)
    if arena.shape.state_size:
        found["memory"] = arena.slot_memory[slots]
    return found


def keep_segments(
    arena: ExperienceArena, stores: Sequence[SegmentStore], writers: dict[int, list[StoreWriter]], slots: np.ndarray
) -> None:
    """Put the segments in slots (int64 ``[N]``) into every store.

    `writers` keeps the writers of each lane from one call to the next, so that frames shared by a lane's segments are
    stored only once.
    """
    segments = segments_in(arena, slots)
    for place, lane in enumerate(arena.lane_of(slots).tolist()):
        if lane not in writers:
            writers[lane] = [store.writer(1) for store in stores]
        for writer in writers[lane]:
            writer.add({name: values[place : place + 1] for name, values in segments.items()})
