"""Two CartPoles as two agents of one environment; an agent whose pole has fallen waits for the other's end.

    penstock train appo --env bench/environments/two_cartpoles.py:TwoCartPoles --target-return 475
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Space

MAX_STEPS = 500


class TwoCartPoles:
    """A game of PettingZoo's parallel kind: CartPole-v1 for "left" and for "right", each truncated after 500 steps."""

    possible_agents = ("left", "right")

    def __init__(self) -> None:
        self._poles = {agent: CartPoleEnv() for agent in self.possible_agents}
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Space:
        """Space of CartPole's four numbers."""
        return self._poles[agent].observation_space

    def action_space(self, agent: str) -> Space:
        """Left or right."""
        return self._poles[agent].action_space

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        """Reset both, with different seeds."""
        self.agents, self._steps = list(self.possible_agents), 0
        observations: dict[str, np.ndarray] = {}
        for number, (agent, pole) in enumerate(self._poles.items()):
            observations[agent], _ = pole.reset(seed=None if seed is None else seed + number)
        return observations, {}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        """Push the carts of the agents that still play."""
        self._steps += 1
        observations, rewards, terminated, truncated = {}, {}, {}, {}
        for agent, action in actions.items():
            observations[agent], rewards[agent], terminated[agent], *_ = self._poles[agent].step(action)
            truncated[agent] = self._steps == MAX_STEPS
        self.agents = [agent for agent in actions if not (terminated[agent] or truncated[agent])]
        return observations, rewards, terminated, truncated, {}

    def close(self) -> None:
        """Close both."""
        for pole in self._poles.values():
            pole.close()
