"""Bit flipping: the goal environment of the paper on hindsight (arXiv:1707.01495, section 3.1).

    penstock train dqn --env bench/environments/bit_flipping.py:BitFlipping --preset goals

This takes a few minutes on two cores.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiBinary

Observation = dict[str, np.ndarray]


class BitFlipping(gymnasium.Env[Observation, int]):
    """Bits are flipped one by one until they equal the goal; state and goal are drawn uniformly.

    The reward is 0 for the flip that reaches the goal and ends the episode, and -1 for every other. After `bits` flips
    the episode is truncated. Chance reaches one of ``2 ** bits`` goals within `bits` flips.

    Parameters
    ----------
    bits
        Number of bits, n.
    """

    def __init__(self, bits: int = 15) -> None:
        self.action_space = Discrete(bits)
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = Dict({name: MultiBinary(bits) for name in names})
        self._bits = bits

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """Draw bits and a different goal."""
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(2, size=(2, self._bits), dtype=np.int8)
        if (self._state == self._goal).all():
            self._goal[self.np_random.integers(self._bits)] ^= 1
        self._flips = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict]:
        """Flip one bit."""
        self._state[action] ^= 1
        self._flips += 1
        observation = self._observation()
        achieved, desired = observation["achieved_goal"], observation["desired_goal"]
        terminated = bool(self.compute_terminated(achieved, desired, {}))
        info = {"is_success": terminated}
        reward = float(self.compute_reward(achieved, desired, info))
        return observation, reward, terminated, self._flips == self._bits, info

    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Return 0 where the goal is reached, else -1, for goals ``[..., n]``."""
        return (achieved_goal == desired_goal).all(axis=-1) - 1.0

    def compute_terminated(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, info: Any) -> np.ndarray:
        """Return whether the goal is reached, for goals ``[..., n]``."""
        return np.asarray((achieved_goal == desired_goal).all(axis=-1))

    def _observation(self) -> Observation:
        state = self._state.copy()
        return {"observation": state, "achieved_goal": state.copy(), "desired_goal": self._goal.copy()}
