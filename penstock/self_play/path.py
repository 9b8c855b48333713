"""Data path of guests: rows hold the observations that they act on, and nothing is learned."""

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
    """Data path of guests, whose actions are chosen by past versions, or by the newest weights."""

    def actor(
        self, arena: ExperienceArena, algorithm: Any, device: str, worker: int | None = None, report: Tell | None = None
    ) -> Actor:
        """Make the actor of past versions, each for its lanes, or of the newest weights."""
        from penstock.self_play.inference import GuestInference

        return GuestInference(arena, algorithm, device)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Make the writer of the guests' observations."""
        return GuestRows(arena, lanes, first_lane)


class GuestRows:
    """Writer of the observations of a group's guests into their rows, one for each guest.

    Parameters
    ----------
    arena
        Arena of the guests.
    lanes
        Lanes of the guests in the group.
    first_lane
        Number of the first lane among all guests of the run.
    """

    waits_for = "wait for actions"

    def __init__(self, arena: ExperienceArena, lanes: Lanes, first_lane: int) -> None:
        self.rows = np.arange(first_lane, first_lane + lanes.num_lanes, dtype=np.int64)
        self._lanes = lanes
        self._columns = arena.columns
        self.is_open = False

    def open(self) -> bool:
        """Write the first observations."""
        self.record()
        self.is_open = True
        return True

    def restart_if_fenced(self) -> None:
        """No-op: no row outlives its action."""

    def record(self) -> None:
        """Write the lanes' current observations."""
        self._lanes.write_observations(self._columns["obs"], self.rows)
        self._columns["first"][self.rows] = self._lanes.first

    def flush(self) -> None:
        """No-op: no experience of guests is delivered."""
