"""Writing steps into the replay buffer: where a group's lanes stand meanwhile, and how they are let in."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.run_replay import Replay


class StepWriter:
    """The rows in which a group's lanes stand; a subclass says how what they bring gets into the replay buffer.

    Each lane has a slot of two rows, used in turn: in one lies what it shows now, in the other what it showed before.
    Steps are let in by the rate limiter before their actions are chosen, so that a lane never holds a step that it may
    not write.

    Parameters
    ----------
    arena
        The run's arena, of segments of one step.
    worker
        Number of the rollout worker, owner of the slots.
    lanes
        The lanes of this group.
    first_lane
        Number of the group's first lane among all lanes of the run.
    replay
        Where steps go.
    columns
        What is stored of the row in which an action was chosen, by the names of the arena's columns.
    """

    waits_for = "wait for learner"

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay, *columns: str
    ) -> None:
        self.arena = arena
        self.worker = worker
        self.lanes = lanes
        self.lane_numbers = np.arange(first_lane, first_lane + lanes.num_lanes, dtype=np.int64)
        self.slots = np.full(lanes.num_lanes, -1, np.int64)
        self.is_open = False
        self._replay = replay
        self._writer: Any = replay.buffer.writer(lanes.num_lanes)
        self._columns = {name: arena.columns[name] for name in columns}
        self._step = {
            name: np.zeros((lanes.num_lanes, *column.shape[1:]), column.dtype) for name, column in self._columns.items()
        }
        self._step["reward"] = np.zeros(lanes.num_lanes, np.float32)
        self._turn = np.zeros(lanes.num_lanes, np.bool_)

    @property
    def rows(self) -> np.ndarray:
        """Global row at which each lane stands, int64 ``[N]``."""
        return 2 * self.slots + self._turn

    def open(self) -> bool:
        """Be let in with one step of every lane; False while the learner is behind, or the slots are not free yet."""
        if self.is_open:
            return True
        if (self.slots < 0).any():
            if not self.arena.take(self.lane_numbers, self.slots, self.worker):
                return False
            self._show()
        lanes = self.lanes
        is_reset = (lanes.terminated | lanes.truncated) & ~lanes.first
        num_steps = int((lanes.asked & ~is_reset).sum())
        is_wanted = self._replay.is_wanted(int(self.arena.control[Control.GOAL]))
        self.is_open = num_steps == 0 or (is_wanted and self._is_let_in(num_steps))
        return self.is_open

    def _is_let_in(self, num_steps: int) -> bool:
        """Whether the rate limiter has room."""
        return self._replay.lets_in(num_steps, self.arena)

    def restart_if_fenced(self) -> None:
        """Nothing: experience in a replay buffer may come from any policy, of an earlier run epoch too."""

    def flush(self) -> None:
        """Nothing: nobody waits for these lanes."""

    def record(self) -> None:
        """Write what the lanes' last step brought."""
        raise NotImplementedError

    def _settle_reward(self) -> None:
        """Store the rewards as they are learned from."""
        self._replay.scale(self.lanes.reward, self._step["reward"])

    def _move_on(self) -> None:
        """Let the lanes that have moved stand in their other rows, and show there what they show now."""
        self._turn ^= self.lanes.moved
        self._show()

    def _show(self) -> None:
        rows = self.rows
        self.lanes.write_observations(self.arena.columns["obs"], rows)
        self.arena.columns["first"][rows] = self.lanes.first

    def _is_written(self) -> None:
        """Say that the last step is in the buffer."""
        self.is_open = False
        self.arena.learner_bell.ring()
