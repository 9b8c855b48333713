"""The replay of a run: its buffer, the rate limiter beside it, and what both say about how far the run is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import ExperienceArena
from penstock.replay import Field, RateLimiter, ReplayBuffer

FirstPriorities = Callable[..., np.ndarray]
"""Returns priorities of new rows, ``[N]``, not finite where none is known. It imports no torch. Called with reward,
discount, value and next_value of transitions, each float32 ``[N]``; or with reward, discount, value, max_value and
valid of sequences, each ``[N, T + 1]``."""

SHARED_FROM = 1024  # bytes of an observation from which on frames are compared, to lie in memory once


@dataclass(frozen=True)
class Replay:
    """Replay buffer of a run: written by rollout workers, sampled by the learner. Pickled as a handle.

    Steps are counted by the rate limiter, as they are taken; an n-step transition or a sequence is finished later.

    Attributes
    ----------
    buffer
        Transitions (obs, action, reward, next_obs, discount, and with `first_priorities` value and next_value), or
        sequences (see `sequence_fields`).
    limiter
        In samples per step. It counts the steps of all rollout workers and the samples of the learner.
    batch_size, updates_per_step
        Samples per update, and the ratio that is kept.
    saved_at
        Directory that a checkpoint writes the buffer to; None: nowhere.
    counted_from
        Steps of the run where the limiter began to count.
    steps_before
        Steps learned from when this run was resumed, if it was.
    batches_before
        Batches learned from by then, since the limiter began to count.
    reward_scale, reward_clip
        What is stored of a reward: ``clip(reward * scale, -clip, clip)``.
    first_priorities
        Finds the priorities that rollout workers give new rows; None: the largest so far.
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
    first_priorities: FirstPriorities | None = None

    @property
    def steps_taken(self) -> int:
        """Steps of the run that have been taken: what exploration is scheduled by."""
        return max(self.steps_before, self.counted_from + self.limiter.inserts)

    def steps_learned(self, batches: int) -> int:
        """Steps of the run that have been learned from, after so many batches since the limiter began to count.

        Those before the first update count as they are taken.
        """
        learned = min(self.limiter.inserts, int(self.limiter.min_size + batches / self.updates_per_step))
        return max(self.steps_before, self.counted_from + learned)

    def is_wanted(self, goal: int) -> bool:
        """Whether a step is on the way to the goal: until learning starts, the rate limiter lets in any number."""
        is_filling = self.limiter.inserts < self.limiter.min_size
        return not is_filling or self.steps_taken < goal

    def lets_in(self, num_steps: int, arena: ExperienceArena) -> bool:
        """Whether the rate limiter has room; not asked while the buffer is empty, because nobody can learn then.

        So it is where a worker was killed, and took with it what it had not finished.
        """
        return self.limiter.try_insert(num_steps) or not len(self.buffer)

    def row_writer(self, lanes: int, rows_per_step: int) -> RowWriter:
        """Make what writes transitions that stand for themselves, so many at most for each step of so many lanes."""
        return RowWriter(self.buffer)

    @property
    def calls_for_steps(self) -> bool:
        """Whether rollout workers that wait are to be woken: when half the band is empty, not for every single step."""
        return self.limiter.native.surplus <= 0.0

    def state(self, batches: int) -> dict[str, float]:
        """Progress of the replay, for a checkpoint."""
        counted = {"inserts": self.limiter.inserts, "batches": batches, "counted_from": self.counted_from}
        return counted | {"updates_per_step": self.updates_per_step, "min_size": self.limiter.min_size}

    def going_on(self, state: Mapping[str, Any], steps: int) -> Replay:
        """This replay, its buffer loaded, as far as it was when `state` was taken at so many steps of the run.

        Where another ratio, or another number of steps before the first update, is to be kept from now on, the limiter
        counts from now on.
        """
        limiter, samples, inserts = self.limiter, state["batches"] * self.batch_size, state["inserts"]
        kept = {"updates_per_step": self.updates_per_step, "min_size": limiter.min_size}
        if any(state.get(name, value) != value for name, value in kept.items()):
            limiter.restore({"inserts": min(inserts, limiter.min_size), "samples": 0})
            return self.refilled(steps)
        # A batch that was drawn and not learned from any more is drawn again: there may be more steps than that allows.
        while (inserts - limiter.min_size) * limiter.samples_per_insert - samples > limiter.tolerance:
            inserts -= 1
        limiter.restore({"inserts": inserts, "samples": samples})
        counted_from, batches = state["counted_from"], state["batches"]
        return replace(self, counted_from=counted_from, steps_before=steps, batches_before=batches)

    def refilled(self, steps: int) -> Replay:
        """This replay, empty at so many steps of the run: those that fill it stand for steps learned from before."""
        return replace(self, counted_from=max(0, steps - self.limiter.min_size), steps_before=steps)

    def scale(self, reward: np.ndarray, out: np.ndarray) -> None:
        """Write rewards, float32 ``[N]``, into `out` as they are stored."""
        np.multiply(reward, self.reward_scale, out=out)
        if self.reward_clip is not None:
            np.clip(out, -self.reward_clip, self.reward_clip, out=out)

    @property
    def measured_ratio(self) -> float:
        """Updates made for each step taken since the first update; 0 before."""
        return self.limiter.ratio / self.batch_size


class RowWriter:
    """Writes transitions that stand for themselves, beside those of the lanes.

    Parameters
    ----------
    buffer
        Of single steps.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._writer = buffer.writer()

    def add(self, **rows: np.ndarray) -> None:
        """Write K transitions, ``[K, ...]`` by field."""
        self._writer.add(**rows)
        self._writer.end_episode()

    def go_on(self, num_steps: int) -> None:
        """Hear that lanes have taken so many steps: nothing waits for it here."""


def transition_fields(observation: ObservationSpec, action: ActionSpec, *, with_values: bool) -> dict[str, Field]:
    """Fields of a transition. Large observations lie in memory once; stacks of frames, frame by frame."""
    number = Field((), "float32")
    fields = {
        "obs": observation_field(observation),
        "action": Field(action.column_shape, action.column_dtype),
        "reward": number,
        "next_obs": Field(observation.shape, observation.dtype, next_of="obs"),
    }
    return fields | ({"value": number, "next_value": Field((), "float32", next_of="value")} if with_values else {})


def observation_field(observation: ObservationSpec) -> Field:
    """Field of an observation: a large one lies in memory once, a stack of frames frame by frame."""
    shape, dtype = observation.shape, observation.dtype
    is_large = math.prod(shape) * np.dtype(dtype).itemsize >= SHARED_FROM
    is_stack = is_large and observation.is_stacked
    return Field(shape, dtype, stack=0 if is_stack else None, shared=is_large and not is_stack)
