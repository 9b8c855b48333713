"""Data for measuring updates of other libraries: shapes of environments, and a full buffer."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class HalfCheetah(gymnasium.Env):
    """HalfCheetah-v5's spaces; never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)


class LunarLander(gymnasium.Env):
    """LunarLander-v3's spaces; never stepped."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(4)


def shapes_for(algorithm: str) -> gymnasium.Env:
    """Return the environment for an algorithm."""
    return LunarLander() if algorithm == "dqn" else HalfCheetah()


def fill(buffer: Any) -> None:
    """Fill a replay buffer of Stable-Baselines3, which SBX has too, with random transitions."""
    random = np.random.default_rng(0)
    buffer.observations[:] = random.standard_normal(buffer.observations.shape)
    buffer.next_observations[:-1] = buffer.observations[1:]
    if isinstance(buffer.action_space, gymnasium.spaces.Discrete):
        buffer.actions[:] = random.integers(0, buffer.action_space.n, buffer.actions.shape)
    else:
        buffer.actions[:] = random.uniform(-1.0, 1.0, buffer.actions.shape)
    buffer.rewards[:] = random.standard_normal(buffer.rewards.shape)
    buffer.dones[:] = random.random(buffer.dones.shape) < 1e-3
    buffer.full = True
