"""PPO: proximal policy optimisation, synchronous (Schulman et al. 2017, arXiv:1707.06347)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from penstock.algorithms.arithmetic.losses import value_error
from penstock.algorithms.bases.proximal import ProximalAlgorithm, ProximalConfig
from penstock.config import Config, Scheduled, SegmentRewardConfig, Tunable, require_whole_minibatches
from penstock.experience.batch import Batch
from penstock.nn import ActorCritic, Distribution


@dataclass(frozen=True, kw_only=True)
class PPOConfig(ProximalConfig, SegmentRewardConfig):
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
    """Clipped surrogate objective over several epochs, with GAE; rollout workers wait while the learner learns.

    **Learning** minimises ``-J_clip + c_v L_v - c_e H`` over ``num_epochs`` passes, in minibatches of ``batch_size``
    steps, with ``r = pi(a | o) / mu(a | o)`` the probability ratio to the policy that acted:

        J_clip  =  mean min( r A, clip(r, 1 - clip_range, 1 + clip_range) A )
        L_v     =  mean 1/2 (V(o) - R)^2
        A, R    by GAE, from the values at collection time

    The loss is `ProximalAlgorithm.loss`, which APPO shares.
    """

    Config: ClassVar[type[Config]] = PPOConfig
    config: PPOConfig
    updates_alike = True
    synchronous = True
    targets_for = ("batch",)

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Advantages and value targets by GAE, from the values at collection time."""
        return self.estimate_advantages(model, batch, values, self.config.gae_lambda)

    def value_error(self, batch: Batch, value: Tensor) -> Tensor:
        """Error of each value, which moves by at most ``value_clip_range`` from that at collection time."""
        return value_error(value, batch.targets["return"], batch.targets["old_value"], self.config.value_clip_range)
