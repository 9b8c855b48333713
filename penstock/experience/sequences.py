"""Writer of sequences: the steps of a group's lanes become rows of the replay buffer."""

from __future__ import annotations

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.run_replay import Replay, StepWriter, give_priorities, observation_field
from penstock.ipc import gather
from penstock.replay import Field


def sequence_fields(
    observation: ObservationSpec, action: ActionSpec, state_size: int, *, with_values: bool
) -> dict[str, Field]:
    """Return the fields of a sequence, whose rows are steps, or padding before and after an episode.

    Parameters
    ----------
    observation, action
        Specs of a lane.
    state_size
        Width ``S`` of the memory state; a sequence holds the state before its first row.
    with_values
        Whether values are stored, for first priorities.
    """
    number, flag = Field((), "float32"), Field((), "bool")
    fields = {
        "obs": observation_field(observation),
        "action": Field(action.column_shape, action.column_dtype),
        "reward": number,
        "discount": number,
        "first": flag,
        "valid": flag,
        "memory": Field((state_size,), "float32", first=True),
    }
    return fields | ({"value": number, "max_value": number} if with_values else {})


class SequenceWriter(StepWriter):
    """Writes the rows from which the replay buffer makes sequences.

    Rows of an episode of N steps:

    ==================  =======================================  =====  ================================================
    rows                observation                              valid  purpose
    ==================  =======================================  =====  ================================================
    `burn_in`           zeros                                    no     no step is only ever part of burn-ins
    N                   that of the step's action                yes    the steps; the first of them has ``first``
    1, the final row    the true last one; undefined if the       no     the last step has a successor row
                        episode terminated
    ==================  =======================================  =====  ================================================

    ``discount`` is gamma, and 0 where a step terminated its episode. The memory state of the padding is zeros, and
    memory is reset at ``first``.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`.
    burn_in
        Steps of a sequence before those that are learned from.
    gamma
        Discount of each step.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay, burn_in: int,
        gamma: float,
    ) -> None:  # fmt: skip
        self._has_values = replay.initial_priorities is not None
        values = ("value", "max_value") if self._has_values else ()
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action", "first", "memory", *values)
        self._burn_in = burn_in
        self._gamma = gamma
        self._step["discount"] = np.zeros(lanes.num_lanes, np.float32)
        self._step["valid"] = np.zeros(lanes.num_lanes, np.bool_)
        self._step["terminated"] = np.zeros(lanes.num_lanes, np.bool_)  # the buffer's mark of an episode's last row
        self._padding = {name: np.zeros_like(array) for name, array in self._step.items()}
        self._final = {name: np.zeros_like(array) for name, array in self._step.items()}
        self._step["valid"].fill(True)
        self._final["terminated"].fill(True)

    def record(self) -> None:
        """Write the rows of the lanes' last step."""
        lanes, step = self.lanes, self._step
        rows = self.rows
        for name, column in self._columns.items():
            gather(column, rows, step[name])
        self._store_reward()
        np.multiply(~lanes.terminated, self._gamma, out=step["discount"])
        begins = step["first"] & lanes.valid
        if begins.any():
            for _ in range(self._burn_in):
                self._writer.add(**self._padding, mask=begins)
        self._add(step, lanes.valid)
        self._advance()
        ends = lanes.terminated | lanes.truncated
        if ends.any():
            self._add_final_rows(ends)
        self._finish_step()

    def _add_final_rows(self, ends: np.ndarray) -> None:
        lanes, final = self.lanes, self._final
        gather(self.arena.columns["obs"], self.rows, final["obs"])
        if lanes.finals.size:
            lanes.write_finals(final["obs"], lanes.finals)
        if self._has_values:
            final["max_value"][:] = np.where(lanes.truncated, np.nan, 0.0)  # unknown: no action follows
        self._add(final, ends)

    def _add(self, rows: dict[str, np.ndarray], mask: np.ndarray) -> None:
        """Add a row to each lane of a mask, and set the first priorities of finished sequences."""
        self._writer.add(**rows, mask=mask)
        give_priorities(self._replay, self._writer.written)
