"""An environment that knows its lane, and pays by it."""

import gymnasium
import numpy as np


class ToldItsLane(gymnasium.Env):
    """Two steps: the higher its lane, the more each of them pays, and the less wealth is reported."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, lane):
        self.lane = lane

    def reset(self, *, seed=None, options=None):
        self.tick = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.tick += 1
        info = {"metrics": {"wealth": -float(self.lane)}}
        return np.zeros(1, np.float32), 10.0**self.lane / 2, self.tick == 2, False, info
