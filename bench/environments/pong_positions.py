"""Pong with observed positions instead of images, for comparing whole learning curves in minutes.

    penstock train appo --env bench/environments/pong_positions.py:PongPositions --total-steps 1000000 --eval-interval 0

With images, learning takes hours on two cores, and the time spent at a return of -20 varies with the seed.
"""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np

POSITIONS = np.array([49, 54, 51, 50])  # in the console's memory: ball across, ball down, own paddle, the other's
FRAME_SKIP = 4


class PongPositions(gymnasium.Wrapper[np.ndarray, int, np.ndarray, int]):
    """Pong with a frame skip of 4, no sticky actions and whole games to 21.

    Observations are float32 ``[8]``: four positions, from 0 to 1, and ten times their change in the last step.
    """

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2 * len(POSITIONS),), np.float32)

    def __init__(self) -> None:
        gymnasium.register_envs(ale_py)  # here, so that it also happens in other processes
        game = gymnasium.make("ALE/Pong-v5", obs_type="ram", frameskip=FRAME_SKIP, repeat_action_probability=0.0)
        super().__init__(game)
        self.observation_space = type(self).observation_space
        self._positions = np.zeros(len(POSITIONS), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a game."""
        memory, info = self.env.reset(seed=seed, options=options)
        self._positions = self._seen(memory)
        return self._with_motion(self._positions), info

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict]:
        """Play four frames."""
        memory, reward, terminated, truncated, info = self.env.step(action)
        return self._with_motion(self._seen(memory)), reward, terminated, truncated, info

    def _seen(self, memory: np.ndarray) -> np.ndarray:
        return memory[POSITIONS].astype(np.float32) / 255.0

    def _with_motion(self, positions: np.ndarray) -> np.ndarray:
        observation = np.concatenate([positions, 10.0 * (positions - self._positions)])
        self._positions = positions
        return observation
