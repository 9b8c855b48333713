"""A game that records its agents' actions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

LENGTH = 20
ACTIONS = 8


class Cast:
    """Two simultaneous agents, for twenty steps: the larger number wins each. The end is recorded."""

    possible_agents = ("a", "b")
    games: ClassVar[list[tuple[int, list[int], list[int]]]] = []
    """Of each game of a rollout worker: the number of its environment, and the actions of both agents."""

    def __init__(self, lane: int, worker_index: int) -> None:
        self.number = lane // 2
        self.is_of_worker = worker_index >= 0

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(ACTIONS)

    def reset(self, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        self.done: dict[str, list[int]] = {agent: [] for agent in self.agents}
        return self._shown(), {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        for agent, action in actions.items():
            self.done[agent].append(int(action))
        won = float(np.sign(int(actions["a"]) - int(actions["b"])))
        shown, over = self._shown(), len(self.done["a"]) == LENGTH
        if over:
            self.agents = []
            if self.is_of_worker:
                self.games.append((self.number, self.done["a"], self.done["b"]))
        return shown, {"a": won, "b": -won}, dict.fromkeys(actions, over), dict.fromkeys(actions, False), {}

    def close(self) -> None: ...

    def _shown(self) -> dict[str, Any]:
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}
