"""PPO: proximal policy optimisation, synchronous (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from penstock.algorithms.arithmetic.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    log_importance_ratio,
    masked_mean,
    normalize_advantage,
    value_error,
)
from penstock.algorithms.arithmetic.returns import explained_variance
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.proximal import ProximalAlgorithm, ProximalConfig
from penstock.config import Config, RedistributionConfig, Scheduled, Tunable, require_whole_minibatches
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ProximalConfig, RedistributionConfig):
    """PPO: every lane collects a segment, then all of them are learned from num_epochs times."""

    num_envs_per_worker: int = 8
    segment_length: int = 128
    batch_size: int = 256
    """Steps per update (one minibatch); the segments of all lanes together are a multiple of it."""
    num_epochs: int = 10
    learning_rate: Scheduled = 5e-4
    learning_rate_schedule: Literal["constant", "linear"] = "linear"
    total_steps: int = 500_000
    clip_range: float = 0.2
    """Probability ratios are clipped to [1 - clip_range, 1 + clip_range]."""
    value_clip_range: Tunable[float | None] = None
    """Largest change of a value per batch; None: unlimited."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        require_whole_minibatches(self, self.batch_size)


class PPO(ProximalAlgorithm):
    """Clipped surrogate objective over several epochs, with GAE; rollout workers wait while the learner learns."""

    Config: ClassVar[type[Config]] = PPOConfig
    config: PPOConfig
    updates_alike = True
    synchronous = True
    targets_for = ("batch",)

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Advantages and value targets by GAE, from the values at collection time."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """``L = -J_clip + c_v L_v - c_e H``, means over the steps learned from."""
        c, learn, target, advantage = self.config, batch.learn, batch.targets["return"], batch.targets["advantage"]

        log_ratio = log_importance_ratio(policy.log_prob(batch.action), batch.log_prob)
        ratio, bounds = log_ratio.exp(), (1.0 - c.clip_range, 1.0 + c.clip_range)
        if c.normalize_advantages:
            advantage = normalize_advantage(advantage, learn)
        objective = clipped_surrogate(ratio, advantage, *bounds)

        policy_loss = -masked_mean(objective, learn)
        value_loss = masked_mean(value_error(value, target, batch.targets["old_value"], c.value_clip_range), learn)
        entropy = masked_mean(policy.entropy(), learn)
        loss = policy_loss + c.value_coef * value_loss - self.entropy_coef(batch) * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": masked_mean(approximate_kl(log_ratio), learn),
            "clip_fraction": clip_fraction(ratio, learn, *bounds),
            "explained_variance": explained_variance(value, target, learn.bool()),
        }
