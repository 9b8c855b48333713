"""Counting environments: every observation and reward encodes its lane, episode and step."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

Ending = tuple[int, str]
"""Length of an episode, and ``"terminated"``, ``"truncated"`` or ``"both"``."""


class CountingEnv(gymnasium.Env):
    """Shows ``[tag, episode, step]``; answers the step that leads there with the reward ``1000 * episode + step``.

    The endings of its episodes are given, and used over and over. Its metric ``progress`` is the step reached.
    """

    metadata: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, tag: int = 0, endings: Sequence[Ending] = ((3, "terminated"),)) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.tag = tag
        self.endings = list(endings)
        self.episode = -1
        self.count = 0
        self.seeds: list[int | None] = []
        self.actions: list[Any] = []
        self.is_closed = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seeds.append(seed)
        self.episode += 1
        self.count = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        length, kind = self.endings[self.episode % len(self.endings)]
        assert self.count < length, "stepped after the episode's end"
        self.actions.append(action)
        self.count += 1
        is_over = self.count == length
        terminated = is_over and kind in ("terminated", "both")
        truncated = is_over and kind in ("truncated", "both")
        reward = float(1000 * self.episode + self.count)
        return self._observation(), reward, terminated, truncated, {"metrics": {"progress": self.count}}

    def close(self) -> None:
        self.is_closed = True

    def _observation(self) -> Any:
        return np.array([self.tag, self.episode, self.count], np.float32)


def counting_vector(endings_of_lanes: Sequence[Sequence[Ending]], mode: AutoresetMode) -> SyncVectorEnv:
    """A vector of counting environments, tagged 0, 1, 2, ..., that writes every step into the same buffers."""
    makers = [functools.partial(CountingEnv, tag, endings) for tag, endings in enumerate(endings_of_lanes)]
    return SyncVectorEnv(makers, copy=False, autoreset_mode=mode)


class CountingLists(CountingEnv):
    """Two agents in lists, each of which goes on by itself with its next episode."""

    num_agents, is_multiagent = 2, True

    def reset(self, **given: Any) -> Any:
        observation, _ = super().reset(**given)
        return [observation] * 2, [{}, {}]

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(actions[0])
        observation = super().reset()[0] if terminated or truncated else observation
        return [observation] * 2, [reward] * 2, [terminated] * 2, [truncated] * 2, [{}, {}]
