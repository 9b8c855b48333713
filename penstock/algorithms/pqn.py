"""PQN: parallelised Q-network (Gallici et al. 2025, arXiv:2407.04811)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import masked_mean, value_error
from penstock.algorithms.arithmetic.optimizers import RAdam
from penstock.algorithms.arithmetic.returns import lambda_return
from penstock.algorithms.arithmetic.td import linear_schedule, max_q_value
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.q_losses import RewardWatch
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import (
    NETWORK,
    Config,
    Scheduled,
    SegmentDelayedRewardConfig,
    Tunable,
    require,
    require_whole_minibatches,
)
from penstock.envs.spaces import ActionKind
from penstock.experience.batch import Batch
from penstock.nn import QNetwork


@dataclass(frozen=True, kw_only=True)
class PQNConfig(SegmentDelayedRewardConfig):
    """PQN: every lane collects a segment; the learner then makes num_epochs passes over all segments.

    Default sizes and rates suit classic control; presets have the paper's, for images.
    """

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("layer_norm", "normalize_returns"), NETWORK)

    hidden_sizes: tuple[int, ...] = (128, 128)
    activation: Literal["tanh", "relu", "elu", "silu"] = "relu"
    layer_norm: bool = True
    """Layer normalisation before each activation of the encoder (section 3.3); custom encoders are left unchanged."""
    normalize_returns: bool = False
    """Running normalisation of value targets (PopArt, arXiv:1602.07714); its statistics are part of the weights."""
    segment_length: int = 64
    batch_size: int = 256
    """Steps per update (one minibatch): a divisor of the steps in all lanes' segments; with memory, also a multiple of
    segment_length."""
    num_epochs: int = 4
    """Passes over each batch."""
    learning_rate: Scheduled = 1e-3
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    max_grad_norm: float = 10.0
    q_lambda: Tunable[float] = 0.65
    """Lambda of the returns that action values regress on: 0, one step; 1, the rest of the segment."""
    exploration: float = 1.0
    """Probability of a random action at the start."""
    exploration_final: float = 0.05
    """Probability of a random action after exploration_steps."""
    exploration_steps: int = 50_000
    """Steps over which the probability of a random action decays linearly."""
    total_steps: int = 500_000

    def validate(self) -> None:
        super().validate()
        self.require_changed_values("values are all that PQN learns")
        for name in ("num_epochs", "exploration_steps"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        for name in ("q_lambda", "exploration", "exploration_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require_whole_minibatches(self, self.batch_size)


class PQN(SegmentAlgorithm):
    """Q-learning from fresh segments: no replay, no target network; normalised layers keep it stable.

    Traces continue through random actions (Peng's Q(lambda)), which is correct only for steps of the newest policy.
    Rollout workers therefore wait while the learner learns, as in PPO.
    """

    Config: ClassVar[type[Config]] = PQNConfig
    config: PQNConfig
    repeatable_updates = True
    actions: ClassVar[tuple[ActionKind, ...]] = ("discrete",)
    synchronous = True
    targets_for = ("batch",)
    _rewards: RewardWatch | None = None

    def build_model(self) -> QNetwork:
        """Make the Q-network."""
        c = self.config
        names = ("memory", "memory_size", "memory_span", "layer_norm", "normalize_returns")
        settings = {name: getattr(c, name) for name in names}
        return self.build_network(QNetwork, settings, dueling=False, epsilon=c.exploration_final)

    def build_optimizer(self, model: QNetwork) -> torch.optim.Optimizer:
        """Rectified Adam, as published."""
        return RAdam(model.parameters())

    def act(self, model: QNetwork, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose the best action, or a random one with a probability that falls with the run's steps."""
        c = self.config
        epsilon = linear_schedule(c.exploration, c.exploration_final, request.steps, c.exploration_steps)
        policy, memory = model.act(request.obs, request.first, request.memory, epsilon)
        return {"action": policy.sample(request.noise)}, memory

    def begin(self, model: QNetwork, learning: dict[str, Any] | None = None) -> None:
        super().begin(model, learning)
        if model.return_moments is None:
            self._rewards = RewardWatch(self.remarks.append, can_normalize=False)

    @torch.no_grad()
    def prepare(self, model: QNetwork, batch: Batch) -> None:
        """Compute the returns that values regress on, once per batch, with the weights that acted."""
        if self._rewards is not None:
            self._rewards.see(batch.reward * batch.valid)
        if model.memory is None:
            q = model.q(batch.obs.flatten(0, 1)).unflatten(0, batch.first.shape)
        else:
            q = model.unroll(batch.obs, batch.first, batch.memory)
        target = lambda_return(
            batch.reward, max_q_value(q), batch.terminated, batch.truncated,
            gamma=self.config.gamma, lambda_=self.config.q_lambda, valid=batch.valid,
        )  # fmt: skip
        batch.targets["return"] = model.normalize_return(target)

    def minibatches(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """Minibatches of ``batch_size`` steps."""
        return self.shuffled_minibatches(batch, self.config.batch_size, generator, passes=self.config.num_epochs)

    def evaluate(self, model: QNetwork, batch: Batch) -> tuple[Tensor, Metrics]:
        """``L = 1/2 mean (Q(o_t, a_t) - G_t)^2``, with the returns ``G`` of `lambda_return` over ``max_a Q``.

        Both are in units of the head, normalised with ``normalize_returns``.
        """
        action, target, learn = batch.action, batch.targets["return"], batch.learn
        if model.memory is None:
            q = model.q(batch.obs)
        else:
            start = self.config.burn_in
            q = model.unroll(batch.obs[:-1], batch.first[:-1], batch.memory, start)
            action, target, learn = action[start:], target[start:], learn[start:]
        value = q.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        loss = masked_mean(value_error(model.normalize_return(value), target), learn)
        return loss, {"loss": loss, "q": masked_mean(value, learn)}
