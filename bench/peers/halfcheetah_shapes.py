"""What peers' learners learn from when their updates are measured: HalfCheetah's shapes, and a full buffer."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Shapes(gymnasium.Env):
    """The spaces of HalfCheetah-v5; it is never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)


def fill(buffer: Any) -> None:
    """Fill a replay buffer of Stable-Baselines3, which SBX has too, with random transitions."""
    random = np.random.default_rng(0)
    buffer.observations[:] = random.standard_normal(buffer.observations.shape)
    buffer.next_observations[:-1] = buffer.observations[1:]
    buffer.actions[:] = random.uniform(-1.0, 1.0, buffer.actions.shape)
    buffer.rewards[:] = random.standard_normal(buffer.rewards.shape)
    buffer.dones[:] = random.random(buffer.dones.shape) < 1e-3
    buffer.full = True
