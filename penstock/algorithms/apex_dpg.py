"""Ape-X DPG: distributed prioritized replay for continuous actions (Horgan et al. 2018, arXiv:1803.00933)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from penstock.algorithms.arithmetic.priorities import absolute_td_error
from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.ddpg import DDPG, DDPGConfig
from penstock.config import STORED, Config, Scheduled, require
from penstock.experience.layout import Column
from penstock.experience.run_replay import InitialPriorities
from penstock.nn import DeterministicActorCritic, uniform_action
from penstock.replay import Prioritized
from penstock.replay.settings import Sampler


@dataclass(frozen=True, kw_only=True)
class ApeXDPGConfig(DDPGConfig):
    """Ape-X DPG: many lanes fill a prioritized replay and compute first priorities; one learner draws from it."""

    fixed: ClassVar[Mapping[str, str]] = {"eviction_alpha": STORED}

    num_envs_per_worker: int = 4
    updates_per_step: float = 0.25
    n_step: int = 5
    """Length n of n-step returns, shorter at the end of an episode (appendix D)."""
    learning_rate: Scheduled = 1e-4
    tau: float = 1.0
    """Fraction by which target networks move towards the online networks; 1: copied."""
    target_period: int = 100
    """Updates between moves of the target networks (appendix D)."""
    max_actor_grad: float | None = 1.0
    """Bound on each element of the policy's gradient (appendix D); None: no clipping."""
    exploration_noise: float = 0.3
    """Standard deviation of the noise on actions in [-1, 1], equal in every lane."""
    prioritized: bool = True
    """Prioritized replay (arXiv:1511.05952): transitions with large errors are drawn more often. Importance weights
    apply to the critics' loss alone."""
    priority_beta_final: float = 0.4
    """Exponent of the importance weights at total_steps; by default constant."""
    eviction_alpha: float | None = -0.4
    """In a full buffer, draw the transition to replace in proportion to its priority to this power, at most 0 (appendix
    D): small errors are replaced first. None: the oldest is replaced."""

    def validate(self) -> None:
        super().validate()
        require(self.prioritized, "prioritized", self.prioritized, 'True: Ape-X DPG without priorities is "ddpg"')
        unscaled = "None: first priorities are computed from unscaled rewards"
        require(self.return_bound is None, "return_bound", self.return_bound, unscaled)
        require(self.target_period > 0, "target_period", self.target_period, "1 or more")
        size = self.max_actor_grad
        require(size is None or size > 0, "max_actor_grad", size, "more than 0, or None")
        exponent = self.eviction_alpha
        if exponent is None:
            return
        require(-math.inf < exponent <= 0, "eviction_alpha", exponent, "0 or less and finite, or None")
        what = f"more than 0 with eviction_alpha={exponent}"
        require(self.priority_alpha > 0, "priority_alpha", self.priority_alpha, what)

    def final_rewards(self) -> str | None:
        return (
            "Ape-X DPG: first priorities are computed when a step is taken, from its reward and the values of the "
            "acting network; use ddpg with prioritized=True"
        )


class ApeXDPG(DDPG):
    """DDPG on Ape-X's data path: n-step targets, priorities, and first priorities from rollout workers.

    A first priority is the learner's error with the lane's weights: lanes hold actor and critic of one version. The
    next action is therefore the policy's own, not its target's; the two differ by at most `target_period` updates.
    """

    Config: ClassVar[type[Config]] = ApeXDPGConfig
    config: ApeXDPGConfig
    repeatable_updates = True

    def sampler(self) -> Sampler:
        """Return prioritized sampling, weights divided by the largest in the whole buffer; eviction by priority."""
        c = self.config
        return Prioritized(c.priority_alpha, c.priority_beta, normalize="buffer", eviction_alpha=c.eviction_alpha)

    def initial_priorities(self) -> InitialPriorities:
        """Return the absolute temporal difference by the acting network's critic (section 3)."""
        return absolute_td_error

    def record_columns(self) -> tuple[Column, ...]:
        """Return the columns for first priorities: the values of the action taken and of the policy's action."""
        return *super().record_columns(), Column("value", (), "float32"), Column("max_value", (), "float32")

    def act(self, model: DeterministicActorCritic, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose random actions until learning starts, then those of the policy; record the critic's values."""
        choice, memory = model.act(request.obs, request.first, request.memory)
        is_random = request.steps < self.config.learning_starts
        action = uniform_action(request.noise) if is_random else choice.sample(request.noise)
        values = {"value": model.q1(request.obs, action), "max_value": model.q1(request.obs, choice.mode())}
        return {"action": action, **values}, memory

    def improve_policy(self, loss: Tensor) -> None:
        """Take one step of the policy down its loss, each element of the gradient clipped to `max_actor_grad`."""
        self.minimize("actor", loss, max_grad=self.config.max_actor_grad or math.inf)

    def update_kind(self, number: int) -> bool:
        """Return whether the update moves the target networks."""
        return number % self.config.target_period == 0

    def maybe_update_target(self, number: int) -> None:
        """Move the target networks every `target_period` updates."""
        if self.update_kind(number):
            self.update_target(self.config.tau)
