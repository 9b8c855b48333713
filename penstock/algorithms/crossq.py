"""CrossQ: SAC with batch normalisation and without target networks (Bhatt et al. 2024, arXiv:1902.05605)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import fused_adam
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.sac import SAC, SACConfig
from penstock.config import Config, ConfigError, Scheduled, Tunable, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import NormalizedActorCritic, StochasticActorCritic, follow


@dataclass(frozen=True, kw_only=True)
class CrossQConfig(SACConfig):
    """CrossQ: values and their targets come from one pass through critics with batch normalisation.

    The critics are as wide as the policy, for runs on few cores; the paper's widths are in the preset "mujoco".
    """

    critic_hidden_sizes: tuple[int, ...] | None = (256, 256)
    """Widths of the critics' hidden layers (published: two of 2048); None: hidden_sizes."""
    normalization: Literal["batch", "layer", "rms"] | None = None
    """Normalisation of each hidden layer: None, batch renormalisation behind its activation, as published; "batch",
    by the batch's moments before it."""
    learning_rate: Scheduled = 1e-3
    adam_beta1: Tunable[float] = 0.5
    """Decay rate of the optimisers' running mean of gradients."""
    policy_delay: int = 3
    """Critic updates per update of policy and temperature."""
    tau: float = 1.0
    """Always 1: there is no target network, and targets come from the online network."""

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.adam_beta1 < 1.0, "adam_beta1", self.adam_beta1, "0 or more, and less than 1")
        require(self.policy_delay > 0, "policy_delay", self.policy_delay, "1 or more")
        if self.normalization != "batch" and (self.normalization is not None or self.has_own_body):
            raise ConfigError(
                f"normalization={self.normalization!r} is not possible with CrossQ's network={self.network!r}, "
                f"unit_weights={self.unit_weights} and distributional={self.distributional!r}: without target networks "
                'its critics normalise by batches; use normalization="batch"'
            )
        require(self.tau == 1.0, "tau", self.tau, '1: CrossQ has no target network; with one it is "sac"')


class CrossQ(SAC):
    """SAC whose critics are their own targets.

    A target network stabilises targets. Batch normalisation does the same if both ends of a transition pass the critics
    in one batch. Running moments are part of the weights: lanes act by them, and the learner's next actions use them.
    """

    Config: ClassVar[type[Config]] = CrossQConfig
    config: CrossQConfig
    has_target = False

    @property
    def normalizes_by_batch(self) -> bool:
        """Always: both ends of a transition pass the critics in one batch."""
        return True

    def build_model(self) -> StochasticActorCritic:
        """Make the policy, both critics and the temperature."""
        c = self.config
        if c.has_own_body:
            return super().build_model()
        return self.build_network(
            NormalizedActorCritic, num_critics=2, critic_sizes=c.critic_hidden_sizes, **self.network_settings
        )

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Adam with little momentum, as published."""
        return fused_adam([parameter], learning_rate, beta1=self.config.adam_beta1)

    def update(self, model: StochasticActorCritic, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """Update the critics (section 3); every `policy_delay` updates policy and temperature, as in SAC.

            L_Q = sum_i mean w (Q_i(o, a) - y)^2,    y = r + disc (min_i Q_i(o', a') - alpha log pi(a'|o'))

        Both Q of a transition are computed in one batch, and no gradient passes through ``y``.
        """
        c, alpha = self.config, self.alpha(model)
        with torch.no_grad(), self.evaluating:
            next_action, next_log_prob = self.sample(model.policy(batch.next_obs))

        q, next_q = self.both_ends(model, batch, next_action)
        critic_loss, td_error, q = self.critic_loss(model, q, next_q, -alpha * next_log_prob, batch)
        self.minimize("critic", critic_loss)
        follow(model.critics)
        metrics = {"critic_loss": critic_loss, "q": q}

        if batch.number % c.policy_delay == 0:
            metrics |= self.improve_policy(model, model.policy(batch.obs), batch.obs, alpha)
            follow(model.encoder)
        return td_error, metrics
