"""Environments of a user that break: used by name and by file, as a user would."""

import gymnasium
import numpy as np

from penstock.envs.making import lane_seed


class Counting(gymnasium.Env):
    """Counts its steps; episodes never end."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.seed = None
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        self.seed = seed if self.seed is None else self.seed
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 0.0, False, False, {}


class BreaksInLaneThree(Counting):
    """Raises in step 2000 of lane 3 of a run with seed 0."""

    def step(self, action):
        answer = super().step(action)
        if self.steps == 2_000 and self.seed == lane_seed(0, 3, 0):
            1 / 0  # noqa: B018
        return answer


class ResetBreaksInLaneThree(Counting):
    """Raises in the first reset of lane 3 of a run with seed 0."""

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed, options=options)
        if self.seed == lane_seed(0, 3, 0):
            1 / 0  # noqa: B018
        return answer
