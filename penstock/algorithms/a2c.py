"""A2C: advantage actor-critic, synchronous (after Mnih et al. 2016, arXiv:1602.01783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import masked_mean, value_error
from penstock.algorithms.arithmetic.returns import explained_variance
from penstock.algorithms.arithmetic.rmsprop import RMSPropConfig, build_rmsprop
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import Config, Scheduled, SegmentDelayedRewardConfig, Tunable, require
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class A2CConfig(RMSPropConfig, SegmentDelayedRewardConfig):
    """A2C: one update from segment_length steps of every lane."""

    segment_length: int = 5
    """Steps per segment (T), and n of the n-step returns."""
    learning_rate: Scheduled = 4e-3
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    rmsprop_eps: float = 1e-4
    gae_lambda: Tunable[float] = 1.0
    """Lambda of generalised advantage estimation; 1: n-step returns, as published."""
    total_steps: int = 500_000

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")


class A2C(SegmentAlgorithm):
    """Policy gradient with a learned baseline, averaged over lanes; rollout workers wait while the learner learns."""

    Config: ClassVar[type[Config]] = A2CConfig
    config: A2CConfig
    repeatable_updates = True
    synchronous = True

    def build_optimizer(self, model: ActorCritic) -> torch.optim.Optimizer:
        """RMSProp, as published."""
        return build_rmsprop(self.config, model.parameters())

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Advantages and n-step returns within the segment."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = mean( -log pi(a) (R - V) + c_v 1/2 (R - V)^2 - c_e H )``, with n-step returns ``R``."""
        c, learn, target, advantage = self.config, batch.learn, batch.targets["return"], batch.targets["advantage"]

        policy_loss = -masked_mean(policy.log_prob(batch.action) * advantage, learn)
        value_loss = masked_mean(value_error(value, target), learn)
        entropy = masked_mean(policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "explained_variance": explained_variance(value, target, learn.bool()),
        }
