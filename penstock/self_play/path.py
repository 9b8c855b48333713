"""Data path of lanes that act and are not learned from: it ends in the rows that guests are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath

if TYPE_CHECKING:
    from penstock.engine.contracts import Actor
    from penstock.engine.messages import Tell
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena


@dataclass(frozen=True)
class ActingPath(DataPath):
    """Rows of guests, and the past versions, or the newest weights, that choose their actions."""

    def actor(
        self, arena: ExperienceArena, algorithm: Any, device: str, worker: int | None = None, report: Tell | None = None
    ) -> Actor:
        """Past versions, each of which answers for the lanes that it plays, or the newest weights for all."""
        from penstock.self_play.inference import GuestInference

        return GuestInference(arena, algorithm, device)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Show guests what they see."""
        return GuestRows(arena, lanes, first_lane)


class GuestRows:
    """Keeps what the guests of a group are shown in the rows where their actions will lie.

    Parameters
    ----------
    arena
        That of the guests.
    lanes
        Their lanes in this group.
    first_lane
        Number of the first of them among all guests of the run.
    """

    waits_for = "wait for actions"

    def __init__(self, arena: ExperienceArena, lanes: Lanes, first_lane: int) -> None:
        self.rows = np.arange(first_lane, first_lane + lanes.num_lanes, dtype=np.int64)
        self._lanes = lanes
        self._columns = arena.columns
        self.is_open = False

    def open(self) -> bool:
        """Show what the lanes show at first; from then on it is open."""
        self.record()
        self.is_open = True
        return True

    def restart_if_fenced(self) -> None:
        """Nothing: no row outlives its action."""

    def record(self) -> None:
        """Show what the lanes show now."""
        self._lanes.write_observations(self._columns["obs"], self.rows)
        self._columns["first"][self.rows] = self._lanes.first

    def flush(self) -> None:
        """Nothing: nobody waits for these lanes."""
