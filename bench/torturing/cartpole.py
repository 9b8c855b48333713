"""CartPole that numbers its steps as the corridor does, for runs that also have to learn something.

Observations are ``[position, environment, number of the step, velocity, angle, angular velocity]``.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np
from torch import Tensor, nn

from torturing import ledger
from torturing.counted import crumb
from torturing.ledger import UNIT

SEEN = (0, 3, 4, 5)  # of an observation: all but the numbers


class NumberedCartPole(gymnasium.Wrapper):
    """CartPole-v1 with rewards that end in digits computed from the step's number.

    Parameters
    ----------
    seconds
        Seconds that a step sleeps, so that several processes share two cores without crowding them.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (6,), np.float32)

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._seconds = seconds
        self._number = ledger.new_environment()
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode. Steps continue to be numbered."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._numbered(observation), info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Push the cart."""
        if self._seconds:
            time.sleep(self._seconds)
        observation, reward, terminated, truncated, info = self.env.step(action)
        reward = float(reward) + crumb(self._steps)
        self._steps += 1
        return self._numbered(observation), reward, terminated, truncated, info

    def _numbered(self, observation: np.ndarray) -> np.ndarray:
        return np.insert(observation, 1, [self._number * UNIT, self._steps * UNIT]).astype(np.float32)


class Cart(nn.Sequential):
    """Sees only the cart and its pole, so that learning does not depend on the numbers."""

    def __init__(self, observation: Any) -> None:
        super().__init__(_Seen(), nn.Linear(len(SEEN), 64), nn.Tanh())


class _Seen(nn.Module):
    def forward(self, observations: Tensor) -> Tensor:
        return observations[..., SEEN]
