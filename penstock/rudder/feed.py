"""The feed of steps for the redistributor, and episodes that are held until they are over.

Segments that the redistributor does not read in time are overwritten: no role waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.envs.spaces import ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import Column, RunShape
from penstock.experience.open_episodes import OpenEpisodes
from penstock.experience.run_replay import Replay
from penstock.ipc import Doorbell
from penstock.replay import Field, ReplayBuffer
from penstock.replay.writer import Writer
from penstock.rudder.settings import ROLE

PREDICTOR = "predictor"
"""Name of the newest predictor's weights block in the arena; written by the redistributor."""
COLUMNS = (Column("redistributed_reward", (), "float32"), Column("redistributed_quality", (), "float32"))
"""Columns next to the original rewards, if both are learned from: redistributed rewards, and the quality of the
predictions behind them."""
ROUNDS = 8  # capacity of the feed, in segments of each lane
FLAGS = ("first", "ended", "truncated", "valid")
STEPS = ("obs", "action", "reward", *FLAGS)
EXPECTED = "value"  # column of values predicted when each step's action was chosen


@dataclass(frozen=True)
class Feed:
    """The last segments of all lanes, in memory that processes share.

    Attributes
    ----------
    buffer
        Buffer with a segment in each row: obs, action and reward ``[T, ...]``, the flags first, ended, truncated and
        valid ``[T]``, the lane's number, and the segment's number in the lane; with recorded values also value ``[T]``.
    observation
        Observations of the lanes; for stacks of frames, only the newest frame is kept.
    names
        Names of the columns of steps.
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
            Shape of the run.
        length
            T; None: the segment length.

        Raises
        ------
        MemoryError
            The feed does not fit in memory; the message shows the arithmetic.
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
        """Make a reader that begins with all segments in the feed."""
        return FeedReader(self)


class FeedReader:
    """Reader that yields each segment once, in the order of its lane, unless it was overwritten.

    Parameters
    ----------
    feed
        Feed to read.
    """

    def __init__(self, feed: Feed) -> None:
        self._buffer = feed.buffer
        self._names = feed.names
        self._read = np.empty(0, np.int64)  # ids of read segments in the buffer

    def take(self) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yield the lane, number and columns ``[T, ...]`` of each new segment."""
        rows, ids = self._buffer.live()
        is_new = ~np.isin(ids, self._read)
        self._read = ids
        if not is_new.any():
            return
        found, is_there = self._buffer.read(rows[is_new], ids[is_new])
        for n in np.flatnonzero(is_there).tolist():
            segment = {name: found[name][n] for name in self._names}
            yield int(found["lane"][n]), int(found["number"][n]), segment


def feed_segments(arena: ExperienceArena, feed: Feed, writer: Writer, slots: np.ndarray) -> None:
    """Feed the segments in slots (int64 ``[N]``) through a writer of the feed's buffer."""
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
    arena.bells[ROLE].ring()


class FeedWriter:
    """Writer of pieces of episodes, for lanes that write no segments.

    Parameters
    ----------
    feed
        Feed to write to.
    lane_numbers
        Numbers of the lanes in the run, int64 ``[N]``.

    Attributes
    ----------
    length
        Largest number of steps of a piece.
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
            Index of the lane.
        steps
                obs, action and reward ``[T, ...]``, of at most `length` steps.
        begins, ends
            Whether the first step begins an episode, and whether the last one ends it.
        is_cut
            Whether the episode ends by truncation.
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


UNTRUSTED = 0
"""Kind of a reward: the environment's, with predictions of quality 0."""
REDISTRIBUTED = 1
"""Kind of a reward: redistributed."""
OWN = 2
"""Kind of a reward: the environment's, in a part of an episode."""

Redistribute = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], np.ndarray | None]
"""Function of a whole episode's observations and actions ``[T, ...]`` as in their columns, scaled and clipped rewards,
float32 ``[T]``, and whether it terminated. Returns redistributed rewards, float32 ``[T]``, or None to keep them."""

Hold = Callable[[np.ndarray, Mapping[str, np.ndarray]], "RedistributedEpisodes"]
"""Constructor of the holder of lanes' episodes, from the lanes' numbers, int64 ``[N]``, and one step of each."""


