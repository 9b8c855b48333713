"""CartPole without its two velocities, so that the best action depends on earlier observations.

    penstock train r2d2 --env bench/environments/hidden_cartpole.py:HiddenCartPole --total-steps 300000
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit


class HiddenCartPole(gymnasium.Env[np.ndarray, int]):
    """CartPole-v1 that returns only the cart's position and the pole's angle, float32 ``[2]``."""

    def __init__(self) -> None:
        self._env = TimeLimit(gymnasium.make("CartPole-v1").unwrapped, 500)
        space = self._env.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        self.observation_space = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)
        self.action_space = self._env.action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode of at most 500 steps."""
        observation, info = self._env.reset(seed=seed, options=options)
        return observation[[0, 2]], info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Push the cart left or right."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation[[0, 2]], float(reward), terminated, truncated, info
