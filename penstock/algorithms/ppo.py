"""PPO: proximal policy optimisation, synchronous (Schulman et al. 2017, arXiv:1707.06347). APPO shares its loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    effective_samples,
    log_importance_ratio,
    mean_over,
    normalize_advantage,
    truncated_weight,
    value_error,
)
from penstock.algorithms.arithmetic.optimizers import AdamConfig, build_adam
from penstock.algorithms.arithmetic.returns import explained_variance
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import (
    Config,
    ConfigError,
    Scheduled,
    SegmentDelayedRewardConfig,
    Tunable,
    require,
    require_whole_minibatches,
)
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class ProximalConfig(AdamConfig):
    """Settings that PPO and APPO share."""

    num_epochs: int | None = 1
    """Passes over each batch."""
    gae_lambda: Tunable[float] = 0.95
    """Lambda of generalised advantage estimation."""
    normalize_advantages: bool = True
    """Normalise advantages to mean 0 and standard deviation 1 in each update."""
    clip_range: Tunable[float] = 0.2
    """Distance that the probability ratio may move from 1."""
    target_kl: Tunable[float | None] = None
    """Skip a batch's remaining updates once approx_kl exceeds 1.5 times this value (nats); None: never."""

    def validate(self) -> None:
        super().validate()
        require(self.num_epochs is None or self.num_epochs > 0, "num_epochs", self.num_epochs, "more than 0")
        require(self.clip_range > 0, "clip_range", self.clip_range, "more than 0")
        require(0.0 <= self.gae_lambda <= 1.0, "gae_lambda", self.gae_lambda, "from 0 to 1")
        is_distance = self.target_kl is None or self.target_kl > 0
        require(is_distance, "target_kl", self.target_kl, "more than 0, or None")


class ProximalAlgorithm(SegmentAlgorithm):
    """Base of PPO and APPO: ``num_epochs`` passes over each batch in shuffled minibatches, with a clipped objective."""

    Config: ClassVar[type[Config]] = ProximalConfig
    config: Any  # a ProximalConfig with a batch_size

    @property
    def ratio_bounds(self) -> tuple[float, float]:
        """Bounds to which probability ratios are clipped."""
        return 1.0 - self.config.clip_range, 1.0 + self.config.clip_range

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = -J_clip + c_v L_v - c_e H``, averaged over learned steps (arXiv:1707.06347, equation 9)."""
        c, learn, advantage = self.config, batch.learn, batch.targets["advantage"]
        log_prob, base = policy.log_prob(batch.action), batch.targets.get("proximal", batch.log_prob)
        log_ratio = staleness = log_importance_ratio(log_prob, batch.log_prob)
        if base is not batch.log_prob:
            log_ratio = log_importance_ratio(log_prob, base)

        ratio, bounds = log_ratio.exp(), self.ratio_bounds
        if c.normalize_advantages:
            advantage = normalize_advantage(advantage, learn)
        objective = clipped_surrogate(ratio, advantage, *bounds)
        if base is not batch.log_prob:
            objective = truncated_weight(base, batch.log_prob, c.rho_proximal) * objective

        mean = mean_over(learn)
        policy_loss = -mean(objective)
        value_loss = mean(self.value_error(batch, value))
        entropy = mean(policy.entropy())
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        with torch.no_grad():
            return loss, {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "approx_kl": mean(approximate_kl(log_ratio)),
                "clip_fraction": clip_fraction(ratio, learn, *bounds),
                "effective_samples": effective_samples(staleness, learn),
                "explained_variance": explained_variance(value, batch.targets["return"], learn.bool()),
            }

    def value_error(self, batch: Batch, value: Tensor) -> Tensor:
        """Return the error of each value; their mean is the value loss."""
        return value_error(value, batch.targets["return"])

    def build_optimizer(self, model: Any) -> torch.optim.Optimizer:
        return build_adam(self.config, model.parameters())

    def minibatches(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """Minibatches of ``batch_size`` steps."""
        return self.shuffled_minibatches(batch, self.config.batch_size, generator, passes=self.config.num_epochs)

    def should_stop_early(self, metrics: Metrics) -> bool:
        """Return whether the policy has moved further than ``target_kl`` allows."""
        target = self.config.target_kl
        return target is not None and bool(metrics["approx_kl"] > 1.5 * target)


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ProximalConfig, SegmentDelayedRewardConfig):
    """PPO: every lane collects a segment; the learner then makes num_epochs passes over all segments."""

    num_envs_per_worker: int = 8
    segment_length: int = 128
    batch_size: int = 256
    """Steps per update (one minibatch): a divisor of the steps in all lanes' segments; with memory, also a multiple of
    segment_length."""
    num_epochs: int = 10
    learning_rate: Scheduled = 5e-4
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    total_steps: int = 500_000
    clip_range: float = 0.2
    """Probability ratios are clipped to [1 - clip_range, 1 + clip_range]."""
    value_clip_range: Tunable[float | None] = None
    """Largest change of a value per batch; None: unlimited."""
    batch_timeout: float | None = None
    """Longest wait for other lanes, in seconds after a batch's first segment. Late segments join a later batch, with a
    policy lag. None: every batch has all lanes."""

    def validate(self) -> None:
        super().validate()
        require_whole_minibatches(self, self.batch_size)
        limit = self.batch_timeout
        require(limit is None or limit > 0, "batch_timeout", limit, "more than 0, or None")
        if limit is not None and self.backend == "serial":
            raise ConfigError(
                f'batch_timeout={limit:g} needs lanes in their own processes, found backend="serial", where nothing '
                'depends on time: use batch_timeout=None, or backend="local"'
            )


class PPO(ProximalAlgorithm):
    """Clipped surrogate objective over several epochs, with GAE; rollout workers wait while the learner learns.

    **Learning** minimises ``-J_clip + c_v L_v - c_e H`` over ``num_epochs`` passes, in minibatches of ``batch_size``
    steps, with ``r = pi(a | o) / mu(a | o)`` the probability ratio to the policy that acted:

        J_clip  =  mean min( r A, clip(r, 1 - clip_range, 1 + clip_range) A )
        L_v     =  mean 1/2 (V(o) - R)^2
        A, R    by GAE, from the values at collection time
    """

    Config: ClassVar[type[Config]] = PPOConfig
    config: PPOConfig
    repeatable_updates = True
    synchronous = True
    targets_for = ("batch",)

    @property
    def batch_timeout(self) -> float | None:
        return self.config.batch_timeout

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Return advantages and value targets by GAE, from the values at collection time."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def value_error(self, batch: Batch, value: Tensor) -> Tensor:
        """Return the error of each value, with its change since collection clipped to ``value_clip_range``."""
        return value_error(value, batch.targets["return"], batch.targets["old_value"], self.config.value_clip_range)
