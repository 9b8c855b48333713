"""CrossQ: SAC with batch normalisation and without target networks (Bhatt et al. 2024, arXiv:1902.05605)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from penstock.algorithms.arithmetic.optimizers import fused_adam
from penstock.algorithms.sac import SAC, SACConfig
from penstock.config import Config, ConfigError, Scheduled, Tunable, require
from penstock.nn import NormalizedActorCritic, StochasticActorCritic


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SACConfig):
    """CrossQ: values and their targets come from one pass through critics with batch normalisation.

    The critics are as wide as the policy, for runs on few cores; the paper's widths are in the preset "mujoco".
    """

    critic_hidden_sizes: tuple[int, ...] | None = (256, 256)
    """Widths of the critics' hidden layers (published: two of 2048); None: hidden_sizes."""
    normalization: Literal["batch", "layer", "rms"] | None = None
    """Normalisation of each hidden layer: None, batch renormalisation after its activation, as published; "batch", by
    the batch's moments before its activation."""
    learning_rate: Scheduled = 1e-3
    adam_beta1: Tunable[float] = 0.5
    """Decay rate of the optimisers' running mean of gradients."""
    policy_delay: int = 3
    tau: float = 1.0
    """Always 1: there is no target network, and targets come from the online network."""

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.adam_beta1 < 1.0, "adam_beta1", self.adam_beta1, "0 or more, and less than 1")
        if self.normalization != "batch" and (self.normalization is not None or self.has_own_body):
            raise ConfigError(
                f"normalization={self.normalization!r} is not possible with CrossQ's network={self.network!r}, "
                f"unit_weights={self.unit_weights} and distributional={self.distributional!r}: without target networks "
                'its critics normalise by batches; use normalization="batch"'
            )
        require(self.tau == 1.0, "tau", self.tau, '1: CrossQ has no target network; with one it is "sac"')


class CrossQ(SAC):
    """SAC whose critics are their own targets (section 3).

        L_Q = sum_i mean w (Q_i(o, a) - y)^2,    y = r + disc (min_i Q_i(o', a') - alpha log pi(a'|o'))

    Both values of a transition are computed in one batch, and no gradient passes through ``y``. Batch normalisation
    over both ends of transitions stabilises targets as a target network does. Running moments are part of the weights:
    lanes act with them, and the learner's next actions and the policy's loss use them.
    """

    Config: ClassVar[type[Config]] = CrossQConfig
    config: CrossQConfig
    has_target = False
    repeatable_updates = True

    @property
    def normalizes_by_batch(self) -> bool:
        """Always: critics evaluate both ends of a transition in one batch."""
        return True

    def build_model(self) -> StochasticActorCritic:
        c = self.config
        if c.has_own_body:
            return super().build_model()
        return self.build_network(
            NormalizedActorCritic, num_critics=2, critic_sizes=c.critic_hidden_sizes, **self.network_settings
        )

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Adam with little momentum, as published."""
        return fused_adam([parameter], learning_rate, beta1=self.config.adam_beta1)
