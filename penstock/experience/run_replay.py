"""Replay of a run: its buffer, its rate limiter, the progress that both define, and the writers of lanes' steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.envs.lanes import Lanes
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.ipc import gather
from penstock.replay import Field, RateLimiter, ReplayBuffer

InitialPriorities = Callable[..., np.ndarray]
"""Function that returns priorities of new rows, ``[N]``, not finite where unknown. It imports no torch. Arguments are
reward, discount, value and next_value of transitions, each float32 ``[N]``; or reward, discount, value, max_value and
valid of sequences, each ``[N, T + 1]``."""
OF_TRANSITIONS = ("reward", "discount", "value", "next_value")
OF_SEQUENCES = ("reward", "discount", "value", "max_value", "valid")

SHARED_FROM = 1024  # bytes of an observation from which on equal frames are stored once


@dataclass(frozen=True)
class Replay:
    """Replay buffer of a run: written by rollout workers, sampled by the learner. Pickled as a handle.

    The rate limiter counts steps when they are taken; n-step transitions and sequences of them are finished later.

    Attributes
    ----------
    buffer
        Transitions (obs, action, reward, next_obs, discount, and with `initial_priorities` value and next_value), or
        sequences (see `sequence_fields`).
    limiter
        Rate limiter, in samples per step: it counts the steps of all rollout workers and the samples of the learner.
    batch_size, updates_per_step
        Samples per update, and updates per step.
    saved_at
        Directory of the buffer's contents beside checkpoints; None: not saved.
    counted_from
        Steps of the run when the limiter began to count.
    steps_before
        Steps learned from when the run was resumed; 0: not resumed.
    batches_before
        Batches learned from by then, since the limiter began to count.
    reward_scale, reward_clip
        Stored rewards are ``clip(reward * scale, -clip, clip)``.
    initial_priorities
        Function that returns the priorities of new rows; None: they begin with the largest so far.
    return_discount
        Discount of the running returns that are stored beside rewards; None: none are stored.
    """

    buffer: ReplayBuffer
    limiter: RateLimiter
    batch_size: int
    updates_per_step: float
    saved_at: Path | None = None
    counted_from: int = 0
    steps_before: int = 0
    batches_before: int = 0
    reward_scale: float = 1.0
    reward_clip: float | None = None
    initial_priorities: InitialPriorities | None = None
    return_discount: float | None = None

    @property
    def steps_taken(self) -> int:
        """Steps of the run that have been taken."""
        return max(self.steps_before, self.counted_from + self.limiter.native.inserts)

    def steps_of_exploration(self, learned: int, asked: int) -> int:
        """Return the steps for the schedule of exploration: those taken, without the `asked` steps under way."""
        return max(0, self.steps_taken - asked)

    def steps_learned(self, batches: int) -> int:
        """Return the steps of the run learned from, after `batches` batches since the limiter began to count.

        Steps before the first update count as they are taken.
        """
        counts = self.limiter.native
        learned = min(counts.inserts, int(counts.min_size + batches / self.updates_per_step))
        return max(self.steps_before, self.counted_from + learned)

    def is_wanted(self, goal: int) -> bool:
        """Return whether the goal needs more steps: until learning starts, the rate limiter admits any number."""
        counts = self.limiter.native
        return counts.inserts >= counts.min_size or self.steps_taken < goal

    def admit(self, num_steps: int, arena: ExperienceArena) -> bool:
        """Count steps if the rate limiter has room, and return whether it has.

        An empty buffer always has room, because nothing can be learned: a worker that was killed took its unfinished
        steps with it.
        """
        return self.limiter.native.try_insert(num_steps) or not len(self.buffer)

    def row_writer(self, lanes: int, rows_per_step: int) -> RowWriter:
        """Make the writer of independent transitions, at most `rows_per_step` for each step of each lane."""
        return RowWriter(self.buffer)

    @property
    def needs_steps(self) -> bool:
        """Whether to wake waiting rollout workers: when half of the limiter's range is free, not for every step."""
        return self.limiter.native.surplus <= 0.0

    def state(self, batches: int) -> dict[str, float]:
        """Return the progress of the replay, for a checkpoint."""
        counted = {"inserts": self.limiter.inserts, "batches": batches, "counted_from": self.counted_from}
        return counted | {"updates_per_step": self.updates_per_step, "min_size": self.limiter.min_size}

    def going_on(self, state: Mapping[str, Any], steps: int) -> Replay:
        """Return this replay with the progress of `state`, taken at `steps` steps of the run; the buffer is loaded.

        If the ratio or the number of steps before the first update has changed, the limiter counts anew.
        """
        limiter, samples, inserts = self.limiter, state["batches"] * self.batch_size, state["inserts"]
        kept = {"updates_per_step": self.updates_per_step, "min_size": limiter.min_size}
        if any(state.get(name, value) != value for name, value in kept.items()):
            limiter.restore({"inserts": min(inserts, limiter.min_size), "samples": 0})
            return self.refilled(steps)
        # A batch that was drawn but not learned from is drawn again: there may be more steps than that allows.
        while (inserts - limiter.min_size) * limiter.samples_per_insert - samples > limiter.tolerance:
            inserts -= 1
        limiter.restore({"inserts": inserts, "samples": samples})
        counted_from, batches = state["counted_from"], state["batches"]
        return replace(self, counted_from=counted_from, steps_before=steps, batches_before=batches)

    def refilled(self, steps: int) -> Replay:
        """Return this replay, empty at `steps` steps of the run: the steps that refill it count as earlier ones."""
        return replace(self, counted_from=max(0, steps - self.limiter.min_size), steps_before=steps)

    def scale(self, reward: np.ndarray, out: np.ndarray) -> None:
        """Scale and clip rewards, float32 ``[N]``, into `out`."""
        np.multiply(reward, self.reward_scale, out=out)
        if self.reward_clip is not None:
            np.clip(out, -self.reward_clip, self.reward_clip, out=out)

    @property
    def measured_ratio(self) -> float:
        """Updates made for each step taken since the first update; 0 before."""
        counts = self.limiter.native
        beyond = counts.inserts - counts.min_size
        return counts.samples / beyond / self.batch_size if beyond > 0 else 0.0


