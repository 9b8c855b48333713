"""Writing transitions: what the lanes of a group bring goes straight into the replay buffer."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.run_replay import Replay
from penstock.ipc import gather


class TransitionWriter:
    """The rows in which a group's lanes stand, and the way from there into the replay buffer.

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
        Where transitions go.
    """

    waits_for = "wait for learner"

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        self.arena = arena
        self.worker = worker
        self.lanes = lanes
        self.lane_numbers = np.arange(first_lane, first_lane + lanes.num_lanes, dtype=np.int64)
        self.slots = np.full(lanes.num_lanes, -1, np.int64)
        self.is_open = False
        self._replay = replay
        self._writer = replay.buffer.writer(lanes.num_lanes)
        self._columns = {name: arena.columns[name] for name in ("obs", "action")}
        if replay.first_priorities is not None:
            self._columns["value"] = arena.columns["value"]
        self._step = {
            name: np.zeros((lanes.num_lanes, *column.shape[1:]), column.dtype) for name, column in self._columns.items()
        }
        self._step["next_obs"] = np.zeros_like(self._step["obs"])
        self._step["reward"] = np.zeros(lanes.num_lanes, np.float32)
        self._turn = 0
        self._held: dict[str, np.ndarray] | None = None

    @property
    def rows(self) -> np.ndarray:
        """Global row at which each lane stands, int64 ``[N]``."""
        return 2 * self.slots + self._turn

    def open(self) -> bool:
        """Be let in with one step of every lane; False while the learner is behind, or the slots are not free yet."""
        if self.is_open:
            return True
        num_lanes = self.lanes.num_lanes
        if (self.slots < 0).any():
            if not self.arena.take(self.lane_numbers, self.slots, self.worker):
                return False
            self._show()
        lanes = self.lanes
        num_steps = num_lanes - int(((lanes.terminated | lanes.truncated) & ~lanes.first).sum())  # others are resets
        self.is_open = num_steps == 0 or (self._is_wanted() and self._replay.limiter.try_insert(num_steps))
        return self.is_open

    def _is_wanted(self) -> bool:
        """Whether a step is on the way to the goal: until learning starts, the rate limiter lets in any number."""
        replay = self._replay
        is_filling = replay.limiter.inserts < replay.limiter.min_size
        return not is_filling or replay.steps_taken < self.arena.control[Control.GOAL]

    def restart_if_fenced(self) -> None:
        """Nothing: experience in a replay buffer may come from any policy, of an earlier run epoch too."""

    def record(self) -> None:
        """Write what the lanes' last step brought."""
        lanes, step, replay = self.lanes, self._step, self._replay
        if self._held is not None:
            self._write_held()
        rows = self.rows
        for name, column in self._columns.items():
            gather(column, rows, step[name])
        np.multiply(lanes.reward, replay.reward_scale, out=step["reward"])
        if replay.reward_clip is not None:
            np.clip(step["reward"], -replay.reward_clip, replay.reward_clip, out=step["reward"])
        self._turn = 1 - self._turn
        self._show()
        gather(self.arena.columns["obs"], self.rows, step["next_obs"])
        if lanes.finals.size:
            lanes.write_finals(step["next_obs"], lanes.finals)
        signals = {"terminated": lanes.terminated, "truncated": lanes.truncated, "mask": lanes.valid}
        if replay.first_priorities is not None:
            self._held = {name: array.copy() for name, array in signals.items()} | {"finals": lanes.finals.copy()}
        else:
            self._writer.add(**step, **signals)
        self.is_open = False
        self.arena.learner_bell.ring()

    def _show(self) -> None:
        rows = self.rows
        self.lanes.write_observations(self.arena.columns["obs"], rows)
        self.arena.columns["first"][rows] = self.lanes.first

    def _write_held(self) -> None:
        """Write the step before, now that the values of what it led to are known, with the priorities they call for.

        Where an episode was truncated and the next one shown at once, no value of the final observation is known: such
        transitions begin with the largest priority, as all do without this.
        """
        first_priorities = self._replay.first_priorities
        assert self._held is not None and first_priorities is not None
        held, self._held = self._held, None
        finals = held.pop("finals")
        next_value = self.arena.columns["max_value"][self.rows]
        next_value[finals] = np.nan
        self._writer.add(**self._step, next_value=next_value, **held)
        buffer = self._replay.buffer
        with suppress(KeyError):  # overwritten already: there is nothing to set
            rows = buffer.get(self._writer.written, fields=("reward", "value", "next_value"))
            priorities = first_priorities(rows["reward"], rows["discount"], rows["value"], rows["next_value"])
            known = np.isfinite(priorities)
            buffer.update_priorities(rows["ids"][known], priorities[known])
