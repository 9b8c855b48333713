"""What algorithms for continuous control have in common: actions in [-1, 1], an actor, critics, moving targets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.td import linear_schedule
from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import STORED, Config, ConfigError, ReplayConfig, Scheduled, require
from penstock.envs.spaces import ActionKind, ActionSpec
from penstock.nn import uniform_action
from penstock.replay import Prioritized, Uniform
from penstock.replay.settings import Sampler


@dataclass(frozen=True, kw_only=True)
class ControlConfig(ReplayConfig):
    """Settings of algorithms for continuous control from replay."""

    fixed: ClassVar[Mapping[str, str]] = dict.fromkeys(("prioritized", "priority_alpha"), STORED)

    actor_learning_rate: Scheduled | None = None
    """Step size of the policy's optimiser, or a function of progress; None: learning_rate, as the critics'."""
    tau: float = 0.005
    """How far the target networks move towards the online ones."""
    prioritized: bool = False
    """Prioritized replay (arXiv:1511.05952): transitions of large error are drawn more often. Importance weights apply
    to the critics' loss alone."""
    priority_alpha: float = 0.6
    """Exponent of the priorities: 0 uniform, 1 in proportion (arXiv:1511.05952, proportional variant)."""
    priority_beta: float = 0.4
    """Exponent of the importance weights at the start (arXiv:1511.05952)."""
    priority_beta_final: float = 1.0
    """Exponent of the importance weights at total_steps (arXiv:1511.05952)."""

    def validate(self) -> None:
        """Raise `ConfigError` where a value is outside what is legal."""
        super().validate()
        rate = self.actor_learning_rate
        require(not isinstance(rate, float) or rate > 0, "actor_learning_rate", rate, "more than 0, or None")
        require(0.0 < self.tau <= 1.0, "tau", self.tau, "more than 0, at most 1")
        for name in ("priority_beta", "priority_beta_final"):
            require(0.0 <= getattr(self, name) <= 1.0, name, getattr(self, name), "from 0 to 1")
        require(0.0 <= self.priority_alpha < math.inf, "priority_alpha", self.priority_alpha, "0 or more, and finite")


class ControlAlgorithm(ReplayAlgorithm):
    """An actor and its critics. All see actions in [-1, 1]; the lanes scale them to the environment's bounds.

    Prioritized replay draws some transitions more often than others. Importance weights correct the critics' loss for
    that. The policy's loss stays unweighted, as in most code: it is no expectation of what followed an action, and the
    policy may well learn most where the critics err most.
    """

    Config: ClassVar[type[Config]] = ControlConfig
    config: ControlConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("continuous",)

    def sampler(self) -> Sampler:
        """Uniform, or prioritized with weights divided by the largest in the batch."""
        c = self.config
        return Prioritized(c.priority_alpha, c.priority_beta, normalize="batch") if c.prioritized else Uniform()

    def beta(self, progress: float) -> float | None:
        """From priority_beta to priority_beta_final over total_steps."""
        c = self.config
        return linear_schedule(c.priority_beta, c.priority_beta_final, progress, 1.0) if c.prioritized else None

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose at random until learning starts, then as the policy explores."""
        if request.steps < self.config.learning_starts:
            return {"action": uniform_action(request.noise)}, request.memory
        choice, memory = model.act(request.obs, request.first, request.memory)
        return {"action": choice.sample(request.noise)}, memory

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """The critics by theirs, the policy by its own."""
        rate = self.config.learning_rate
        return {
            "critic": (model.critic_parameters(), rate),
            "actor": (model.actor_parameters(), self.config.actor_learning_rate or rate),
        }

    def normal_like(self, tensor: Tensor) -> Tensor:
        """Standard normal numbers of the learner's own, shaped as `tensor`."""
        return torch.randn(tensor.shape, device=tensor.device, generator=self.generator)

    def _require_fitting(self, action: ActionSpec) -> None:
        super()._require_fitting(action)
        assert action.low is not None and action.high is not None
        for i, (low, high) in enumerate(zip(action.low, action.high, strict=True)):
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ConfigError(
                    f"{self.name()} chooses actions between two bounds, and dimension {i} of this environment's is "
                    f"unbounded (from {low:g} to {high:g}): wrap it in gymnasium.wrappers.RescaleAction or ClipAction "
                    "with finite bounds, or use ppo or appo"
                )
