"""Writing into the replay buffer: where a group's lanes stand, how they are let in, and the transitions they bring."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.run_replay import Replay
from penstock.ipc import gather


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


class TransitionWriter(StepWriter):
    """Writes transitions. Parameters are those of `StepWriter`, without the columns."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        values = () if replay.first_priorities is None else ("value",)
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action", *values)
        self._step["next_obs"] = np.zeros_like(self._step["obs"])
        self._held: dict[str, np.ndarray] | None = None

    def record(self) -> None:
        """Write what the lanes' last step brought."""
        lanes, step, replay = self.lanes, self._step, self._replay
        if self._held is not None:
            self._write_held()
        rows = self.rows
        for name, column in self._columns.items():
            gather(column, rows, step[name])
        self._settle_reward()
        self._move_on()
        gather(self.arena.columns["obs"], self.rows, step["next_obs"])
        if lanes.finals.size:
            lanes.write_finals(step["next_obs"], lanes.finals)
        signals = {"terminated": lanes.terminated, "truncated": lanes.truncated, "mask": lanes.valid}
        if replay.first_priorities is not None:
            self._held = {name: array.copy() for name, array in signals.items()} | {"finals": lanes.finals.copy()}
        else:
            self._writer.add(**step, **signals)
        self._is_written()

    def _write_held(self) -> None:
        """Write the step before, now that the values of what it led to are known, with the priorities they call for.

        Where an episode was truncated and the next one shown at once, no value of the final observation is known: such
        transitions begin with the largest priority, as all do without this.
        """
        assert self._held is not None
        held, self._held = self._held, None
        finals = held.pop("finals")
        next_value = self.arena.columns["max_value"][self.rows]
        next_value[finals] = np.nan
        self._writer.add(**self._step, next_value=next_value, **held)
        give_priorities(self._replay, self._writer.written)


def give_priorities(replay: Replay, written: np.ndarray) -> None:
    """Give transitions (ids, int64 ``[N]``) the priorities that they call for, where these are known."""
    buffer, first_priorities = replay.buffer, replay.first_priorities
    if first_priorities is None:
        return
    with suppress(KeyError):  # overwritten already: there is nothing to set
        rows = buffer.get(written, fields=("reward", "value", "next_value"))
        priorities = first_priorities(rows["reward"], rows["discount"], rows["value"], rows["next_value"])
        known = np.isfinite(priorities)
        buffer.update_priorities(rows["ids"][known], priorities[known])