class RedistributedEpisodes:
    """Holds each lane's episode until it is over, and then writes it, in place of a `Writer` of the buffer.

    Steps are fed to the redistributor while the episode is held. An episode of more than `max_steps` steps is written
    in pieces of that length, with its own rewards.

    Parameters
    ----------
    replay
        Replay of the run. Its buffer has a field "kind", int8, for the kind of each reward.
    lane_numbers
        Numbers of the lanes in the run, int64 ``[N]``.
    step
        One step of every lane: arrays ``[N, ...]`` with at least obs, action, reward and next_obs.
    feed, bell
        Feed and bell of the redistributor.
    redistribute
        Function that redistributes the rewards of an episode.
    max_steps
        Largest number of held steps per lane.
    """

    written = np.empty(0, np.int64)

    def __init__(
        self, replay: Replay, lane_numbers: np.ndarray, step: Mapping[str, np.ndarray],
        *, feed: Feed, bell: Doorbell, redistribute: Redistribute, max_steps: int,
    ) -> None:  # fmt: skip
        self._replay = replay
        self._writer = replay.buffer.writer()
        self._feed, self._bell = FeedWriter(feed, lane_numbers), bell
        self._redistribute = redistribute
        self._max_steps = max_steps
        self._episodes = OpenEpisodes(len(lane_numbers), step)
        self._next_obs = step["next_obs"]
        self._fed = np.zeros(len(lane_numbers), np.int64)  # held steps that were fed
        self._is_broken = np.zeros(len(lane_numbers), np.bool_)  # a part of the running episode was already written

    def add(self, *, terminated: np.ndarray, truncated: np.ndarray, mask: np.ndarray, **step: np.ndarray) -> None:
        """Add a step of the lanes in the mask, and write the episodes that it ended.

        Parameters
        ----------
        terminated, truncated, mask
            Ends of episodes, and mask of the lanes, bool ``[N]``.
        **step
            obs, action, the environment's reward, and next_obs, ``[N, ...]``; `write_held` rereads the last next_obs.
        """
        self._next_obs = step["next_obs"]
        self._episodes.add(step, mask.nonzero()[0])
        has_ended = mask & (terminated | truncated)
        is_long = ~has_ended & (self._episodes.lengths >= self._max_steps)
        self._feed_steps(has_ended, has_ended & ~terminated, has_ended | is_long)
        for lane in has_ended.nonzero()[0].tolist():
            self._write(lane, is_over=True, is_terminated=bool(terminated[lane]))
        for lane in is_long.nonzero()[0].tolist():
            self._write(lane, is_over=False)

    def write_held(self) -> None:
        """Write the held steps of every lane, with their own rewards."""
        is_held = self._episodes.lengths > 0
        self._feed_steps(np.zeros_like(is_held), np.zeros_like(is_held), is_held)
        for lane in is_held.nonzero()[0].tolist():
            self._write(lane, is_over=False)

    def _feed_steps(self, has_ended: np.ndarray, is_cut: np.ndarray, is_due: np.ndarray) -> None:
        """Feed the held steps of lanes ``[N]`` that are due, and those that fill a piece."""
        held = self._episodes.lengths - self._fed
        for lane in (is_due | (held == self._feed.length)).nonzero()[0].tolist():
            if held[lane]:
                begins = self._fed[lane] == 0 and not self._is_broken[lane]
                steps = self._episodes.rows(lane, int(self._fed[lane]))
                self._feed.add(lane, steps, begins=bool(begins), ends=bool(has_ended[lane]), is_cut=bool(is_cut[lane]))
                self._fed[lane] += held[lane]
                self._bell.ring()

    def _write(self, lane: int, *, is_over: bool, is_terminated: bool = False) -> None:
        """Write the held steps of a lane; a piece of an episode ends as if truncated."""
        steps = self._episodes.take(lane)
        obs, own = steps["obs"], steps["reward"]
        self._replay.scale(own, own)
        is_whole = is_over and not self._is_broken[lane]
        reward = self._redistribute(obs, steps["action"], own, is_terminated) if is_whole else None
        kind = (UNTRUSTED if is_whole else OWN) if reward is None else REDISTRIBUTED
        self._is_broken[lane], self._fed[lane] = not is_over, 0
        ends = np.zeros(len(own), np.bool_)
        ends[-1] = True
        self._writer.add(
            obs=obs, action=steps["action"], reward=own if reward is None else reward,
            next_obs=np.concatenate([obs[1:], self._next_obs[lane, np.newaxis]]),
            kind=np.full(len(own), kind, np.int8),
            terminated=ends & is_terminated, truncated=ends & (not is_terminated),
        )  # fmt: skip
