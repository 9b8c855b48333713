"""Hindsight: transitions are written, and each finished episode again with goals that it achieved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.goals import Goals
from penstock.envs.single import SingleLanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.open_episodes import OpenEpisodes
from penstock.experience.run_replay import Replay, TransitionWriter
from penstock.replay.hindsight import achieving_steps


class HindsightWriter(TransitionWriter):
    """Writes transitions, and relabels each episode when it ends (Andrychowicz et al. 2017, arXiv:1707.01495).

    A relabelled transition has another desired goal in both observations, one that the episode achieved, with the
    reward and termination that the lane's environment computes for it. All else is unchanged.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`; the replay buffer is of single steps.
    strategy, goals_per_step
        As for `achieving_steps`.
    seed
        Seed of the draw of goals, together with the number of the group's first lane in the run.

    Raises
    ------
    ValueError
        The lanes have no goals, or are not single environments with a ``compute_reward``.
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
        self._rng = np.random.default_rng([seed, arena.shape.first_lane + first_lane])
        self._episodes = OpenEpisodes(lanes.num_lanes, self._step)
        self._infos: list[list[Mapping[str, Any]]] = [[] for _ in range(lanes.num_lanes)]
        self._relabelled = replay.row_writer(lanes.num_lanes, goals_per_step)

    def record(self) -> None:
        """Write the transitions of the lanes' last step, and the relabelled episodes that it ended."""
        super().record()
        lanes = self._single_lanes
        reward = {"reward": lanes.reward}  # the environment's own
        valid = lanes.valid.nonzero()[0]
        self._episodes.add({**self._step, **reward}, valid)
        for lane in valid.tolist():
            self._infos[lane].append(dict(lanes.infos[lane]))
        for lane in (lanes.terminated | lanes.truncated).nonzero()[0].tolist():
            self._relabel(lane)
        self._relabelled.send_due(len(valid))

    def _relabel(self, lane: int) -> None:
        """Write the episode that has just ended in a lane, with goals that it achieved."""
        episode, infos = self._episodes.take(lane), self._infos[lane]
        self._infos[lane] = []
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
