"""Catch in two colours, for measuring forgetting: a bright ball falls straight, a dark one is mirrored."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

CELLS = 12


class CatchTasks(gymnasium.Env[np.ndarray, int]):
    """A ball falls through twelve rows; a paddle of three cells at the bottom must catch it.

    Observations are float32 ``[4]``: row and column of the ball, column of the paddle, and the ball's colour, each
    from -1 to 1. A bright ball lands in the column that it is seen in, a dark one (``task=1``) in its mirror image.
    Actions: left, stay, right. The reward is 1 for a catch and -1 for a miss, at the end of an episode of eleven steps;
    chance catches a quarter of the balls.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, task: int = 0) -> None:
        self._sign = 1 - 2 * task

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Drop a ball in a random column, and put the paddle in the middle."""
        super().reset(seed=seed)
        self._row, self._column = 0, int(self.np_random.integers(CELLS))
        self._paddle = CELLS // 2
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move the paddle by at most one cell, and the ball down by one."""
        self._paddle = min(max(self._paddle + int(action) - 1, 1), CELLS - 2)
        self._row += 1
        has_landed = self._row == CELLS - 1
        lands = self._column if self._sign > 0 else CELLS - 1 - self._column
        reward = (1.0 if abs(self._paddle - lands) <= 1 else -1.0) if has_landed else 0.0
        return self._observation(), reward, has_landed, False, {}

    def _observation(self) -> np.ndarray:
        places = np.array([self._row, self._column, self._paddle], np.float32) / (CELLS - 1) * 2.0 - 1.0
        return np.append(places, np.float32(self._sign))
