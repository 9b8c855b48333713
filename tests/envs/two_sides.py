"""Small games of two sides: PettingZoo ParallelEnvs without PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

LENGTH = 8


class TwoSides:
    """Two hunters and one prey, which see and do other things. Hunters get 1 for action 1, the prey for 2 of three."""

    possible_agents = ("hunter_0", "hunter_1", "prey")

    def __init__(self) -> None:
        self.agents: list[str] = []
        self.tick = 0

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-10.0, 10.0, (2 if agent == "prey" else 3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3 if agent == "prey" else 2)

    def reset(self, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.tick = list(self.possible_agents), 0
        return self._shown(), {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        self.tick += 1
        rewards = {agent: float(action == (2 if agent == "prey" else 1)) for agent, action in actions.items()}
        is_over = self.tick == LENGTH
        shown, flags = self._shown(), dict.fromkeys(self.agents, is_over)
        self.agents = [] if is_over else self.agents
        return shown, rewards, dict.fromkeys(flags, False), flags, {}

    def close(self) -> None: ...

    def _shown(self) -> dict[str, Any]:
        sizes = {agent: 2 if agent == "prey" else 3 for agent in self.agents}
        return {agent: np.full(size, self.tick / LENGTH, np.float32) for agent, size in sizes.items()}


class Gifts:
    """Three steps, in each of which an agent gets what all agents of the other side do, from 0 to 2."""

    possible_agents = ("a", "b", "c")

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(3)

    def reset(self, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents, self.tick = list(self.possible_agents), 0
        return {agent: np.ones(1, np.float32) for agent in self.agents}, {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        self.tick += 1
        from_a, from_others = float(actions["a"]), float(actions["b"] + actions["c"])
        over, shown = dict.fromkeys(actions, self.tick == 3), {agent: np.ones(1, np.float32) for agent in actions}
        self.agents = [] if self.tick == 3 else self.agents
        return shown, {"a": from_others, "b": from_a, "c": from_a}, over, dict.fromkeys(actions, False), {}

    def close(self) -> None: ...
