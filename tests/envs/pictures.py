"""An environment whose observations are large enough for a GPU to read them in place."""

from typing import Any

import gymnasium
import numpy as np


class Pictures(gymnasium.Env):
    """Random pictures of 64 x 64 bytes; episodes have nine steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (1, 64, 64), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self._left = 9
        return self._picture(), {}

    def step(self, action: Any) -> Any:
        self._left -= 1
        return self._picture(), float(action), self._left == 0, False, {}

    def _picture(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (1, 64, 64), np.uint8)
