"""Matching: a small task with rewards of any scale, for comparing how algorithms cope with the scale.

    penstock train dqn --env bench/environments/matching.py:Matching --env-kwargs scale=1000 --total-steps 10000
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

SYMBOLS, STEPS = 4, 16


class Matching(gymnasium.Env[np.ndarray, int]):
    """Each of sixteen steps shows one of four symbols; the action of the same number is rewarded.

    Observations are one-hot, float32 ``[4]``; the reward of a match is ``scale``, of a mismatch 0. Chance matches a
    quarter.

    Parameters
    ----------
    scale : float
        Reward of a match.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (SYMBOLS,), np.float32)
    action_space = gymnasium.spaces.Discrete(SYMBOLS)

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Show the first symbol."""
        super().reset(seed=seed)
        self._step = 0
        return self._shown(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Reward a match, and show the next symbol."""
        reward = self._scale if int(action) == self._symbol else 0.0
        self._step += 1
        return self._shown(), reward, self._step == STEPS, False, {}

    def _shown(self) -> np.ndarray:
        self._symbol = int(self.np_random.integers(SYMBOLS))
        return np.eye(SYMBOLS, dtype=np.float32)[self._symbol]
