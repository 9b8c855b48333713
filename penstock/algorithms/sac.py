"""SAC: soft actor-critic with automatic temperature (Haarnoja et al. 2018, arXiv:1812.05905)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.soft_critics import SoftCriticConfig, SoftCritics
from penstock.config import NETWORK, Config, ConfigError, Scheduled, Tunable, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import StochasticActorCritic, TanhGaussian, evaluating


@dataclass(frozen=True, kw_only=True)
class SACConfig(SoftCriticConfig):
    """SAC: maximises return and entropy; the temperature between them keeps the entropy at its target."""

    fixed: ClassVar[Mapping[str, str]] = {
        "initial_alpha": "a learned temperature has moved on from its initial value",
        "log_std": NETWORK,
    }

    alpha: Tunable[float | None] = None
    """Fixed temperature; None: learned."""
    initial_alpha: float = 1.0
    """Initial value of a learned temperature."""
    target_entropy: Tunable[float | None] = None
    """Target of a learned temperature: entropy of actions in [-1, 1]; None: minus their dimension (appendix D)."""
    target_std: Tunable[float | None] = None
    """Standard deviation of a normal distribution whose entropy, d/2 log(2 pi e std^2) in d dimensions, is the target
    (arXiv:2604.04539: 0.15); None: the target is target_entropy."""
    policy_delay: int = 1
    """Critic updates per update of policy and temperature."""
    log_std: Literal["squashed", "clipped"] = "squashed"
    """Bounds of the logarithm of the policy's standard deviation: "squashed", by tanh into [-5, 2]; "clipped", to
    [-20, 2], as in the published code."""

    def validate(self) -> None:
        super().validate()
        require(self.policy_delay > 0, "policy_delay", self.policy_delay, "1 or more")
        require(self.alpha is None or self.alpha >= 0, "alpha", self.alpha, "0 or more, or None")
        require(0.0 < self.initial_alpha < math.inf, "initial_alpha", self.initial_alpha, "more than 0, and finite")
        entropy = self.target_entropy
        require(entropy is None or math.isfinite(entropy), "target_entropy", entropy, "a finite number, or None")
        std = self.target_std
        require(std is None or 0.0 < std < math.inf, "target_std", std, "more than 0 and finite, or None")
        if std is not None and entropy is not None:
            raise ConfigError(
                f"target_std={std:g} and target_entropy={entropy:g} both set the target entropy: give only one of them"
            )


class SAC(SoftCritics):
    """Stochastic policy that maximises the smaller value of two critics and its own entropy."""

    Config: ClassVar[type[Config]] = SACConfig
    config: SACConfig
    repeatable_updates = True

    def build_model(self) -> StochasticActorCritic:
        """Make the policy, both critics and the temperature."""
        return self.build_network_of_kind(num_critics=2, **self.network_settings)

    @property
    def network_settings(self) -> dict[str, Any]:
        """Arguments of the network that depend on the settings."""
        return {"initial_alpha": self.config.initial_alpha, "clips_log_std": self.config.log_std == "clipped"}

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """Return the parameters of the critics and of the policy, and the temperature."""
        return super().trained_parameters(model) | {"alpha": ([model.log_alpha], self.config.learning_rate)}

    def update(self, model: StochasticActorCritic, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """Equations 5, 7 and 18: critics ``L_Q = sum_i mean w (Q_i(o, a) - y)^2``, then policy, then temperature.

        With `distributional`, the critics' loss is a cross-entropy instead (see `SoftCritics.critic_loss`).
        """
        alpha = self.alpha(model)
        with torch.no_grad(), self.evaluating:
            next_action, next_log_prob = self.sample(model.policy(batch.next_obs))

        q, next_q = self.both_ends(model, batch, next_action)
        critic_loss, td_error, found = self.critic_loss(model, q, next_q, -alpha * next_log_prob, batch)
        self.minimize("critic", critic_loss)
        self.update_moments(model.critics)

        metrics = {"critic_loss": critic_loss, **found}

        if self.update_kind(batch.number):  # it moves the policy
            metrics |= self.improve_policy(model, model.policy(batch.obs), batch.obs, alpha)
            self.update_moments(model.encoder)
        if self.has_target:
            self.update_target(self.config.tau)
        self.after_update(model, batch, metrics)
        return td_error, metrics

    def update_kind(self, number: int) -> bool:
        """Return whether the update moves policy and temperature."""
        return number % self.config.policy_delay == 0

    def improve_policy(
        self, model: StochasticActorCritic, policy: TanhGaussian, obs: Tensor, alpha: Tensor
    ) -> dict[str, Tensor]:
        """Take a step of the policy, given its distributions at `obs`, and of the temperature (equations 7, 18)."""
        c = self.config
        action, log_prob = self.sample(policy)
        actor_loss = (alpha * log_prob - self.value(model, obs, action)).mean()
        self.minimize("actor", actor_loss)

        if c.alpha is None:
            self.minimize("alpha", -model.log_alpha.exp() * (log_prob.detach().mean() + self.target_entropy))
        return {"actor_loss": actor_loss, "entropy": -log_prob.detach(), "alpha": alpha}

    def value(self, model: StochasticActorCritic, obs: Tensor, action: Tensor) -> Tensor:
        """Return the policy's objective: the smaller value of the critics, with running moments, float32 ``[N]``."""
        with evaluating(model.critics):
            return model.values(obs, action).amin(0)

    @property
    def target_entropy(self) -> float:
        """Target of a learned temperature, in nats."""
        c, d = self.config, self.action.noise_size
        if c.target_std is not None:
            return 0.5 * d * math.log(2.0 * math.pi * math.e * c.target_std**2)
        return -float(d) if c.target_entropy is None else c.target_entropy

    def alpha(self, model: StochasticActorCritic) -> Tensor:
        """Return the current temperature, 0-dimensional."""
        fixed = self.config.alpha
        return model.log_alpha.detach().exp() if fixed is None else torch.full((), fixed, device=model.log_alpha.device)

    def sample(self, policy: TanhGaussian) -> tuple[Tensor, Tensor]:
        """Draw actions from a policy with the learner's random numbers; return them and their log-probabilities."""
        return policy.sample_with_log_prob(self.normal(policy.shape))
