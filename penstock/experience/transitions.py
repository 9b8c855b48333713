"""Writing transitions: what the lanes of a group bring goes straight into the replay buffer."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.run_replay import Replay
from penstock.experience.step_writer import StepWriter
from penstock.ipc import gather


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
