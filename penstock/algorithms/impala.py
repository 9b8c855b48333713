"""IMPALA: actor-critic with V-trace (Espeholt et al. 2018, arXiv:1802.01561)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import (
    REDUCTIONS,
    effective_samples,
    log_importance_ratio,
    masked_mean,
    value_error,
)
from penstock.algorithms.arithmetic.returns import explained_variance, vtrace
from penstock.algorithms.arithmetic.rmsprop import RMSPropConfig, build_rmsprop
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import Config, MixtureConfig, Scheduled, SegmentDelayedRewardConfig, Tunable, require
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class IMPALAConfig(RMSPropConfig, MixtureConfig, SegmentDelayedRewardConfig):
    """IMPALA: learns from segments of earlier policies, corrected by V-trace. A preset has the paper's settings."""

    segment_length: int = 20
    batch_size: int = 320
    learning_rate: Scheduled | None = None
    """Step size of the optimiser, or a function of progress ("module:name"); None: 2e-3, with an image encoder 5e-4."""
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    """"linear", as published: a numeric learning_rate decays to 0 over total_steps. Ignored when learning_rate is a
    function."""
    vtrace_lambda: Tunable[float] = 1.0
    """Lambda of V-trace's targets: weight of longer returns."""
    rho_bar: Tunable[float] = 1.0
    """Bound on the probability ratio in the temporal difference; determines the policy whose value is learned."""
    c_bar: Tunable[float] = 1.0
    """Bound on the probability ratio in the trace; determines the speed of convergence."""
    rho_pg_bar: Tunable[float] = 1.0
    """Bound on the probability ratio in the policy gradient."""
    reduction: Literal["sum", "mean"] = "sum"
    """"sum": losses are summed over the steps of a batch, as published; "mean": averaged. Learning rate and gradient
    clipping must match."""
    max_grad_norm: float = 40.0

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.vtrace_lambda <= 1.0, "vtrace_lambda", self.vtrace_lambda, "from 0 to 1")
        require(0 < self.c_bar <= self.rho_bar, "c_bar", self.c_bar, f"more than 0 and at most rho_bar={self.rho_bar}")
        require(self.rho_pg_bar > 0, "rho_pg_bar", self.rho_pg_bar, "more than 0")


class IMPALA(SegmentAlgorithm):
    """Policy gradient and values corrected for policy lag by V-trace; rollout workers never wait for the learner."""

    Config: ClassVar[type[Config]] = IMPALAConfig
    config: IMPALAConfig
    repeatable_updates = True

    def build_optimizer(self, model: ActorCritic) -> torch.optim.Optimizer:
        """RMSProp, as published."""
        return build_rmsprop(self.config, model.parameters())

    def log_ratio(self, log_prob: Tensor, batch: Batch) -> Tensor:
        """Return ``log pi(a) - log mu(a)`` of each step, ``[T, B]``: learned policy over acting policy."""
        return log_importance_ratio(log_prob, batch.log_prob)

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return V-trace's ``v`` ("return") and ``pg`` ("advantage"), and the logarithms of the ratios."""
        return self.vtrace(model, batch, policy, values)

    def vtrace(
        self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor, relevant: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the `targets`. Traces end before states that are not `relevant`, bool ``[T, B]``; None: all are."""
        c = self.config
        log_ratio = self.log_ratio(policy.log_prob(batch.action), batch)
        target, advantage = vtrace(
            batch.reward, model.denormalize_value(values), batch.terminated, batch.truncated, log_ratio,
            gamma=c.gamma, lambda_=c.vtrace_lambda, rho_bar=c.rho_bar, c_bar=c.c_bar, rho_pg_bar=c.rho_pg_bar,
            valid=batch.valid, relevant=relevant,
        )  # fmt: skip
        return {
            "advantage": model.normalize_difference(advantage),
            "return": model.normalize_return(target),
            "log_ratio": log_ratio,
        }

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = -sum log pi(a) pg + c_v sum 1/2 (v - V)^2 - c_e sum H``, V-trace's ``v`` and ``pg`` (section 4.2)."""
        c, learn, reduce = self.config, batch.learn, REDUCTIONS[self.config.reduction]
        target, advantage, log_ratio = (batch.targets[name] for name in ("return", "advantage", "log_ratio"))

        policy_loss = -reduce(policy.log_prob(batch.action) * advantage, learn)
        value_loss = reduce(value_error(value, target), learn)
        entropy = reduce(policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": masked_mean(policy.entropy(), learn),
            "ratio": masked_mean(log_ratio.exp(), learn),
            "effective_samples": effective_samples(log_ratio, learn),
            "explained_variance": explained_variance(value, target, learn.bool()),
        }
