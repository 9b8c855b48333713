"""The way of what guests go through: it ends in their rows, and nobody learns from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath
from penstock.experience.guest_rows import GuestRows

if TYPE_CHECKING:
    from penstock.engine.contracts import Actor
    from penstock.engine.messages import Tell
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena


@dataclass(frozen=True)
class GuestPath(DataPath):
    """Rows of guests, and the past versions, or the newest weights, that choose their actions."""

    def actor(
        self, arena: ExperienceArena, algorithm: Any, device: str, worker: int | None = None, report: Tell | None = None
    ) -> Actor:
        """Past versions, each of which answers for the lanes that it plays, or the newest weights for all."""
        from penstock.engine.acting.guest_inference import GuestInference

        return GuestInference(arena, algorithm, device)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Show guests what they see."""
        return GuestRows(arena, lanes, first_lane)
