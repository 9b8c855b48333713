"""DQN: deep Q-learning (Mnih et al. 2015, doi:10.1038/nature14236), and its published extensions as switches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import TorchRMSProp, fused_adam
from penstock.algorithms.arithmetic.td import double_q_value, huber, linear_schedule, max_q_value, td_target
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import NETWORK, STATE, STORED, Config, ReplayConfig, Scheduled, require
from penstock.envs.spaces import ActionKind
from penstock.experience.transition_batch import TransitionBatch
from penstock.nn import QNetwork
from penstock.replay import Prioritized, Uniform
from penstock.replay.settings import Sampler


@dataclass(frozen=True, kw_only=True)
class QLearningConfig(ReplayConfig):
    """Settings of deep Q-learning. Sizes and rates are for classic control; the papers', for Atari, are a preset."""

    fixed: ClassVar[Mapping[str, str]] = {
        "dueling": NETWORK, "optimizer": STATE, "prioritized": STORED, "priority_alpha": STORED,
    }  # fmt: skip

    hidden_sizes: tuple[int, ...] = (128, 128)
    """Widths of the hidden layers of mlp networks."""
    batch_size: int = 64
    """Transitions per update, drawn from the replay buffer."""
    buffer_size: int = 100_000
    """Transitions that the replay buffer keeps; the oldest is overwritten."""
    updates_per_step: float = 0.5
    """Updates for each step; published is one for every four."""
    learning_rate: Scheduled = 2e-3
    """Step size of the optimiser, or a function of progress: "module:name", "file.py:name", in Python itself."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """"rmsprop": centred, decay 0.95, as published; "adam": as most codes today."""
    optimizer_eps: float = 1e-8
    """What the optimiser adds to the root of the mean square."""
    max_grad_norm: float | None = 10.0
    """Gradients are scaled down to this global norm (arXiv:1511.06581); None: never."""

    double: bool = False
    """Double DQN (arXiv:1509.06461): the online network chooses the action that the target network values."""
    dueling: bool = False
    """Dueling network (arXiv:1511.06581): a value and advantages instead of action values."""
    prioritized: bool = False
    """Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often."""
    priority_alpha: float = 0.6
    """Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant)."""
    priority_beta: float = 0.4
    """Exponent of the importance weights at the start (arXiv:1511.05952)."""
    priority_beta_final: float = 1.0
    """Exponent of the importance weights at total_steps (arXiv:1511.05952)."""
    target_period: int = 100
    """Updates between two copies of the network to the target network."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("priority_beta", "priority_beta_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(0.0 <= self.priority_alpha < math.inf, "priority_alpha", self.priority_alpha, "0 or more, and finite")
        require(0.0 < self.optimizer_eps < math.inf, "optimizer_eps", self.optimizer_eps, "more than 0, and finite")
        require(self.target_period > 0, "target_period", self.target_period, "1 or more")
        norm = self.max_grad_norm
        require(norm is None or norm > 0, "max_grad_norm", norm, "more than 0, or None")


@dataclass(frozen=True, kw_only=True)
class DQNConfig(QLearningConfig):
    """DQN. Sizes and rates are for classic control; those of the paper, for Atari, are the preset "atari"."""

    exploration: float = 1.0
    """Probability of a random action at the start (doi:10.1038/nature14236)."""
    exploration_final: float = 0.05
    """Probability of a random action after exploration_steps."""
    exploration_steps: int = 10_000
    """Steps over which exploration falls."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        for name in ("exploration", "exploration_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(self.exploration_steps > 0, "exploration_steps", self.exploration_steps, "1 or more")


class DQN(ReplayAlgorithm):
    """Q-learning with a deep network, from replay, towards a target network."""

    Config: ClassVar[type[Config]] = DQNConfig
    config: QLearningConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete",)

    def build_model(self) -> QNetwork:
        """Make the Q-network."""
        return self.build_network(QNetwork, dueling=self.config.dueling, epsilon=self.final_epsilon)

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """All of the network."""
        return {"q": (list(model.parameters()), self.config.learning_rate)}

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Adam or centred RMSProp."""
        if self.config.optimizer == "adam":
            return fused_adam([parameter], learning_rate, eps=self.config.optimizer_eps)
        return TorchRMSProp([parameter], learning_rate, alpha=0.95, eps=self.config.optimizer_eps, centered=True)

    def sampler(self) -> Sampler:
        """Uniform, or prioritized with weights divided by the largest in the batch."""
        c = self.config
        return Prioritized(c.priority_alpha, c.priority_beta, normalize="batch") if c.prioritized else Uniform()

    def beta(self, progress: float) -> float | None:
        """From priority_beta to priority_beta_final over total_steps."""
        c = self.config
        return linear_schedule(c.priority_beta, c.priority_beta_final, progress, 1.0) if c.prioritized else None

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose the best action, or with probability epsilon any."""
        policy = model.policy(request.obs, self.epsilon(request))
        return {"action": policy.sample(request.noise)}, request.memory

    @property
    def final_epsilon(self) -> float:
        """Probability of a random action where the trained policy is played with some."""
        assert isinstance(self.config, DQNConfig)
        return self.config.exploration_final

    def epsilon(self, request: Request) -> float | Tensor:
        """Probability of a random action, the same in every lane: it falls with the run's steps."""
        c = self.config
        assert isinstance(c, DQNConfig)
        return linear_schedule(c.exploration, c.exploration_final, request.steps, c.exploration_steps)

    def update(self, model: QNetwork, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """``L = mean w Huber(Q(o, a; theta) - y)`` with ``y = r + discount * max_a Q(o', a; theta^-)``."""
        c = self.config
        with torch.no_grad():
            next_q = self.target.q(batch.next_obs)
            next_value = double_q_value(model.q(batch.next_obs), next_q) if c.double else max_q_value(next_q)
            y = td_target(batch.reward, batch.discount, next_value)

        q = model.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        td_error = q - y
        loss = (batch.weights * huber(td_error)).mean()
        grad_norm = self.minimize("q", loss, max_grad_norm=c.max_grad_norm or torch.inf)

        if batch.number % c.target_period == 0:
            self.move_target(1.0)
        return td_error.detach(), {"loss": loss, "q": q.mean(), "grad_norm": grad_norm}
