"""Base of algorithms for continuous control: an actor with actions in [-1, 1], critics, moving targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.algorithms.bases.algorithm import Request
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.config import Config, ConfigError, PrioritizedReplayConfig, Scheduled, Tunable, require
from penstock.envs.spaces import ActionKind, ActionSpec
from penstock.nn import uniform_action


@dataclass(frozen=True, kw_only=True)
class ControlConfig(PrioritizedReplayConfig):
    """Settings of algorithms for continuous control from replay."""

    actor_learning_rate: Tunable[Scheduled | None] = None
    """Step size of the policy's optimiser, or a function of progress; None: learning_rate."""
    tau: Tunable[float] = 0.005
    """Fraction by which target networks move towards the online networks per update."""

    def validate(self) -> None:
        super().validate()
        rate = self.actor_learning_rate
        require(not isinstance(rate, float) or rate > 0, "actor_learning_rate", rate, "more than 0, or None")
        require(0.0 < self.tau <= 1.0, "tau", self.tau, "more than 0, at most 1")


class ControlAlgorithm(ReplayAlgorithm):
    """Base of algorithms with an actor and critics. Actions are in [-1, 1]; lanes scale them to the bounds.

    Importance weights correct the critics' loss for prioritized replay. The policy's loss stays unweighted, as in most
    code: it is no expectation over outcomes of an action, and the policy may learn most where the critics err most.
    """

    Config: ClassVar[type[Config]] = ControlConfig
    config: ControlConfig
    actions: ClassVar[tuple[ActionKind, ...]] = ("continuous",)

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Choose random actions until learning starts, then those of the policy with exploration."""
        if request.steps < self.config.learning_starts:
            return {"action": uniform_action(request.noise)}, request.memory
        choice, memory = model.act(request.obs, request.first, request.memory)
        return {"action": choice.sample(request.noise)}, memory

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """Parameters of the critics, and of the policy."""
        rate = self.config.learning_rate
        return {
            "critic": (model.critic_parameters(), rate),
            "actor": (model.actor_parameters(), self.config.actor_learning_rate or rate),
        }

    def normal(self, shape: tuple[int, ...]) -> Tensor:
        """Draw standard normal numbers from the learner's generator."""
        return torch.randn(shape, device=self.generator.device, generator=self.generator)

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
