"""Hindsight: transitions written as they come, and each ended episode again as if reached goals had been meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.envs.goals import Goals
from penstock.envs.single import SingleLanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.run_replay import Replay
from penstock.experience.transitions import TransitionWriter
from penstock.replay.hindsight import achieving_steps

FIRST_LENGTH = 64  # steps that an episode has room for before any has been longer


class HindsightWriter(TransitionWriter):
    """Writes transitions, and relabels each episode when it ends (Andrychowicz et al. 2017, arXiv:1707.01495).

    A relabelled transition has another desired goal in both observations, one that the episode achieved, with the
    reward and termination that the lane's environment computes for it. All else is as it was.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`; the replay buffer is of single steps.
    strategy, goals_per_step
        As for `achieving_steps`.
    seed
        With `first_lane`, of the draw of goals.

    Raises
    ------
    ValueError
        The lanes have no goals, or are no single environments with a ``compute_reward``.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: SingleLanes, first_lane: int, replay: Replay,
        *, strategy: str, goals_per_step: int, seed: int,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._goals = Goals(lanes.observation)
        self._rules = lanes.goal_rules()
        lanes.show_finals()
        self._single_lanes = lanes
        self._strategy, self._goals_per_step = strategy, goals_per_step
        self._rng = np.random.default_rng([seed, first_lane])
        self._episodes = OpenEpisodes(lanes.num_lanes, self._step)
        self._relabelled = replay.buffer.writer()

    def record(self) -> None:
        """Write what the lanes' last step brought, and the episodes that it ended once more."""
        super().record()
        lanes = self._single_lanes
        reward = {"reward": lanes.reward}  # as the environment gave it
        self._episodes.add({**self._step, **reward}, lanes.infos, lanes.valid.nonzero()[0])
        for lane in (lanes.terminated | lanes.truncated).nonzero()[0].tolist():
            self._relabel(lane)

    def _relabel(self, lane: int) -> None:
        """Write the episode that has just ended in a lane, with goals that it achieved."""
        episode, infos = self._episodes.take(lane)
        rules, goals, length = self._rules[lane], self._goals, len(infos)
        obs = episode["obs"]
        next_obs = np.concatenate([obs[1:], self._step["next_obs"][lane, np.newaxis]])
        rules.require_own_rewards(episode["reward"], goals.achieved(next_obs), goals.desired(next_obs), infos)
        terminated = np.zeros(length, np.bool_)
        terminated[-1] = self.lanes.terminated[lane]

        achieved_at = achieving_steps(self._rng, self._strategy, length, self._goals_per_step)
        meant = goals.achieved(next_obs)[achieved_at.ravel()]
        steps = np.tile(np.arange(length), len(achieved_at))
        obs, next_obs = obs[steps], next_obs[steps]
        for rows in (obs, next_obs):
            goals.desired(rows)[...] = meant
        question = goals.achieved(next_obs), meant, [infos[step] for step in steps.tolist()]
        reward = rules.rewards(*question).astype(np.float32)
        self._replay.scale(reward, reward)
        computed = rules.terminations(*question)
        self._relabelled.add(
            obs=obs, action=episode["action"][steps], reward=reward, next_obs=next_obs,
            terminated=terminated[steps] if computed is None else computed,
        )  # fmt: skip
        self._relabelled.end_episode()


class OpenEpisodes:
    """The running episode of each lane, as far as it has come. Memory is for the longest so far, times the lanes.

    Parameters
    ----------
    num_lanes
        N.
    step
        One step of every lane: arrays ``[N, ...]``, of which obs, action and reward are kept.
    """

    def __init__(self, num_lanes: int, step: Mapping[str, np.ndarray]) -> None:
        self._values = {
            name: np.zeros((num_lanes, FIRST_LENGTH, *step[name].shape[1:]), step[name].dtype)
            for name in ("obs", "action", "reward")
        }
        self._infos: list[list[Mapping[str, Any]]] = [[] for _ in range(num_lanes)]
        self._lengths = np.zeros(num_lanes, np.int64)

    def add(self, step: Mapping[str, np.ndarray], infos: Sequence[Mapping[str, Any]], lanes: np.ndarray) -> None:
        """Add the last step of some lanes, int64 ``[K]``; everything is copied, of infos the outermost dict."""
        if self._lengths.max() == self._values["reward"].shape[1]:
            for name, values in self._values.items():
                self._values[name] = np.concatenate([values, np.zeros_like(values)], axis=1)
        for name, values in self._values.items():
            values[lanes, self._lengths[lanes]] = step[name][lanes]
        self._lengths[lanes] += 1
        for lane in lanes.tolist():
            self._infos[lane].append(dict(infos[lane]))

    def take(self, lane: int) -> tuple[dict[str, np.ndarray], list[Mapping[str, Any]]]:
        """Return a lane's episode, arrays ``[T, ...]`` that hold until the next `add`, and its infos; it is over."""
        length, infos = int(self._lengths[lane]), self._infos[lane]
        self._lengths[lane], self._infos[lane] = 0, []
        return {name: values[lane, :length] for name, values in self._values.items()}, infos
