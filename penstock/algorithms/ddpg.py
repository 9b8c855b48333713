"""DDPG: deep deterministic policy gradient (Lillicrap et al. 2016, arXiv:1509.02971)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.td import squared_td_error, td_target
from penstock.algorithms.bases.algorithm import Metrics
from penstock.algorithms.bases.continuous import ControlAlgorithm, ControlConfig
from penstock.config import Config, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import DeterministicActorCritic


@dataclass(frozen=True, kw_only=True)
class DDPGConfig(ControlConfig):
    """DDPG: a policy that maximises its critic. Sizes and rates as in current references (CleanRL, TD3's authors).

    Published: actor_learning_rate 1e-4, learning_rate 1e-3, tau 0.001, batch_size 64, hidden_sizes 400 300, and
    Ornstein-Uhlenbeck noise, which is no better than the Gaussian noise used here (arXiv:1802.09477, section 6.1).
    """

    exploration_noise: float = 0.1
    """Standard deviation of the noise on actions in [-1, 1] (as in CleanRL)."""

    def validate(self) -> None:
        super().validate()
        require(self.exploration_noise >= 0, "exploration_noise", self.exploration_noise, "0 or more")


class DDPG(ControlAlgorithm):
    """Q-learning for continuous actions, with a policy that maximises Q."""

    Config: ClassVar[type[Config]] = DDPGConfig
    config: DDPGConfig
    repeatable_updates = True

    def build_model(self) -> DeterministicActorCritic:
        """Make the policy and its critic."""
        std = self.config.exploration_noise
        return self.build_network(DeterministicActorCritic, num_critics=1, exploration_std=std)

    def update(self, model: DeterministicActorCritic, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """``L_Q = mean w (Q(o, a) - y)^2`` and ``L_mu = -mean Q(o, mu(o))``."""
        target = self.target
        with torch.no_grad():
            next_value = target.q1(batch.next_obs, target.policy(batch.next_obs))
            y = td_target(batch.reward, batch.discount, next_value)

        q = model.q1(batch.obs, batch.action)
        critic_loss, td_error = squared_td_error(q, y, batch.weights)
        self.minimize("critic", critic_loss)

        actor_loss = -model.q1(batch.obs, model.policy(batch.obs)).mean()
        self.improve_policy(actor_loss)
        self.maybe_update_target(batch.number)
        return td_error, {"critic_loss": critic_loss, "actor_loss": actor_loss, "q": q}

    def improve_policy(self, loss: Tensor) -> None:
        """Take one step of the policy down its loss."""
        self.minimize("actor", loss)

    def maybe_update_target(self, number: int) -> None:
        """Move the target networks after every update."""
        self.update_target(self.config.tau)
