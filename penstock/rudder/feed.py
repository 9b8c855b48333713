"""Steps on their way to the redistributor: the feed, which nobody waits for, and episodes held until they are over.

What the redistributor does not read in time is overwritten.
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
"""Name of the weights block, in the arena, of the newest predictor; written by the redistributor."""
COLUMNS = (Column("redistributed_reward", (), "float32"), Column("redistributed_quality", (), "float32"))
"""Columns beside the original rewards, where both are learned from: redistributed rewards, and the quality of the
predictions behind them."""
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
    arena.bells[ROLE].ring()


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


UNTRUSTED = 0
"""Kind of a reward: the environment's, because predictions were not good enough."""
REDISTRIBUTED = 1
"""Kind of a reward: redistributed."""
OWN = 2
"""Kind of a reward: the environment's, because the episode is not known as a whole."""

Redistribute = Callable[[np.ndarray, np.ndarray, np.ndarray, bool], np.ndarray | None]
"""Returns the redistributed rewards of a whole episode, float32 ``[T]``; None: it keeps its own. Called with its
observations and actions ``[T, ...]`` as they lie in their columns, its rewards as they are learned from, float32
``[T]``, and whether it terminated."""


Hold = Callable[[np.ndarray, Mapping[str, np.ndarray]], "RedistributedEpisodes"]
"""Makes what holds the episodes of lanes: called with their numbers, int64 ``[N]``, and one step of them."""


class RedistributedEpisodes:
    """Holds each lane's episode until it is over, and writes it then. It stands where a buffer's `Writer` would.

    Its steps are fed to who predicts returns before.

    An episode of more than `max_steps` steps is written in pieces of so many, with its own rewards.

    Parameters
    ----------
    replay
        Where episodes go; its buffer has a field "kind", int8, of rewards.
    lane_numbers
        The lanes' numbers among all lanes of the run, int64 ``[N]``.
    step
        One step of every lane: arrays ``[N, ...]``, of which obs, action, reward and next_obs are used.
    feed
        Where steps go at once.
    bell
        Is rung when some have gone.
    redistribute
        Is asked for the rewards of each episode.
    max_steps
        Most steps that are held of a lane.
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
        self._fed = np.zeros(len(lane_numbers), np.int64)  # steps of what is held that were fed
        self._is_broken = np.zeros(len(lane_numbers), np.bool_)  # a part of the running episode is written already

    def add(self, *, terminated: np.ndarray, truncated: np.ndarray, mask: np.ndarray, **step: np.ndarray) -> None:
        """Take a step of the lanes in the mask, and write the episodes that it ended.

        Parameters
        ----------
        terminated, truncated, mask
            bool ``[N]``.
        **step
            obs, action, reward (as the environment gave it) and next_obs, ``[N, ...]``; `write_held` reads the last
            again.
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
        """Write what is held of every lane, with its own rewards."""
        is_held = self._episodes.lengths > 0
        self._feed_steps(np.zeros_like(is_held), np.zeros_like(is_held), is_held)
        for lane in is_held.nonzero()[0].tolist():
            self._write(lane, is_over=False)

    def _feed_steps(self, has_ended: np.ndarray, is_cut: np.ndarray, is_due: np.ndarray) -> None:
        """Feed the lanes' steps that are not fed yet: of lanes ``[N]`` that are due, and where they fill a piece."""
        held = self._episodes.lengths - self._fed
        for lane in (is_due | (held == self._feed.length)).nonzero()[0].tolist():
            if held[lane]:
                begins = self._fed[lane] == 0 and not self._is_broken[lane]
                steps = self._episodes.rows(lane, int(self._fed[lane]))
                self._feed.add(lane, steps, begins=bool(begins), ends=bool(has_ended[lane]), is_cut=bool(is_cut[lane]))
                self._fed[lane] += held[lane]
                self._bell.ring()

    def _write(self, lane: int, *, is_over: bool, is_terminated: bool = False) -> None:
        """Write what is held of a lane; a piece of an episode is cut behind its last step, as a truncation cuts it."""
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
