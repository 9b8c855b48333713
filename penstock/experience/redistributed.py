"""Transitions whose rewards are redistributed: each lane's episode is held until it is over, and written then."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.feed import Feed, FeedWriter
from penstock.experience.open_episodes import OpenEpisodes
from penstock.experience.outbox import Inbox, Rows
from penstock.experience.run_replay import Replay
from penstock.experience.transitions import TransitionWriter, give_priorities
from penstock.ipc import Doorbell

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


class RewardsAsTheyAreWriter(TransitionWriter):
    """Hands each transition on with its reward as the environment gave it: who holds the episode makes it another."""

    def _settle_reward(self) -> None:
        self._step["reward"][...] = self.lanes.reward


class RedistributedWriter(RewardsAsTheyAreWriter):
    """Writes an episode's transitions when the episode is over.

    What is held when learning could begin and nothing is written yet is written with its own rewards.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`.
    hold
        Makes what holds the lanes' episodes.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay, hold: Hold
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._writer = hold(self.lane_numbers, self._step)

    def _is_let_in(self, num_steps: int) -> bool:
        """Whether the rate limiter has room; where learning waits for a first row, what is held is written for it."""
        if self._replay.limiter.try_insert(num_steps):
            return True
        if not len(self._replay.buffer):
            self._writer.write_held()
        return not len(self._replay.buffer)


class NumberedWriter(RewardsAsTheyAreWriter):
    """Writes each transition on a node, with its lane's number among all of the run."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._step["lane"] = arena.shape.first_lane + self.lane_numbers


class RedistributedInbox(Inbox):
    """Does at home with the steps of a node's lanes what `RedistributedWriter` does with those of lanes at home.

    Parameters
    ----------
    replay
        The run's.
    hold
        Makes what holds the episodes of some lanes.
    """

    _writers: dict[int, RedistributedEpisodes]

    def __init__(self, replay: Replay, hold: Hold) -> None:
        super().__init__(replay, give_priorities)
        self._hold = hold

    def add(self, calls: Rows) -> None:
        """Take calls, ``[K, ...]`` by field; where learning waits for a first row, write what is held for it."""
        super().add(calls)
        limiter = self._replay.limiter
        if not len(self._replay.buffer) and limiter.inserts >= limiter.min_size:
            for episodes in self._writers.values():
                episodes.write_held()

    def _writer_of(self, call: Rows) -> RedistributedEpisodes:
        return self._hold(call["lane"], call)
