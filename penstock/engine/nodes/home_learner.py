"""A learner whose lanes are on other nodes: whoever sends its weights there is told of each version."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from penstock.engine.acting.inference import MakeWeights, SharedWeights
from penstock.engine.contracts import Role
from penstock.engine.messages import Tell
from penstock.engine.roles.specs import LearnerRole
from penstock.experience.arena import ExperienceArena


class AnnouncedWeights(SharedWeights):
    """One end of the weights block; the receiver is woken by each version.

    Parameters
    ----------
    model, arena
        As for `penstock.engine.acting.inference.through_block`.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena) -> None:
        super().__init__(model, arena.weights)
        self._arena = arena

    def publish(self, version: int, steps: int) -> None:
        """Show the model's weights to everyone."""
        super().publish(version, steps)
        self._arena.ring_rollout_workers()


@dataclass(frozen=True)
class HomeLearnerRole(LearnerRole):
    """The learner of a run on several nodes."""

    def build(self, arena: ExperienceArena, report: Tell, weights: MakeWeights | None = None) -> Role:
        """Make the learner."""
        return super().build(arena, report, weights or AnnouncedWeights)
