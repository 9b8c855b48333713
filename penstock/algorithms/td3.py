"""TD3: twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.td import squared_td_error, target_policy_noise, td_target
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.continuous import ControlAlgorithm, ControlConfig
from penstock.config import Config, Tunable, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import DeterministicActorCritic


@dataclass(frozen=True, kw_only=True)
class TD3Config(ControlConfig):
    """TD3: DDPG with the smaller value of two critics, a smoothed target policy and delayed policy updates."""

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in [-1, 1] (section 6.1)."""
    target_noise: Tunable[float] = 0.2
    """Standard deviation of the noise that smooths the target policy (section 6.1)."""
    target_noise_clip: Tunable[float] = 0.5
    """Bound on the noise that smooths the target policy (section 6.1)."""
    policy_delay: int = 2
    """Critic updates per update of policy and targets (section 6.1)."""

    def validate(self) -> None:
        super().validate()
        for name in ("exploration_noise", "target_noise", "target_noise_clip"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "0 or more")
        require(self.policy_delay > 0, "policy_delay", self.policy_delay, "1 or more")


class TD3(ControlAlgorithm):
    """DDPG with clipped double Q-learning, target policy smoothing and delayed policy updates."""

    Config: ClassVar[type[Config]] = TD3Config
    config: TD3Config
    repeatable_updates = True

    def build_model(self) -> DeterministicActorCritic:
        """Make the policy and both critics."""
        std = self.config.exploration_noise
        return self.build_network(DeterministicActorCritic, num_critics=2, exploration_std=std)

    def update_kind(self, number: int) -> bool:
        """Return whether the update moves the policy."""
        return number % self.config.policy_delay == 0

    def update(self, model: DeterministicActorCritic, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """``L_Q = sum_i mean w (Q_i(o, a) - y)^2``; every `policy_delay` updates ``L_mu = -mean Q_1(o, mu(o))``."""
        c, target = self.config, self.target
        with torch.no_grad():
            noise = target_policy_noise(self.normal(batch.action.shape), c.target_noise, c.target_noise_clip)
            next_action = (target.policy(batch.next_obs) + noise).clamp(-1.0, 1.0)
            next_value = target.q(batch.next_obs, next_action).amin(0)
            y = td_target(batch.reward, batch.discount, next_value)

        q = model.q(batch.obs, batch.action)
        critic_loss, td_error = squared_td_error(q, y, batch.weights)
        self.minimize("critic", critic_loss)
        metrics = {"critic_loss": critic_loss, "q": q}

        if self.update_kind(batch.number):  # it moves the policy
            actor_loss = -model.q1(batch.obs, model.policy(batch.obs)).mean()
            self.minimize("actor", actor_loss)
            self.update_target(c.tau)
            metrics["actor_loss"] = actor_loss
        return td_error, metrics
