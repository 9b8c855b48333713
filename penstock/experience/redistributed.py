"""Transitions whose rewards are redistributed: each lane's episode is held until it is over, and written then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.feed import Feed, FeedWriter
from penstock.experience.open_episodes import OpenEpisodes
from penstock.experience.run_replay import Replay
from penstock.experience.step_writer import StepWriter
from penstock.ipc import gather

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


class RedistributedWriter(StepWriter):
    """Writes an episode's transitions when the episode is over, and feeds its steps on the way to who predicts returns.

    An episode of more than `max_steps` steps is written in pieces of so many, with its own rewards. So is what is held
    when learning could begin and nothing is written yet.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`; the replay buffer has a field "kind", int8, of rewards.
    feed
        Where steps go at once.
    redistribute
        Is asked for the rewards of each episode.
    max_steps
        Most steps that are held of a lane.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay,
        *, feed: Feed, redistribute: Redistribute, max_steps: int,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action")
        self._step["next_obs"] = np.zeros_like(self._step["obs"])
        self._whole = replay.buffer.writer()
        self._feed = FeedWriter(feed, self.lane_numbers)
        self._redistribute = redistribute
        self._max_steps = max_steps
        self._episodes = OpenEpisodes(lanes.num_lanes, self._step)
        self._fed = np.zeros(lanes.num_lanes, np.int64)  # steps of what is held that were fed
        self._is_broken = np.zeros(lanes.num_lanes, np.bool_)  # a part of the running episode is written already

    def record(self) -> None:
        """Take what the lanes' last step brought, and write the episodes that it ended."""
        lanes, step = self.lanes, self._step
        for name, column in self._columns.items():
            gather(column, self.rows, step[name])
        self._move_on()
        gather(self.arena.columns["obs"], self.rows, step["next_obs"])
        if lanes.finals.size:
            lanes.write_finals(step["next_obs"], lanes.finals)
        self._episodes.add({**step, "reward": lanes.reward}, lanes.valid.nonzero()[0])
        has_ended = lanes.valid & (lanes.terminated | lanes.truncated)
        is_long = ~has_ended & (self._episodes.lengths >= self._max_steps)
        self._feed_steps(has_ended, has_ended | is_long)
        for lane in has_ended.nonzero()[0].tolist():
            self._write(lane, is_over=True)
        for lane in is_long.nonzero()[0].tolist():
            self._write(lane, is_over=False)
        self._is_written()

    def _is_let_in(self, num_steps: int) -> bool:
        """Whether the rate limiter has room; where learning waits for a first row, what is held is written for it."""
        if self._replay.limiter.try_insert(num_steps):
            return True
        if not len(self._replay.buffer):
            is_held = self._episodes.lengths > 0
            self._feed_steps(np.zeros_like(is_held), is_held)
            for lane in is_held.nonzero()[0].tolist():
                self._write(lane, is_over=False)
        return not len(self._replay.buffer)

    def _feed_steps(self, has_ended: np.ndarray, is_due: np.ndarray) -> None:
        """Feed the lanes' steps that are not fed yet: of lanes ``[N]`` that are due, and where they fill a piece."""
        held = self._episodes.lengths - self._fed
        for lane in (is_due | (held == self._feed.length)).nonzero()[0].tolist():
            if held[lane]:
                begins = self._fed[lane] == 0 and not self._is_broken[lane]
                steps = self._episodes.rows(lane, int(self._fed[lane]))
                self._feed.add(lane, steps, begins=bool(begins), ends=bool(has_ended[lane]))
                self._fed[lane] += held[lane]
                self.arena.redistributor_bell.ring()

    def _write(self, lane: int, *, is_over: bool) -> None:
        """Write what is held of a lane; a piece of an episode is cut behind its last step, as a truncation cuts it."""
        steps = self._episodes.take(lane)
        obs, own = steps["obs"], steps["reward"]
        self._replay.scale(own, own)
        is_terminated = is_over and bool(self.lanes.terminated[lane])
        is_whole = is_over and not self._is_broken[lane]
        reward = self._redistribute(obs, steps["action"], own, is_terminated) if is_whole else None
        kind = (UNTRUSTED if is_whole else OWN) if reward is None else REDISTRIBUTED
        self._is_broken[lane], self._fed[lane] = not is_over, 0
        ends = np.zeros(len(own), np.bool_)
        ends[-1] = True
        self._whole.add(
            obs=obs, action=steps["action"], reward=own if reward is None else reward,
            next_obs=np.concatenate([obs[1:], self._step["next_obs"][lane, np.newaxis]]),
            kind=np.full(len(own), kind, np.int8),
            terminated=ends & is_terminated, truncated=ends & (not is_terminated),
        )  # fmt: skip
