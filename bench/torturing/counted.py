"""A corridor that numbers its steps, and algorithms that record the steps they learned from.

Observations are ``[place, environment, number of the step]``; a step's reward ends in digits computed from its number.
So every row of a batch shows which step it is, and whether all of its parts belong to the same step.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import gymnasium
import numpy as np
from torch import Tensor, nn

from penstock.algorithms.a3c import A3C
from penstock.algorithms.apex import ApeX
from penstock.algorithms.appo import APPO
from penstock.algorithms.dqn import DQN
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from torturing import ledger
from torturing.ledger import UNIT, keys_of

CRUMB = 2.0**-20  # unit of the digits of a reward; they fit into float32 even after a 1
LENGTH = 8
LONGEST = 24  # steps of an episode


def crumb(number: Any) -> Any:
    """Return the part of a reward that encodes the step's number: a multiple of CRUMB below 1/1024."""
    return number * 40503 % 1024 * CRUMB


class Corridor(gymnasium.Env):
    """Walk from anywhere to the right end, which ends the episode with a reward of 1; it is truncated otherwise.

    Parameters
    ----------
    seconds
        Seconds that a step sleeps, so that several processes share two cores without crowding them.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._number = ledger.new_environment()
        self._steps = self._place = self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin anywhere but at the end. Steps continue to be numbered."""
        super().reset(seed=seed)
        self._place, self._time = int(self.np_random.integers(LENGTH - 1)), 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Go left or right."""
        if self._seconds:
            time.sleep(self._seconds)
        reward = crumb(self._steps)
        self._steps += 1
        self._time += 1
        self._place = min(LENGTH - 1, max(0, self._place + (1 if action == 1 else -1)))
        is_there = self._place == LENGTH - 1
        return self._observation(), float(is_there) + reward, is_there, self._time == LONGEST, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._place / LENGTH, self._number * UNIT, self._steps * UNIT], np.float32)


class Place(nn.Sequential):
    """Sees only the place, so that learning does not depend on the numbers."""

    def __init__(self, observation: Any) -> None:
        super().__init__(_First(), nn.Linear(1, 16), nn.Tanh())


class _First(nn.Module):
    def forward(self, observations: Tensor) -> Tensor:
        return observations[..., :1]


def is_torn(keys: np.ndarray, next_keys: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    """Return whether a step's next observation or reward belongs to another step; bool, of the keys' shape."""
    crumbs = rewards.astype(np.float64) - np.rint(rewards)
    return (next_keys != keys + 1) | (crumbs != crumb(keys & 0xFFFFFFFF))


@cache
def _ledger() -> ledger.Ledger | None:
    return ledger.of_this_process()


class _LearnsFromSegments:
    """Records the steps of each batch once, before learning from it."""

    def prepare(self, model: Any, batch: Any) -> None:
        if (book := _ledger()) is not None:
            keys = keys_of(batch.obs.numpy())
            torn = is_torn(keys[:-1], keys[1:], batch.reward.numpy()) & batch.valid.numpy()
            book.learned(keys[:-1][batch.learn.numpy() > 0], int(torn.sum()))
        super().prepare(model, batch)  # type: ignore[misc]


class _LearnsFromReplay:
    """Checks the drawn rows; which steps were counted is read from the buffer at the end."""

    def update(self, model: Any, batch: Any) -> Any:
        if (book := _ledger()) is not None:
            torn = is_torn(keys_of(batch.obs.numpy()), keys_of(batch.next_obs.numpy()), batch.reward.numpy())
            book.learned(np.empty(0, np.int64), int(torn.sum()))
        return super().update(model, batch)  # type: ignore[misc]


class CountedPPO(_LearnsFromSegments, PPO):
    """PPO."""


class CountedAPPO(_LearnsFromSegments, APPO):
    """APPO."""


class CountedIMPALA(_LearnsFromSegments, IMPALA):
    """IMPALA."""


class CountedA3C(_LearnsFromSegments, A3C):
    """A3C."""


class CountedDQN(_LearnsFromReplay, DQN):
    """DQN."""


class CountedApeX(_LearnsFromReplay, ApeX):
    """Ape-X."""


__all__ = ["Corridor", "CountedA3C", "CountedAPPO", "CountedApeX", "CountedDQN", "CountedIMPALA", "CountedPPO"]
