"""A task of one step: an action in a box, rewarded by its distance from the best one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np


class OneStep(gymnasium.Env[np.ndarray, np.ndarray]):
    """Every episode is one step, with the reward ``-mean(d^2)``: ``d`` is in units of half the range.

    Parameters
    ----------
    low, high
        Bounds of the actions, per dimension.
    best
        Best action, per dimension, in units of half the range from its middle: -1 is the lower bound.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, low: Sequence[float], high: Sequence[float], best: Sequence[float]) -> None:
        self.action_space = gymnasium.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
        self._half, self._best = (np.array(high) - np.array(low)) / 2.0, np.array(best)
        self._middle = (np.array(high) + np.array(low)) / 2.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Return the only observation."""
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Return the reward of the action; the episode ends."""
        distance = (action - self._middle) / self._half - self._best
        return np.zeros(1, np.float32), -float(distance @ distance) / len(distance), True, False, {}
