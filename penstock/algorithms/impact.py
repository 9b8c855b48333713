"""IMPACT: asynchronous PPO with a target network and repeated batches (Luo et al. 2020, arXiv:1912.00167)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import (
    clip_fraction,
    clipped_surrogate,
    effective_samples,
    log_importance_ratio,
    masked_mean,
    normalize_advantage,
    value_error,
)
from penstock.algorithms.arithmetic.optimizers import AdamConfig, build_adam
from penstock.algorithms.arithmetic.returns import explained_variance, vtrace
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import AsynchronousConfig, Config, Scheduled, Tunable, require
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class IMPACTConfig(AdamConfig, AsynchronousConfig):
    """IMPACT: without a new batch, the learner repeats an earlier one instead of waiting."""

    batch_size: int = 256
    learning_rate: Scheduled | None = None
    """Step size of the optimiser, or a function of progress ("module:name"); None: 2e-3, with an image encoder 5e-4."""
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    entropy_coef: Scheduled = 0.003
    num_batches: int = 4
    """Capacity of the circular buffer in batches (N); while it is full, a new batch waits for a place."""
    batch_uses: int = 2
    """Number of updates from each batch (K); max_policy_lag masks steps by their policy lag at the first update."""
    target_period: int = 8
    """Updates between copies of the network to the target network (published: N * K)."""
    rho_target: Tunable[float] = 2.0
    """Bound on mu / pi_target, the ratio that corrects the surrogate against the target network."""
    clip_range: Tunable[float] = 0.3
    """The surrogate's ratio is clipped to [1 - clip_range, 1 + clip_range]."""
    gae_lambda: Tunable[float] = 0.95
    """Lambda of V-trace's targets: weight of longer returns."""
    rho_bar: Tunable[float] = 1.0
    """V-trace: bound on the ratio pi_target / mu in the temporal difference."""
    c_bar: Tunable[float] = 1.0
    """V-trace: bound on the ratio pi_target / mu in the trace."""
    kl_coef: Tunable[float] = 0.0
    """Weight of KL(pi_target || pi)."""
    normalize_advantages: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 in each update."""

    def validate(self) -> None:
        super().validate()
        for name in ("num_batches", "batch_uses", "target_period"):
            require(getattr(self, name) > 0, name, getattr(self, name), "1 or more")
        for name in ("clip_range", "rho_target"):
            require(getattr(self, name) > 0, name, getattr(self, name), "more than 0")
        require(0 < self.c_bar <= self.rho_bar, "c_bar", self.c_bar, f"more than 0 and at most rho_bar={self.rho_bar}")
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        require(0.0 <= self.kl_coef < math.inf, "kl_coef", self.kl_coef, "a finite number, 0 or more")


class IMPACT(SegmentAlgorithm):
    """Clipped objective around a target policy, with V-trace's correction, from batches used several times.

    Attributes
    ----------
    target
        Target network. Only in the learner.
    """

    Config: ClassVar[type[Config]] = IMPACTConfig
    config: IMPACTConfig
    repeatable_updates = True
    data_path = "circular"

    target: ActorCritic

    def build_optimizer(self, model: ActorCritic) -> torch.optim.Optimizer:
        return build_adam(self.config, model.parameters())

    def begin(self, model: ActorCritic, learning: dict[str, Any] | None = None) -> None:
        """Make the target network: a copy of the model, or the one in a `learning_state`."""
        if not hasattr(self, "target"):
            self.target = self.make_model(next(model.parameters()).device).requires_grad_(False)
        self.target.load_state_dict(model.state_dict() if learning is None else learning["target"])
        self.target.input = model.input  # one normalisation of observations for both

    def learning_state(self) -> dict[str, Any]:
        """Return the state of the target network."""
        return {"target": self.target.state_dict()}

    def auxiliary_networks(self) -> list[ActorCritic]:
        """Return the target network."""
        return [self.target]

    def after_update(self, model: ActorCritic, updates: int) -> None:
        """Copy the model to the target network every ``target_period`` updates."""
        if updates % self.config.target_period == 0:
            self.target.load_state_dict(model.state_dict())

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return V-trace's targets for the target policy, from the newest values, and the target policy's outputs."""
        c = self.config
        target_policy, _ = self.target.evaluate(batch.obs[:-1], batch.first[:-1], batch.memory)
        log_prob = target_policy.log_prob(batch.action)
        target, advantage = vtrace(
            batch.reward, model.denormalize_value(values), batch.terminated, batch.truncated,
            log_importance_ratio(log_prob, batch.log_prob),
            gamma=c.gamma, lambda_=c.gae_lambda, rho_bar=c.rho_bar, c_bar=c.c_bar, valid=batch.valid,
        )  # fmt: skip
        return {
            "advantage": model.normalize_difference(advantage),
            "return": model.normalize_return(target),
            "log_prob": log_prob,
            "parameters": target_policy.flat,
        }

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = -J_clip + c_v L_v - c_e H + c_kl KL``, with the ratio ``min(mu / pi_target, rho) pi / mu`` (eq. 3)."""
        c, learn, target, advantage = self.config, batch.learn, batch.targets["return"], batch.targets["advantage"]
        log_prob = policy.log_prob(batch.action)
        staleness = log_importance_ratio(log_prob.detach(), batch.log_prob)
        ratio = surrogate_ratio(log_prob, batch.targets["log_prob"], batch.log_prob, c.rho_target)
        bounds = (1.0 - c.clip_range, 1.0 + c.clip_range)
        if c.normalize_advantages:
            advantage = normalize_advantage(advantage, learn)
        objective = clipped_surrogate(ratio, advantage, *bounds)

        policy_loss = -masked_mean(objective, learn)
        value_loss = masked_mean(value_error(value, target), learn)
        entropy = masked_mean(policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        metrics = {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "clip_fraction": clip_fraction(ratio, learn, *bounds),
            "effective_samples": effective_samples(staleness, learn),
            "explained_variance": explained_variance(value, target, learn.bool()),
        }
        if c.kl_coef:
            target_policy: Any = self.recorded_policy(batch.targets["parameters"])
            metrics["target_kl"] = masked_mean(target_policy.kl(policy), learn)
            loss = loss + c.kl_coef * metrics["target_kl"]
        return loss, metrics


def surrogate_ratio(log_prob: Tensor, target_log_prob: Tensor, behaviour_log_prob: Tensor, rho: float) -> Tensor:
    """``min(mu / pi_target, rho) pi / mu``, which is ``pi / max(pi_target, mu / rho)``, of each step (section 3.2).

    Parameters
    ----------
    log_prob, target_log_prob, behaviour_log_prob
        Log-probabilities of the action by the learned policy, the target policy, and the policy that acted.
    rho
        Bound on ``mu / pi_target``.
    """
    base = torch.maximum(target_log_prob, behaviour_log_prob - math.log(rho))
    return log_importance_ratio(log_prob, base).exp()
