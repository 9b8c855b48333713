"""DQN: deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), and its published extensions as switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.algorithms.arithmetic.td import linear_schedule
from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.q_learning import QLearning, QLearningConfig
from penstock.config import Config, Tunable, require


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """DQN. Default sizes and rates suit classic control; the preset "atari" has the paper's."""

    legacy_defaults: ClassVar[Mapping[str, Any]] = {"normalize_returns": False}

    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    batch_size: int = 128
    n_step: int = 3
    """Length n of n-step returns, shorter at the end of an episode (published: 1)."""
    normalize_returns: bool = True
    max_grad_norm: Tunable[float | None] = 1.0
    exploration: float = 1.0
    """Probability of a random action at the start (doi:10.1038/nature14236)."""
    exploration_final: float = 0.05
    """Probability of a random action after exploration_steps."""
    exploration_steps: int = 10_000
    """Steps over which the probability of a random action decays linearly."""

    def validate(self) -> None:
        super().validate()
        for name in ("exploration", "exploration_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(self.exploration_steps > 0, "exploration_steps", self.exploration_steps, "1 or more")


class DQN(QLearning):
    """Q-learning with a deep network, from replay, with a target network; all lanes explore alike.

    **Acting** takes the action of the largest value, or with probability epsilon a random one. Epsilon falls linearly
    from ``exploration`` to ``exploration_final`` over ``exploration_steps`` steps of the run.

    **Learning** minimises this loss over transitions drawn from replay, where ``theta^-`` is a copy of ``theta`` made
    every ``target_period`` updates:

        L = mean 1/2 ( ( y - Q(o, a; theta) ) / s )^2
        y = r + discount * max_a Q(o', a; theta^-)

    ``s`` is the running deviation of the targets with ``normalize_returns``, else 1. ``r`` is the discounted sum of
    ``n_step`` rewards, ``discount`` is ``gamma^n_step``, and ``o'`` is the observation after these steps. With one
    step, as published, a task whose next step can undo any single action gives all actions nearly equal values, and the
    network's error decides among them: on CartPole, good policies come and go. Returns of several steps also include
    the cost of exploration along the way.

    Switches add the published extensions: ``double``, ``dueling``, ``prioritized``, ``noisy``, ``distributional`` and
    ``memory``.
    """

    Config: ClassVar[type[Config]] = DQNConfig
    config: DQNConfig
    repeatable_updates = True

    @property
    def final_epsilon(self) -> float:
        return self.config.exploration_final

    def epsilon(self, request: Request) -> float:
        """Probability of a random action, equal in every lane: it falls with the run's steps."""
        c = self.config
        return linear_schedule(c.exploration, c.exploration_final, request.steps, c.exploration_steps)