class RowWriter:
    """Writes independent transitions, beside those of the lanes, into a buffer of single steps."""

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._writer = buffer.writer()

    def add(self, **rows: np.ndarray) -> None:
        """Write K transitions, ``[K, ...]`` by field."""
        self._writer.add(**rows)
        self._writer.end_episode()

    def send_due(self, num_steps: int) -> None:
        """Do nothing: no row waits for the lanes' steps."""


def transition_fields(
    observation: ObservationSpec, action: ActionSpec, *, with_values: bool, with_returns: bool = False
) -> dict[str, Field]:
    """Return the fields of a transition; see `observation_field` for the storage of observations."""
    number = Field((), "float32")
    fields = {
        "obs": observation_field(observation),
        "action": Field(action.column_shape, action.column_dtype),
        "reward": number,
        "next_obs": Field(observation.shape, observation.dtype, next_of="obs"),
    }
    if with_values:
        fields |= {"value": number, "next_value": Field((), "float32", next_of="value")}
    return fields | ({"running_return": number} if with_returns else {})


def observation_field(observation: ObservationSpec) -> Field:
    """Return the field of an observation: a large one is stored once, a stack of frames frame by frame."""
    shape, dtype = observation.shape, observation.dtype
    is_large = math.prod(shape) * np.dtype(dtype).itemsize >= SHARED_FROM
    is_stack = is_large and observation.is_stacked
    return Field(shape, dtype, stack=0 if is_stack else None, shared=is_large and not is_stack)


