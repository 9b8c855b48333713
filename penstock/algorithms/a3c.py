"""A3C: asynchronous advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from penstock.algorithms.arithmetic.losses import REDUCTIONS, masked_mean, value_error
from penstock.algorithms.arithmetic.returns import explained_variance
from penstock.algorithms.arithmetic.rmsprop import RMSProp, RMSPropConfig, build_rmsprop
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import Config, Scheduled, Tunable, require
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class A3CConfig(RMSPropConfig):
    """A3C: every rollout worker computes its own gradients and applies them to shared parameters."""

    num_envs_per_worker: int = 8
    """Environments per rollout worker; each gradient is computed from one segment of all their lanes (published: 1)."""
    inference: Literal["auto", "local"] = "auto"
    """No effect: rollout workers always choose their own actions."""
    num_groups: Literal[1] | None = None
    """No effect: all lanes of a worker step together."""
    device: Literal["cpu"] = "cpu"
    """Always "cpu", where rollout workers learn."""
    segment_length: int = 20
    """Steps per segment (t_max)."""
    learning_rate: Scheduled = 3e-3
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    gae_lambda: Tunable[float] = 1.0
    """Lambda of generalised advantage estimation; 1: n-step returns, as published."""
    entropy_spread: Tunable[float] = 1.0
    """Entropy bonuses differ between workers: evenly spaced in log scale from entropy_coef / entropy_spread to
    entropy_coef * entropy_spread."""
    reduction: Literal["sum", "mean"] = "sum"
    """"sum": losses are summed over the steps of a segment, as published; "mean": averaged. Learning rate and gradient
    clipping must match."""
    max_grad_norm: float = 40.0
    """Global norm to which each worker's gradient is clipped."""
    total_steps: int = 500_000

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        is_spread = 1.0 <= self.entropy_spread < math.inf
        require(is_spread, "entropy_spread", self.entropy_spread, "a finite number, 1 or more")


class A3C(SegmentAlgorithm):
    """Policy gradient and n-step returns, computed in the rollout workers without synchronisation."""

    Config: ClassVar[type[Config]] = A3CConfig
    config: A3CConfig
    data_path = "gradients"

    def build_optimizer(self, model: ActorCritic) -> RMSProp:
        """RMSProp, whose statistics all workers share (section 4 of the paper)."""
        return build_rmsprop(self.config, model.parameters())

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Advantages and n-step returns within the segment."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = -sum log pi(a) (R - V) + c_v sum 1/2 (R - V)^2 - beta sum H`` with n-step returns ``R``."""
        c, learn, reduce = self.config, batch.learn, REDUCTIONS[self.config.reduction]
        target, advantage = batch.targets["return"], batch.targets["advantage"]

        policy_loss = -reduce(policy.log_prob(batch.action) * advantage, learn)
        value_loss = reduce(value_error(value, target), learn)
        exploration = reduce(self.beta(batch) * policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - exploration
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": masked_mean(policy.entropy(), learn),
            "explained_variance": explained_variance(value, target, learn.bool()),
        }

    def beta(self, batch: Batch) -> Tensor:
        """Return the weight of each segment's entropy bonus, ``[B]``, which depends on its worker."""
        c = self.config
        worker = batch.lane // c.lanes_per_worker
        place = 2.0 * worker / (c.workers - 1) - 1.0 if c.workers > 1 else 0.0 * worker
        return self.entropy_coef(batch) * c.entropy_spread**place
