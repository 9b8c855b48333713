"""The rows of guests: each lane has one, from which nothing is learned."""

from __future__ import annotations

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena


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
