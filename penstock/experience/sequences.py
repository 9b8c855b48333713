"""Writing sequences: what the lanes of a group bring goes into the replay buffer as rows of successive steps."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.run_replay import Replay, observation_field
from penstock.experience.transitions import StepWriter
from penstock.ipc import gather
from penstock.replay import Field

PRIORITY_FIELDS = ("reward", "discount", "value", "max_value", "valid")  # what first priorities are found from


def sequence_fields(
    observation: ObservationSpec, action: ActionSpec, state_size: int, *, with_values: bool
) -> dict[str, Field]:
    """Fields of a sequence: each row of it holds a step, or what stands before and behind the steps of an episode.

    Parameters
    ----------
    observation, action
        What a lane shows and takes.
    state_size
        Width ``S`` of the memory state, of which a sequence holds that before its first row.
    with_values
        Whether first priorities are found from the values that actions were chosen by.
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
    """Writes the rows of which the replay buffer makes sequences.

    An episode of N steps is these rows:

    ==================  =======================================  =====  ================================================
    rows                observation                              valid  what for
    ==================  =======================================  =====  ================================================
    `burn_in`           zeros                                    no     no step is so early that it is in burn-ins alone
    N                   what the step's action was chosen on     yes    the steps; the first of them has ``first``
    1, the final row    the true last one; if the episode         no     the last step is a row with a next one
                        terminated, of no meaning
    ==================  =======================================  =====  ================================================

    ``discount`` is gamma, and 0 where a step terminated its episode. The memory state of the padding is zeros, and is
    forgotten where ``first`` is.

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
        self,
        arena: ExperienceArena,
        worker: int,
        lanes: Lanes,
        first_lane: int,
        replay: Replay,
        burn_in: int,
        gamma: float,
    ) -> None:
        self._has_values = replay.first_priorities is not None
        values = ("value", "max_value") if self._has_values else ()
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action", "first", "memory", *values)
        self._burn_in = burn_in
        self._gamma = gamma
        self._step["discount"] = np.zeros(lanes.num_lanes, np.float32)
        self._step["valid"] = np.zeros(lanes.num_lanes, np.bool_)
        self._step["terminated"] = np.zeros(lanes.num_lanes, np.bool_)  # the buffer's word for an episode's last row
        self._padding = {name: np.zeros_like(array) for name, array in self._step.items()}
        self._final = {name: np.zeros_like(array) for name, array in self._step.items()}
        self._step["valid"].fill(True)
        self._final["terminated"].fill(True)

    def record(self) -> None:
        """Write what the lanes' last step brought."""
        lanes, step = self.lanes, self._step
        rows = self.rows
        for name, column in self._columns.items():
            gather(column, rows, step[name])
        self._settle_reward()
        np.multiply(~lanes.terminated, self._gamma, out=step["discount"])
        begins = step["first"] & lanes.valid
        if begins.any():
            for _ in range(self._burn_in):
                self._writer.add(**self._padding, mask=begins)
        self._add(step, lanes.valid)
        self._move_on()
        ends = lanes.terminated | lanes.truncated
        if ends.any():
            self._add_final_rows(ends)
        self._is_written()

    def _add_final_rows(self, ends: np.ndarray) -> None:
        lanes, final = self.lanes, self._final
        gather(self.arena.columns["obs"], self.rows, final["obs"])
        if lanes.finals.size:
            lanes.write_finals(final["obs"], lanes.finals)
        if self._has_values:
            final["max_value"][:] = np.where(lanes.truncated, np.nan, 0.0)  # nobody acts on it: it is not known
        self._add(final, ends)

    def _add(self, rows: dict[str, np.ndarray], mask: np.ndarray) -> None:
        """Add a row to each lane of a mask; give the sequences that this finishes the priorities that they call for."""
        self._writer.add(**rows, mask=mask)
        give_priorities(self._replay, self._writer.written)


def give_priorities(replay: Replay, written: np.ndarray) -> None:
    """Give sequences (ids, int64 ``[N]``) the priorities that they call for, where these are known."""
    buffer, first_priorities = replay.buffer, replay.first_priorities
    if first_priorities is None or not len(written):
        return
    with suppress(KeyError):  # overwritten already: there is nothing to set
        found = buffer.get(written, fields=PRIORITY_FIELDS)
        priorities = first_priorities(*(found[name] for name in PRIORITY_FIELDS))
        known = np.isfinite(priorities)
        buffer.update_priorities(found["ids"][known], priorities[known])
