"""Batches that algorithms learn from: of segments, of transitions, and of sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

PER_SEGMENT = ("memory", "lane", "replayed")
POINTS_IN_TIME = ("number", "progress")
"""Fields of a batch that depend on the progress of the run."""


@dataclass
class Batch:
    """Experience to learn from: B segments ``[T, B]``, or M transitions ``[M]`` taken out of them.

    Attributes
    ----------
    obs
        ``[T + 1, B, ...]``; the last row is the observation after the last transition. ``[M, ...]`` for transitions.
    first
        bool, as obs: the row begins an episode.
    action
        int64 ``[T, B]`` or float32 ``[T, B, d]``, as sampled.
    reward
        float32 ``[T, B]``, scaled and clipped for learning.
    terminated, truncated
        bool ``[T, B]``.
    valid
        bool ``[T, B]``: a real step (not the transition out of a final row, not padding).
    learn
        float32 ``[T, B]``: weight of the step in the loss. 0 for a step that is not learned from: not valid, of too
        large a policy lag and not replayed, or within the burn-in. Else 1, or the importance weight of a segment that
        was drawn by priority.
    log_prob
        float32 ``[T, B]``: of the action, under the policy that chose it.
    memory
        float32 ``[B, S]``: memory state at the start of each segment.
    lane
        int64 ``[B]``: number of each segment's lane.
    replayed
        bool ``[B]``: the segment is replayed. Fresh ones come first.
    records
        Columns that the algorithm recorded while acting, ``[T, B, ...]`` by name.
    targets
        Targets of the algorithm's loss, ``[T, B]`` by name.
    altered
        Additional columns of the data path (`PathMemory.columns`), ``[T, B, ...]`` by name; empty if it has altered no
        reward of the batch.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    """

    obs: Tensor
    first: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    learn: Tensor
    log_prob: Tensor
    memory: Tensor
    lane: Tensor
    replayed: Tensor
    records: dict[str, Tensor] = field(default_factory=dict)
    targets: dict[str, Tensor] = field(default_factory=dict)
    altered: dict[str, Tensor] = field(default_factory=dict)
    progress: float = 0.0

    @property
    def num_segments(self) -> int:
        """B."""
        return self.obs.shape[1]

    def segments(self, index: Tensor) -> Batch:
        """Return the batch of these segments (int64 indices into B)."""
        return self.map(lambda name, x: x[index] if name in PER_SEGMENT else x[:, index])

    def flatten(self) -> Batch:
        """Return all T * B transitions as one flat batch, without the last observations; `PER_SEGMENT` stays."""
        length = self.reward.shape[0]
        return self.map(lambda name, x: x if name in PER_SEGMENT else x[:length].flatten(0, 1))

    def transitions(self, index: Tensor) -> Batch:
        """Return the batch of these transitions of a flat batch (int64 indices)."""
        return self.map(lambda name, x: x if name in PER_SEGMENT else x[index])

    def map(self, change: Callable[[str, Tensor], Tensor]) -> Batch:
        """Return a batch with each tensor x replaced by ``change(name, x)``; name: its field, or its key in a dict."""
        changed: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, Tensor):
                changed[f.name] = change(f.name, value)
            elif isinstance(value, dict):
                changed[f.name] = {key: change(key, x) for key, x in value.items()}
        return replace(self, **changed)


@dataclass(frozen=True)
class TransitionBatch:
    """B transitions to learn from.

    Attributes
    ----------
    obs, next_obs
        ``[B, ...]``: the observation, and the one after the last of the transition's steps: the true final one where
        the episode was truncated; undefined where it terminated.
    action
        int64 ``[B]`` or float32 ``[B, d]`` in [-1, 1], the first step's.
    reward
        float32 ``[B]``: discounted sum over the steps, scaled and clipped for learning.
    discount
        float32 ``[B]``: ``gamma**m`` after m steps, 0 where the last of them terminated the episode.
    weights
        float32 ``[B]``: importance weights of prioritized replay; 1 without.
    number
        Number of the update, counted from 1 over the whole run.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    running_return
        float32 ``[B]``: discounted sum of the episode's rewards, up to the first step's, included; None: not stored.
    """

    obs: Tensor
    next_obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    weights: Tensor
    number: int
    progress: float
    running_return: Tensor | None = None

    @property
    def observed(self) -> tuple[Tensor, None]:
        """Observations for running normalisation, ``[B, ...]``; all count."""
        return self.obs, None


@dataclass(frozen=True)
class SequenceBatch:
    """B sequences to learn from, each of T successive rows of one episode and one more, time-major.

    Attributes
    ----------
    obs
        ``[T + 1, B, ...]``: observations. The one after an episode's last step is the true final one where the episode
        was truncated; undefined where it terminated.
    first
        bool ``[T + 1, B]``: the observation begins an episode, and memory is forgotten before it.
    action
        int64 ``[T, B]`` or float32 ``[T, B, d]``.
    reward
        float32 ``[T, B]``: of each step, scaled and clipped for learning.
    discount
        float32 ``[T, B]``: gamma, 0 where the step terminated the episode.
    valid
        bool ``[T, B]``: the row is a step. Rows before an episode's first and after its last one are not.
    memory
        float32 ``[B, S]``: memory state before row 0, as it was when the steps were taken.
    weights
        float32 ``[B]``: importance weights of prioritized replay; 1 without.
    number
        Number of the update, counted from 1 over the whole run.
    progress
        Fraction of ``total_steps`` learned from so far, for schedules.
    """

    obs: Tensor
    first: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    valid: Tensor
    memory: Tensor
    weights: Tensor
    number: int
    progress: float

    @property
    def observed(self) -> tuple[Tensor, Tensor]:
        """Observations for running normalisation, ``[T, B, ...]``, and which of them count."""
        return self.obs[:-1], self.valid


class Watched:
    """Batch that records reads of its `POINTS_IN_TIME`: a computation that depends on them cannot be replayed.

    Attributes
    ----------
    points_read
        Which of `POINTS_IN_TIME` have been read.
    """

    points_read: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in POINTS_IN_TIME:
            object.__setattr__(self, "points_read", self.points_read | {name})
        return super().__getattribute__(name)


def watched(batch: Any) -> Any:
    """Return a `Watched` batch of the same kind, with contiguous copies of the tensors."""
    kind: type = type(batch)
    copied: Any = object.__new__(_watched_kind(kind))
    vars(copied).update({name: _copy_of(value) for name, value in vars(batch).items()})
    return copied


@cache
def _watched_kind(kind: type) -> type:
    return type(f"Watched{kind.__name__}", (Watched, kind), {})


def _copy_of(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy_of(tensor) for name, tensor in value.items()}
    return value.clone(memory_format=torch.contiguous_format) if isinstance(value, Tensor) else value
