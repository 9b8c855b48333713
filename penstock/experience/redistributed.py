"""Transitions whose rewards are redistributed: each lane's episode is held until it is over, and written then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.feed import Feed, FeedWriter
from penstock.experience.open_episodes import OpenEpisodes
from penstock.experience.outbox import Rows, calls_in
from penstock.experience.run_replay import Replay
from penstock.experience.step_writer import StepWriter
from penstock.experience.transitions import TransitionWriter
from penstock.ipc import Doorbell, gather

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


class RedistributedEpisodes:
    """Holds each lane's episode until it is over, and writes it then; its steps are fed to who predicts returns before.

    An episode of more than `max_steps` steps is written in pieces of so many, with its own rewards.

    Parameters
    ----------
    replay
        Where episodes go; its buffer has a field "kind", int8, of rewards.
    lane_numbers
        The lanes' numbers among all lanes of the run, int64 ``[N]``.
    step
        One step of every lane: arrays ``[N, ...]``, of which obs, action and reward are held.
    feed
        Where steps go at once.
    bell
        Is rung when some have gone.
    redistribute
        Is asked for the rewards of each episode.
    max_steps
        Most steps that are held of a lane.
    """

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
        self._last = dict(step)
        self._fed = np.zeros(len(lane_numbers), np.int64)  # steps of what is held that were fed
        self._is_broken = np.zeros(len(lane_numbers), np.bool_)  # a part of the running episode is written already

    def add(
        self, step: Mapping[str, np.ndarray], terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray
    ) -> None:
        """Take a step of the lanes that are valid, and write the episodes that it ended.

        Parameters
        ----------
        step
            obs, action, reward (as the environment gave it) and next_obs, ``[N, ...]``; read again by `write_held`.
        terminated, truncated, valid
            bool ``[N]``.
        """
        self._last = dict(step)
        self._episodes.add(step, valid.nonzero()[0])
        has_ended = valid & (terminated | truncated)
        is_long = ~has_ended & (self._episodes.lengths >= self._max_steps)
        self._feed_steps(has_ended, has_ended | is_long)
        for lane in has_ended.nonzero()[0].tolist():
            self._write(lane, is_over=True, is_terminated=bool(terminated[lane]))
        for lane in is_long.nonzero()[0].tolist():
            self._write(lane, is_over=False)

    def write_held(self) -> None:
        """Write what is held of every lane, with its own rewards."""
        is_held = self._episodes.lengths > 0
        self._feed_steps(np.zeros_like(is_held), is_held)
        for lane in is_held.nonzero()[0].tolist():
            self._write(lane, is_over=False)

    def _feed_steps(self, has_ended: np.ndarray, is_due: np.ndarray) -> None:
        """Feed the lanes' steps that are not fed yet: of lanes ``[N]`` that are due, and where they fill a piece."""
        held = self._episodes.lengths - self._fed
        for lane in (is_due | (held == self._feed.length)).nonzero()[0].tolist():
            if held[lane]:
                begins = self._fed[lane] == 0 and not self._is_broken[lane]
                steps = self._episodes.rows(lane, int(self._fed[lane]))
                self._feed.add(lane, steps, begins=bool(begins), ends=bool(has_ended[lane]))
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
            next_obs=np.concatenate([obs[1:], self._last["next_obs"][lane, np.newaxis]]),
            kind=np.full(len(own), kind, np.int8),
            terminated=ends & is_terminated, truncated=ends & (not is_terminated),
        )  # fmt: skip


class RedistributedWriter(StepWriter):
    """Writes an episode's transitions when the episode is over.

    What is held when learning could begin and nothing is written yet is written with its own rewards.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`.
    feed, redistribute, max_steps
        As for `RedistributedEpisodes`.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay,
        *, feed: Feed, redistribute: Redistribute, max_steps: int,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action")
        self._step["next_obs"] = np.zeros_like(self._step["obs"])
        self._episodes = RedistributedEpisodes(
            replay, self.lane_numbers, self._step, feed=feed, bell=arena.redistributor_bell,
            redistribute=redistribute, max_steps=max_steps,
        )  # fmt: skip

    def record(self) -> None:
        """Take what the lanes' last step brought, and write the episodes that it ended."""
        lanes, step = self.lanes, self._step
        for name, column in self._columns.items():
            gather(column, self.rows, step[name])
        self._move_on()
        gather(self.arena.columns["obs"], self.rows, step["next_obs"])
        if lanes.finals.size:
            lanes.write_finals(step["next_obs"], lanes.finals)
        self._episodes.add({**step, "reward": lanes.reward}, lanes.terminated, lanes.truncated, lanes.valid)
        self._is_written()

    def _is_let_in(self, num_steps: int) -> bool:
        """Whether the rate limiter has room; where learning waits for a first row, what is held is written for it."""
        if self._replay.limiter.try_insert(num_steps):
            return True
        if not len(self._replay.buffer):
            self._episodes.write_held()
        return not len(self._replay.buffer)


class NumberedWriter(TransitionWriter):
    """Writes each transition on a node as the environment gave it, with its lane's number among all of the run."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._step["lane"] = arena.shape.first_lane + self.lane_numbers


class RedistributedInbox:
    """Does at home with the steps of a node's lanes what `RedistributedWriter` does with those of lanes at home.

    Parameters
    ----------
    replay
        The run's.
    make
        Makes what holds the episodes of some lanes: called with their numbers and one step of them.
    """

    def __init__(
        self, replay: Replay, make: Callable[[np.ndarray, Mapping[str, np.ndarray]], RedistributedEpisodes]
    ) -> None:
        self._replay = replay
        self._make = make
        self._episodes: dict[int, RedistributedEpisodes] = {}

    def add(self, calls: Rows) -> None:
        """Take calls, ``[K, ...]`` by field. What a writer that is gone had not finished is never finished."""
        for number, call in calls_in(calls):
            lane_numbers, signals = call.pop("lane"), [call.pop(name) for name in ("terminated", "truncated", "mask")]
            if number not in self._episodes:
                self._episodes[number] = self._make(lane_numbers, call)
            self._episodes[number].add(call, *signals)
        limiter = self._replay.limiter
        if not len(self._replay.buffer) and limiter.inserts >= limiter.min_size:  # learning waits for a first row
            for episodes in self._episodes.values():
                episodes.write_held()
