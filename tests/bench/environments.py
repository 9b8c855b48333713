"""Environments that take time, or fail."""

import time

import gymnasium
import numpy as np


class Sleeping(gymnasium.Env):
    """Waits for two milliseconds in every step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,))
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        time.sleep(0.002)
        return np.zeros(3, np.float32), 0.0, False, False, {}


class Breaking(Sleeping):
    """Fails in its first step."""

    def step(self, action):
        raise OSError("the simulator is gone")
