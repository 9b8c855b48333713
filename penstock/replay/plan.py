"""Layout of a buffer's bytes, derived from its settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from penstock.replay.settings import (
    Elite,
    Field,
    NStep,
    Prioritized,
    Reservoir,
    Sampler,
    Sequences,
    check_names,
    check_settings,
)

_FIRST, _SUM, _LAST = 0, 1, 2
_FRAMES_SPARE = 1.125


@dataclass(frozen=True)
class FieldPlan:
    """Layout of one field; read by the native core."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    batch_shape: tuple[int, ...]
    step_nbytes: int
    stored_nbytes: int
    offset: int
    taken: int  # value of an n-step row: _FIRST, _SUM or _LAST
    letter: str  # character code of the dtype
    once: bool  # only the first step's value of a sequence is kept
    frame_store: int  # -1: not stored as frames
    outer: int  # a value's bytes are [outer, depth, inner], with frames along the middle
    depth: int
    inner: int


@dataclass(frozen=True)
class Plan:
    """Layout shared by all processes of a buffer; read by the native core."""

    capacity: int
    fields: tuple[FieldPlan, ...]
    frame_stores: tuple[tuple[int, int], ...]  # capacity, bytes of a frame
    record_nbytes: int
    episode_offset: int
    discount_offset: int
    steps_offset: int
    n_step: int
    gamma: float
    length: int
    period: int
    reservoir: bool
    group: int
    prioritized: bool
    alpha: float
    eps: float
    by_batch: bool
    stratified: bool
    eviction_alpha: float | None
    terminated: str
    truncated: str
    lenient: bool


