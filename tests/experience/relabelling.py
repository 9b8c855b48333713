"""Goal environments with a writer that relabels, and what lies in the buffer after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from penstock.envs.goals import Goals
from penstock.envs.single import SingleLanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.hindsight import HindsightWriter
from penstock.experience.run_replay import Replay, transition_fields
from penstock.replay import NStep, RateLimiter, ReplayBuffer, Uniform
from tests.envs.goals import SPACES, goal_of, place_at
from tests.experience.writing import run_shape

GAMMA = 0.9

Key = tuple[int, int, int, int, float, float, int]
"""Lane, episode, step and action of a transition, its reward, its discount, and the place that was meant."""


class Relabelling:
    """Goal environments with their writer, and the replay that they write to; the test chooses actions."""

    def __init__(
        self, envs: Sequence[gymnasium.Env], *, strategy: str = "future", goals_per_step: int = 4, seed: int = 0,
        sampler: Any = None, mask_is_in_info: bool = False, **numbers: Any,
    ) -> None:  # fmt: skip
        seeds = list(range(len(envs)))
        self.lanes = SingleLanes(envs, seeds, name="places", first_lane=10, mask_is_in_info=mask_is_in_info)
        observation = self.lanes.observation
        shape = run_shape(
            num_envs_per_worker=len(envs), segment_length=1, observation=observation, action=self.lanes.action
        )
        self.arena = ExperienceArena.create(shape)
        self.arena.control[Control.GOAL] = 10**9
        fields = transition_fields(observation, self.lanes.action, with_values=False)
        buffer = ReplayBuffer(10_000, fields, sampler=sampler or Uniform(), n_step=NStep(1, GAMMA))
        self.replay = Replay(buffer, RateLimiter(1.0, 10**6), 1, 1.0, **numbers)
        self.writer = HindsightWriter(
            self.arena, 0, self.lanes, 0, self.replay, strategy=strategy, goals_per_step=goals_per_step, seed=seed
        )
        self.goals = Goals(observation)
        self.num_steps = [0] * len(envs)
        self.lanes.reset()

    def play(self, num_rows: int) -> Relabelling:
        for _ in range(num_rows):
            assert self.writer.open()
            columns, rows = self.arena.columns, self.writer.rows
            columns["action"][rows] = [self.action_at(*seen) for seen in self.seen(columns["obs"][rows])]
            self.lanes.step(columns["action"][rows])
            self.writer.record()
            self.num_steps = [count + int(valid) for count, valid in zip(self.num_steps, self.lanes.valid, strict=True)]
        return self

    @staticmethod
    def action_at(tag: int, episode: int, count: int) -> int:
        return (31 * episode + 17 * count + 7 * tag) // 3 % 2

    def seen(self, obs: np.ndarray) -> list[list[int]]:
        """Lane, episode and step of observations."""
        (part,) = (part for part in self.lanes.observation.parts if part.path == "observation")
        return np.ascontiguousarray(obs[:, part.offset : part.offset + 12]).view(np.float32).astype(int).tolist()

    def written(self) -> Counter[Key]:
        """How often each transition lies in the buffer; both observations are right but for the goal, which is one."""
        batch = self.replay.buffer.get_all()
        obs, next_obs, space = batch["obs"], batch["next_obs"], SPACES["numbers"]
        found: Counter[Key] = Counter()
        for n, (lane, episode, count) in enumerate(self.seen(obs)):
            assert self.seen(next_obs[n : n + 1]) == [[lane, episode, count + 1]]
            for rows, step in ((obs, count), (next_obs, count + 1)):
                at = goal_of(space, place_at(lane, episode, step))
                assert np.array_equal(self.goals.achieved(rows)[n], at)
            meant, after = (self.goals.desired(rows)[n] for rows in (obs, next_obs))
            assert np.array_equal(meant, after)
            reward, discount = (round(float(batch[name][n]), 5) for name in ("reward", "discount"))
            found[lane, episode, count, int(batch["action"][n]), reward, discount, round(4 * float(meant[0]))] += 1
        return found