class StepWriter:
    """Base of writers into the replay buffer: the rows of a group's lanes, and the admission of their steps.

    Each lane has a slot of two rows, used in turn: one holds the current observation, the other the previous one. The
    rate limiter admits steps before their actions are chosen, so that no lane holds a step that it may not write.

    Parameters
    ----------
    arena
        Arena of the policy, with segments of one step.
    worker
        Number of the rollout worker, owner of the slots.
    lanes
        Lanes of the group.
    first_lane
        Number of the group's first lane in the run.
    replay
        Replay that steps are written to.
    columns
        Names of the arena's columns to store, from the row in which an action was chosen.
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
        """Admit one step of every lane; return False while the learner is behind, or slots are taken."""
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
        self.is_open = num_steps == 0 or (is_wanted and self._admit(num_steps))
        return self.is_open

    def _admit(self, num_steps: int) -> bool:
        return self._replay.admit(num_steps, self.arena)

    def restart_if_fenced(self) -> None:
        """Do nothing: experience in a replay buffer may come from any policy, even of an earlier run epoch."""

    def flush(self) -> None:
        """Do nothing: no role waits for these lanes."""

    def record(self) -> None:
        """Write the lanes' last step."""
        raise NotImplementedError

    def _store_reward(self) -> None:
        self._replay.scale(self.lanes.reward, self._step["reward"])

    def _advance(self) -> None:
        """Switch the lanes that have moved to their other rows, and write the current observations there."""
        self._turn ^= self.lanes.moved
        self._show()

    def _show(self) -> None:
        rows = self.rows
        self.lanes.write_observations(self.arena.columns["obs"], rows)
        self.arena.columns["first"][rows] = self.lanes.first

    def _finish_step(self) -> None:
        """Close the writer until the next step is admitted, and wake the learner."""
        self.is_open = False
        self.arena.learner_bell.ring()


class TransitionWriter(StepWriter):
    """Writes transitions; parameters are those of `StepWriter`, without the columns."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        values = () if replay.initial_priorities is None else ("value",)
        super().__init__(arena, worker, lanes, first_lane, replay, "obs", "action", *values)
        self._step["next_obs"] = np.zeros_like(self._step["obs"])
        if replay.return_discount is not None:
            self._step["running_return"] = np.zeros(lanes.num_lanes, np.float32)
            self._return_before = np.zeros(lanes.num_lanes, np.float32)
        self._held: dict[str, np.ndarray] | None = None

    def record(self) -> None:
        lanes, step, replay = self.lanes, self._step, self._replay
        if self._held is not None:
            self._write_held()
        rows = self.rows
        for name, column in self._columns.items():
            gather(column, rows, step[name])
        self._store_reward()
        self._advance()
        gather(self.arena.columns["obs"], self.rows, step["next_obs"])
        if lanes.finals.size:
            lanes.write_finals(step["next_obs"], lanes.finals)
        signals = {"terminated": lanes.terminated, "truncated": lanes.truncated, "mask": lanes.valid}
        if replay.initial_priorities is not None:
            self._held = {name: array.copy() for name, array in signals.items()} | {"finals": lanes.finals.copy()}
        else:
            self._writer.add(**step, **signals)
        self._finish_step()

    def _store_reward(self) -> None:
        super()._store_reward()
        if self._replay.return_discount is not None:
            self._store_return(self._replay.return_discount)

    def _store_return(self, discount: float) -> None:
        """Store each lane's ``G_t = r_t + discount G_{t-1}``; G is 0 again after a step that ends an episode."""
        lanes, found, before = self.lanes, self._step["running_return"], self._return_before
        found[:] = self._step["reward"] + np.float32(discount) * before
        ends = lanes.terminated | lanes.truncated
        np.copyto(before, np.where(ends, np.float32(0.0), found), where=lanes.valid)

    def _write_held(self) -> None:
        """Write the previous step with its priorities, when the values of the observations after it are known.

        Where an episode was truncated and the next one shown at once, the value of the final observation is unknown:
        such transitions begin with the largest priority, as all do without first priorities.
        """
        assert self._held is not None
        held, self._held = self._held, None
        finals = held.pop("finals")
        next_value = self.arena.columns["max_value"][self.rows]
        next_value[finals] = np.nan
        self._writer.add(**self._step, next_value=next_value, **held)
        give_priorities(self._replay, self._writer.written)


def give_priorities(replay: Replay, written: np.ndarray) -> None:
    """Set the first priorities of new rows (ids, int64 ``[N]``), transitions or sequences, where they are known."""
    buffer, initial_priorities = replay.buffer, replay.initial_priorities
    if initial_priorities is None or not len(written):
        return
    arguments = OF_SEQUENCES if "valid" in buffer.fields else OF_TRANSITIONS
    with suppress(KeyError):  # overwritten already
        rows = buffer.get(written, fields=tuple(name for name in arguments if name in buffer.fields))
        priorities = initial_priorities(*(rows[name] for name in arguments))
        known = np.isfinite(priorities)
        buffer.update_priorities(rows["ids"][known], priorities[known])
