"""Where each byte of a buffer lies: the plan that follows from the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from penstock.replay.settings import Field, NStep, Prioritized, Reservoir, Reverse, Sampler, Sequences

_FIRST, _SUM, _LAST = 0, 1, 2
_MAX_DEPTH = 64
_FRAMES_SPARE = 1.125


@dataclass(frozen=True)
class FieldPlan:
    """Where one field lies; read by the native core."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    batch_shape: tuple[int, ...]
    step_nbytes: int
    stored_nbytes: int
    offset: int
    taken: int
    letter: str
    once: bool
    frame_store: int
    outer: int
    depth: int
    inner: int


@dataclass(frozen=True)
class Plan:
    """Everything the processes of a buffer agree on; read by the native core."""

    capacity: int
    fields: tuple[FieldPlan, ...]
    frame_stores: tuple[tuple[int, int], ...]
    record_nbytes: int
    episode_offset: int
    discount_offset: int
    steps_offset: int
    n_step: int
    gamma: float
    length: int
    period: int
    reservoir: bool
    prioritized: bool
    alpha: float
    eps: float
    by_batch: bool
    stratified: bool
    terminated: str
    truncated: str
    lenient: bool


def make_plan(
    capacity: int,
    fields: Mapping[str, Field],
    *,
    sampler: Sampler,
    n_step: NStep | None,
    sequences: Sequences | None,
    frame_capacity: int | None = None,
    terminated: str = "terminated",
    truncated: str = "truncated",
    lenient: bool = False,
) -> Plan:
    """The plan for these settings.

    Raises
    ------
    ValueError, TypeError
        If a setting is not legal: names it, what was found and what would be.
    """
    _check(capacity, fields, sampler, n_step, sequences)
    _check_names(fields, sampler, n_step, sequences, lenient)
    if frame_capacity is not None and frame_capacity < 1:
        raise ValueError(f"frame_capacity={frame_capacity} is not legal: give 1 or more, or None")
    capacity = int(capacity)
    rewards = _rewards(n_step)
    length = sequences.length if sequences else 0
    boundaries = (terminated, truncated)
    plans: list[FieldPlan] = []
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
                stores.append((frame_capacity or _frame_capacity(capacity, depth, sequences, n_step), outer * inner))
            frame_store = store_of[first_of]
        stored_nbytes = 8 * depth if frame_store >= 0 else step_nbytes
        alignment = 8 if frame_store >= 0 else min(8, dtype.alignment)
        offset = -(-offset // alignment) * alignment
        once = field.first
        in_row = length if length and not once else 1
        plans.append(
            FieldPlan(
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
        )
        offset += in_row * stored_nbytes
    place = {plan.name: plan for plan in plans}
    episode_offset = -(-offset // 8) * 8
    return Plan(
        capacity=capacity,
        fields=tuple(place[name] for name in fields),
        frame_stores=tuple(stores),
        record_nbytes=episode_offset + 16,
        episode_offset=episode_offset,
        discount_offset=episode_offset + 8,
        steps_offset=episode_offset + 12,
        n_step=n_step.steps if n_step else 0,
        gamma=float(n_step.gamma) if n_step else 1.0,
        length=length,
        period=sequences.period if sequences else 0,
        reservoir=isinstance(sampler, Reservoir),
        prioritized=isinstance(sampler, Prioritized),
        alpha=float(sampler.alpha) if isinstance(sampler, Prioritized) else 0.0,
        eps=float(sampler.eps) if isinstance(sampler, Prioritized) else 0.0,
        by_batch=isinstance(sampler, Prioritized) and sampler.normalize == "batch",
        stratified=isinstance(sampler, Prioritized) and sampler.stratified,
        terminated=terminated,
        truncated=truncated,
        lenient=lenient,
    )


def describe(
    plan: Plan, fields: Mapping[str, Field], sampler: Sampler, n_step: NStep | None, sequences: Sequences | None
) -> dict[str, Any]:
    """What decides the meaning of every stored byte, as plain data, to be compared with that in a file."""
    return {
        "capacity": plan.capacity,
        "fields": {
            name: {**asdict(field), "shape": list(field.shape), "dtype": np.dtype(field.dtype).str}
            for name, field in fields.items()
        },
        "sampler": type(sampler).__name__,
        "alpha": plan.alpha,
        "eps": plan.eps,
        "n_step": asdict(n_step) if n_step else None,
        "sequences": asdict(sequences) if sequences else None,
        "offsets": {field.name: field.offset for field in plan.fields},
    }


def _frames(shape: tuple[int, ...], dtype: np.dtype, stack: int | None) -> tuple[int, int, int]:
    """A value seen as [outer, depth, inner] bytes, its frames along the middle."""
    if stack is None:
        return 1, 1, dtype.itemsize * math.prod(shape)
    axis = stack % len(shape)
    return math.prod(shape[:axis]), shape[axis], dtype.itemsize * math.prod(shape[axis + 1 :])


def _frame_capacity(capacity: int, depth: int, sequences: Sequences | None, n_step: NStep | None) -> int:
    """Frames for all rows: one per step, some for the ends of episodes, and those that the newest steps still share."""
    steps = capacity * (sequences.period if sequences else 1)
    window = sequences.length if sequences else n_step.steps if n_step else 1
    return math.ceil(steps * _FRAMES_SPARE) + 8 * (depth + window)


def _rewards(n_step: NStep | None) -> tuple[str, ...]:
    if n_step is None:
        return ()
    return (n_step.reward,) if isinstance(n_step.reward, str) else tuple(n_step.reward)


def _check(
    capacity: int,
    fields: Mapping[str, Field],
    sampler: Sampler,
    n_step: NStep | None,
    sequences: Sequences | None,
) -> None:
    if not isinstance(capacity, Integral) or isinstance(capacity, bool) or not 1 <= capacity < 2**40:
        raise ValueError(f"capacity={capacity!r} is not legal: give a whole number of rows, 1 or more")
    if not fields:
        raise ValueError("fields is empty: name at least one, e.g. {'obs': Field((4,)), 'action': Field((), 'int64')}")
    for name, field in fields.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} of a field is no string")
        if not isinstance(field, Field):
            raise TypeError(f"fields[{name!r}] is {field!r}: give a Field(shape, dtype)")
        _check_field(name, field, fields, sequences)
    if not isinstance(sampler, Sampler):
        raise TypeError(f"sampler={sampler!r} is not legal: give Uniform(), Prioritized(), Reverse() or Reservoir()")
    if isinstance(sampler, Prioritized):
        _check_prioritized(sampler)
    if isinstance(sampler, Reverse) and sampler.stride < 1:
        raise ValueError(f"Reverse(stride={sampler.stride}) is not legal: give 1 or more")
    if n_step is not None:
        _check_n_step(n_step, fields, sequences)
    if sequences is not None and not (sequences.length >= 1 and sequences.period >= 1):
        raise ValueError(f"{sequences} is not legal: length and period must be 1 or more")


def _check_names(
    fields: Mapping[str, Field], sampler: Sampler, n_step: NStep | None, sequences: Sequences | None, lenient: bool
) -> None:
    """No field may have a name that ``add`` or the batches of this buffer use themselves."""
    taken = ["priorities"]
    taken += [] if lenient else ["ids", "mask"]
    taken += ["weights", "indexes"] if isinstance(sampler, Prioritized) else []
    taken += ["discount"] if n_step else []
    for name in fields:
        if name in taken:
            raise ValueError(f"fields[{name!r}]: the name is used by the buffer itself, as are {', '.join(taken)}")


def _check_field(name: str, field: Field, fields: Mapping[str, Field], sequences: Sequences | None) -> None:
    try:
        dtype = np.dtype(field.dtype)
    except TypeError:
        raise TypeError(f"fields[{name!r}] has dtype={field.dtype!r}, which NumPy does not know") from None
    if not isinstance(field.shape, tuple | list):
        raise TypeError(f"fields[{name!r}] has shape={field.shape!r}: give a tuple of lengths, () for a number")
    if dtype.hasobject or dtype.names is not None or dtype.char not in "?bBhHiIlLqQefdgFDG":
        raise ValueError(f"fields[{name!r}] has dtype {dtype}: a buffer holds plain numbers and bools")
    if not dtype.isnative:
        raise ValueError(f"fields[{name!r}] has dtype {dtype.str} in foreign byte order: use {dtype.newbyteorder('=')}")
    if any(length < 1 for length in field.shape):
        raise ValueError(f"fields[{name!r}] has shape {field.shape}: every length must be 1 or more")
    if field.stack is not None:
        if not -len(field.shape) <= field.stack < len(field.shape):
            raise ValueError(f"fields[{name!r}] has stack={field.stack}, but {len(field.shape)} axes in {field.shape}")
        if field.shape[field.stack] > _MAX_DEPTH:
            raise ValueError(f"fields[{name!r}] stacks {field.shape[field.stack]} frames: at most {_MAX_DEPTH} can be")
    if field.next_of is not None:
        origin = fields.get(field.next_of)
        if origin is None or origin.next_of is not None or field.next_of == name:
            legal = [other for other, each in fields.items() if each.next_of is None and other != name]
            raise ValueError(f"fields[{name!r}] has next_of={field.next_of!r}: give one of {legal}")
        if (tuple(field.shape), dtype) != (tuple(origin.shape), np.dtype(origin.dtype)):
            raise ValueError(
                f"fields[{name!r}] is {dtype}{list(field.shape)}, but the field it follows, {field.next_of!r}, is "
                f"{np.dtype(origin.dtype)}{list(origin.shape)}: give both the same shape and dtype"
            )
    if field.first and sequences is None:
        raise ValueError(f"fields[{name!r}] has first=True, which has a meaning only with sequences=Sequences(...)")


def _check_prioritized(sampler: Prioritized) -> None:
    for name, value in (("alpha", sampler.alpha), ("beta", sampler.beta), ("eps", sampler.eps)):
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"Prioritized({name}={value}) is not legal: give a finite number, 0 or more")
    if sampler.normalize not in ("buffer", "batch"):
        raise ValueError(f"Prioritized(normalize={sampler.normalize!r}) is not legal: give 'buffer' or 'batch'")


def _check_n_step(n_step: NStep, fields: Mapping[str, Field], sequences: Sequences | None) -> None:
    if sequences is not None:
        raise ValueError("n_step and sequences cannot be combined: sum the rewards of a sequence in the learner")
    if not isinstance(n_step.steps, int) or n_step.steps < 1:
        raise ValueError(f"NStep(steps={n_step.steps!r}) is not legal: give 1 or more")
    if not 0 <= n_step.gamma <= 1:
        raise ValueError(f"NStep(gamma={n_step.gamma}) is not legal: give 0 to 1")
    for name in _rewards(n_step):
        if name not in fields or np.dtype(fields[name].dtype).char not in "fd":
            found = fields[name].dtype if name in fields else "no such field"
            raise ValueError(f"NStep(reward={name!r}): give a field of dtype float32 or float64, found {found}")
