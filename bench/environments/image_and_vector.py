"""An image beside a vector: the rewarded action depends on both, so neither alone is better than half of the reward."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

LENGTH = 20
SIDE = 12


class ImageAndVector(gymnasium.Env[Any, Any]):
    """Each step shows a bright square in the left or right half of a noisy image, and a number below or above 0.

    The action ``2 * is_right + is_positive`` is worth ``1 / LENGTH``: the return of an episode is the share of right
    actions. Chance is 0.25; image or vector alone gives 0.5.
    """

    observation_space = Dict(
        image=Box(0, 255, (SIDE, SIDE, 3), np.uint8), vector=Box(-1.0, 1.0, (4,), np.float32)
    )  # fmt: skip
    action_space = Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._time = 0
        return self._show(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Reward the action for what was shown, and show the next."""
        reward = float(action == self._wanted) / LENGTH
        self._time += 1
        return self._show(), reward, False, self._time == LENGTH, {}

    def _show(self) -> dict[str, np.ndarray]:
        is_right = int(self.np_random.integers(2))
        vector = self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)
        image = self.np_random.integers(64, size=(SIDE, SIDE, 3), dtype=np.uint8)
        row, column = self.np_random.integers(SIDE - 3), self.np_random.integers(SIDE // 2 - 2)
        column += is_right * SIDE // 2
        image[row : row + 3, column : column + 3] = 255
        self._wanted = 2 * is_right + int(vector[0] > 0.0)
        return {"image": image, "vector": vector}
