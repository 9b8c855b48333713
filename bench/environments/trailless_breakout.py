"""MinAtar's Breakout without its trail: the ball's direction is visible only in earlier observations.

    penstock train r2d2 --env bench/environments/trailless_breakout.py:TraillessBreakout --preset minatar
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

TRAIL = 2
"""Channel of the ball's place one step ago."""


class TraillessBreakout(gymnasium.Wrapper):
    """MinAtar/Breakout-v1 with an empty channel instead of the ball's last place: bool ``[10, 10, 4]``."""

    def __init__(self) -> None:
        import minatar.gym

        if "MinAtar/Breakout-v1" not in gymnasium.registry:
            minatar.gym.register_envs()
        super().__init__(gymnasium.make("MinAtar/Breakout-v1"))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._hide(observation), info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Move the paddle."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._hide(observation), float(reward), terminated, truncated, info

    @staticmethod
    def _hide(observation: np.ndarray) -> np.ndarray:
        hidden = observation.copy()
        hidden[..., TRAIL] = False
        return hidden
