"""Catch: a minimal game with images, for comparing image processing.

    penstock train appo --env bench/environments/catch.py:Catch --preset atari --total-steps 130000 --eval-interval 0

This takes a minute or two on two cores.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

CELLS = 12
PIXELS = 3  # per cell and direction: 36 x 36 is the smallest input of the Nature network's convolutions


class Catch(gymnasium.Env[np.ndarray, int]):
    """A ball falls through twelve rows, straight or drifting; a paddle of three cells at the bottom must catch it.

    Observations are bytes ``[1, 36, 36]``. Actions: left, stay, right. The reward is 1 for a catch and -1 for a miss,
    at the end of an episode of eleven steps; chance catches a quarter of the balls.
    """

    observation_space = gymnasium.spaces.Box(0, 255, (1, CELLS * PIXELS, CELLS * PIXELS), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Drop a ball in a random column, and put the paddle in the middle."""
        super().reset(seed=seed)
        self._row, self._column = 0, int(self.np_random.integers(CELLS))
        self._drift = int(self.np_random.integers(-1, 2))
        self._paddle = CELLS // 2
        return self._picture(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move the paddle by at most one cell, and the ball down by one."""
        self._paddle = min(max(self._paddle + int(action) - 1, 1), CELLS - 2)
        if not 0 <= self._column + self._drift < CELLS:
            self._drift = -self._drift
        self._row, self._column = self._row + 1, self._column + self._drift
        has_landed = self._row == CELLS - 1
        reward = (1.0 if abs(self._paddle - self._column) <= 1 else -1.0) if has_landed else 0.0
        return self._picture(), reward, has_landed, False, {}

    def _picture(self) -> np.ndarray:
        cells = np.zeros((CELLS, CELLS), np.uint8)
        cells[self._row, self._column] = 255
        cells[-1, self._paddle - 1 : self._paddle + 2] = 128
        return cells.repeat(PIXELS, 0).repeat(PIXELS, 1)[None]