def make_plan(
    capacity: int, fields: Mapping[str, Field], *, sampler: Sampler, n_step: NStep | None, sequences: Sequences | None,
    frame_capacity: int | None = None, terminated: str = "terminated", truncated: str = "truncated",
    lenient: bool = False,
) -> Plan:  # fmt: skip
    """Return the layout for these settings.

    Raises
    ------
    ValueError, TypeError
        A setting is not legal; the message names it, the value found and legal ones.
    """
    check_settings(capacity, fields, sampler=sampler, n_step=n_step, sequences=sequences, frame_capacity=frame_capacity)
    check_names(fields, sampler, n_step, lenient)
    capacity = int(capacity)
    length = int(sequences.length) if sequences else 0
    plans, stores, end = _plan_fields(
        fields, length, n_step.rewards if n_step else (), (terminated, truncated),
        lambda depth: int(frame_capacity or _frame_capacity(capacity, depth, sequences, n_step)),
    )  # fmt: skip
    episode_offset = -(-end // 8) * 8
    return Plan(
        capacity=capacity, fields=tuple(plans[name] for name in fields), frame_stores=tuple(stores),
        record_nbytes=episode_offset + 16, episode_offset=episode_offset, discount_offset=episode_offset + 8,
        steps_offset=episode_offset + 12, n_step=int(n_step.steps) if n_step else 0,
        gamma=float(n_step.gamma) if n_step else 1.0, length=length, period=int(sequences.period) if sequences else 0,
        reservoir=isinstance(sampler, Reservoir), group=int(sampler.group) if isinstance(sampler, Elite) else 0,
        prioritized=isinstance(sampler, Prioritized),
        alpha=float(sampler.alpha) if isinstance(sampler, Prioritized) else 0.0,
        eps=float(sampler.eps) if isinstance(sampler, Prioritized) else 0.0,
        by_batch=isinstance(sampler, Prioritized) and sampler.normalize == "batch",
        stratified=isinstance(sampler, Prioritized) and sampler.stratified, eviction_alpha=_eviction_alpha(sampler),
        terminated=terminated, truncated=truncated, lenient=lenient,
    )  # fmt: skip


def _plan_fields(
    fields: Mapping[str, Field], length: int, rewards: Collection[str], boundaries: tuple[str, str],
    frames_of: Callable[[int], int],
) -> tuple[dict[str, FieldPlan], list[tuple[int, int]], int]:  # fmt: skip
    """Lay out the fields of a record, those that succeed another one (``next_of``) last.

    Parameters
    ----------
    fields, length
        Fields, and the steps of a sequence, 0 without sequences.
    rewards, boundaries
        Names of the fields that n-step transitions sum, and of those that end an episode.
    frames_of
        Number of frames in a store, by the depth of its stacks.

    Returns
    -------
    plans : dict of str to FieldPlan
    stores : list of tuple of int
        Capacity and bytes per frame of each frame store.
    end : int
        Size of a record's fields in bytes.
    """
    plans: dict[str, FieldPlan] = {}
    stores: list[tuple[int, int]] = []
    store_of: dict[str, int] = {}
    offset = 0
    for name, field in sorted(fields.items(), key=lambda item: item[1].next_of is not None):
        origin = fields[field.next_of] if field.next_of is not None else field
        dtype, shape = np.dtype(field.dtype), tuple(int(length) for length in field.shape)
        step_nbytes = dtype.itemsize * math.prod(shape)
        outer, depth, inner = _frames(shape, dtype, origin.stack)
        frame_store = -1
        if origin.stack is not None or origin.shared:
            first_of = field.next_of if field.next_of is not None else name
            if first_of not in store_of:
                store_of[first_of] = len(stores)
                stores.append((frames_of(depth), outer * inner))
            frame_store = store_of[first_of]
        stored_nbytes = 8 * depth if frame_store >= 0 else step_nbytes
        alignment = 8 if frame_store >= 0 else min(8, dtype.alignment)
        offset = -(-offset // alignment) * alignment
        once = field.first
        in_row = length if length and not once else 1
        plans[name] = FieldPlan(
            name=name,
            dtype=dtype,
            shape=shape,
            batch_shape=(length, *shape) if length and not once else shape,
            step_nbytes=step_nbytes,
            stored_nbytes=stored_nbytes,
            offset=offset,
            taken=_SUM if name in rewards else _LAST if field.next_of or name in boundaries else _FIRST,
            letter=dtype.char,
            once=once,
            frame_store=frame_store,
            outer=outer,
            depth=depth,
            inner=inner,
        )
        offset += in_row * stored_nbytes
    return plans, stores, offset


def describe(
    plan: Plan, fields: Mapping[str, Field], sampler: Sampler, n_step: NStep | None, sequences: Sequences | None
) -> dict[str, Any]:
    """Return all properties that determine the meaning of stored bytes, for comparison with a file."""
    evicted = {} if plan.eviction_alpha is None else {"eviction_alpha": plan.eviction_alpha}
    return {
        "capacity": plan.capacity,
        "fields": {
            name: {
                **asdict(field),
                "shape": [int(length) for length in field.shape],
                "dtype": np.dtype(field.dtype).str,
                "stack": None if field.stack is None else int(field.stack),
            }
            for name, field in fields.items()
        },
        "sampler": type(sampler).__name__,
        "alpha": plan.alpha,
        "eps": plan.eps,
        **evicted,
        "n_step": {"steps": plan.n_step, "gamma": plan.gamma, "reward": n_step.reward} if n_step else None,
        "sequences": {"length": plan.length, "period": plan.period} if sequences else None,
        "offsets": {field.name: field.offset for field in plan.fields},
    }


def _eviction_alpha(sampler: Sampler) -> float | None:
    if not isinstance(sampler, Prioritized) or sampler.eviction_alpha is None:
        return None
    return float(sampler.eviction_alpha)


def _frames(shape: tuple[int, ...], dtype: np.dtype, stack: int | None) -> tuple[int, int, int]:
    """Return a value's shape in bytes as [outer, depth, inner], with frames along the middle."""
    if stack is None:
        return 1, 1, dtype.itemsize * math.prod(shape)
    axis = int(stack) % len(shape)
    return math.prod(shape[:axis]), shape[axis], dtype.itemsize * math.prod(shape[axis + 1 :])


def _frame_capacity(capacity: int, depth: int, sequences: Sequences | None, n_step: NStep | None) -> int:
    """Return the number of frames for all rows: one per step, spare ones for ends of episodes, and older shared ones.

    Of the latter, each lane has as many as a row looks back; room for 128 lanes costs little.
    """
    steps = capacity * (sequences.period if sequences else 1)
    window = sequences.length if sequences else n_step.steps if n_step else 1
    return math.ceil(steps * _FRAMES_SPARE) + 128 * (depth + window)
