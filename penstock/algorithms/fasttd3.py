"""FastTD3: TD3 with many lanes, large batches and critics of distributions (Seo et al. 2025, arXiv:2505.22642)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from penstock.algorithms.arithmetic.distributional import categorical_kl, categorical_projection, of_smaller_mean
from penstock.algorithms.arithmetic.td import target_policy_noise, td_target
from penstock.algorithms.bases.algorithm import Metrics, Request
from penstock.algorithms.bases.continuous import require_critics
from penstock.algorithms.bases.q_losses import share_outside
from penstock.algorithms.td3 import TD3, TD3Config
from penstock.config import NETWORK, Config, Tunable, require
from penstock.experience.batch import TransitionBatch
from penstock.nn import CategoricalReturns, DeterministicActorCritic, uniform_action


@dataclass(frozen=True, kw_only=True)
class FastTD3Config(TD3Config):
    """FastTD3: few updates from large batches, filled by many lanes whose exploration noise differs in size.

    Default sizes suit a few cores; the preset "mujoco" has the paper's, for a GPU. The authors' code also has weight
    decay and a falling step size, which are left out here.
    """

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("critic_hidden_sizes", "num_atoms", "v_min", "v_max"), NETWORK)

    num_envs_per_worker: int = 16
    updates_per_step: float = 0.125
    """Updates per step (published: 2 for a step of all 128 lanes, 1/64)."""
    batch_size: int = 1_024
    """Transitions per update (published: 32,768)."""
    learning_starts: int = 2_000
    critic_hidden_sizes: tuple[int, ...] | None = None
    """Widths of the critics' hidden layers (published: 1024, 512, 256, of a policy of 512, 256, 128); None:
    hidden_sizes."""
    normalize_observations: bool = True
    tau: Tunable[float] = 0.1
    exploration_noise: float = 0.001
    """Smallest standard deviation of a lane's noise on actions in [-1, 1]."""
    exploration_noise_high: float = 0.4
    """Largest standard deviation of a lane's noise: each lane draws its own, uniformly, when an episode begins."""
    target_noise: Tunable[float] = 0.001
    num_atoms: int = 101
    """Number of returns in a critic's distribution."""
    v_min: float = -5.0
    """Smallest return in a distribution (published: -250, for unscaled rewards)."""
    v_max: float = 5.0
    """Largest return in a distribution (published: 250)."""
    return_bound: float | None = 5.0

    def validate(self) -> None:
        super().validate()
        low, high = self.exploration_noise, self.exploration_noise_high
        legal = f"exploration_noise={low:g} or more, and finite"
        require(low <= high < math.inf, "exploration_noise_high", high, legal)
        require_critics(self)


class FastTD3(TD3):
    """TD3 whose critics give distributions of returns, and whose lanes explore with different noise.

    **Lanes.** Each draws the standard deviation of its noise anew when an episode begins, so that replay holds narrow
    and wide exploration of every policy.

    **Targets.** Next actions are those of the policy that learns; only critics have a target network. Both critics
    learn the whole distribution of the one with the smaller mean, and the policy climbs the smaller mean.
    """

    Config: ClassVar[type[Config]] = FastTD3Config
    config: FastTD3Config
    repeatable_updates = True

    def build_model(self) -> DeterministicActorCritic:
        c = self.config
        return self.build_network(
            DeterministicActorCritic, num_critics=2, critic_sizes=c.critic_hidden_sizes,
            exploration_std=0.5 * (c.exploration_noise + c.exploration_noise_high),
            returns=CategoricalReturns(c.num_atoms, c.v_min, c.v_max),
        )  # fmt: skip

    def lane_state_size(self, model: Any) -> int:
        """Return 1: a lane remembers the standard deviation of its noise."""
        return 1

    def act(self, model: DeterministicActorCritic, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose random actions until learning starts, then those of the policy with the lane's noise.

        At an episode's first step the lane's random numbers choose the standard deviation of its noise, uniformly, and
        the action has no noise.
        """
        low, high = self.config.exploration_noise, self.config.exploration_noise_high
        begins, noise = request.first.unsqueeze(1), request.noise
        drawn = low + (high - low) * 0.5 * (1.0 + uniform_action(noise[:, :1]))
        std = torch.where(begins, drawn, request.memory)
        if request.steps < self.config.learning_starts:
            return {"action": uniform_action(noise)}, std
        choice, _ = model.act(request.obs, request.first, request.memory)
        action = choice.mode() + noise * std.masked_fill(begins, 0.0)
        return {"action": action.clamp(-1.0, 1.0)}, std

    def update(self, model: DeterministicActorCritic, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """Update the critics; every `policy_delay` updates ``L_mu = -mean min_i mean Z_i(o, mu(o))``.

            L_Z = sum_i mean w KL(m || Z_i(o, a))
            m   = projection of r + disc z onto the atoms z, with the probabilities of Z_j(o', mu(o') + noise; theta^-),
                  where j is the target critic with the smaller mean
        """
        c = self.config
        assert model.returns is not None
        atoms = model.returns.atoms
        with torch.no_grad():
            noise = target_policy_noise(self.normal(batch.action.shape), c.target_noise, c.target_noise_clip)
            next_action = (model.policy(batch.next_obs) + noise).clamp(-1.0, 1.0)
            next_probability = of_smaller_mean(self.target.q(batch.next_obs, next_action).softmax(-1), atoms)
            next_returns = td_target(batch.reward.unsqueeze(1), batch.discount.unsqueeze(1), atoms.expand(1, -1))
            m = categorical_projection(next_returns, next_probability, atoms)

        z = model.q(batch.obs, batch.action)
        divergence = categorical_kl(m, z.log_softmax(-1))
        critic_loss = (batch.weights * divergence).mean(1).sum()
        self.minimize("critic", critic_loss)
        outside = share_outside((next_returns * next_probability).sum(1), c.v_min, c.v_max)
        metrics = {"critic_loss": critic_loss, "q": model.returns.mean(z.detach()), "outside_support": outside}

        if self.update_kind(batch.number):  # it moves the policy
            actor_loss = -model.values(batch.obs, model.policy(batch.obs)).amin(0).mean()
            self.minimize("actor", actor_loss)
            metrics["actor_loss"] = actor_loss
        self.update_target(c.tau)
        self.after_update(model, batch, metrics)
        return divergence.detach(), metrics
