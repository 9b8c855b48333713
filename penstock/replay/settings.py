"""Settings of a buffer: fields of steps, form of rows, sampling, and their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

_MOST_ROW_NBYTES = 1 << 40
_MAX_DEPTH = 4096


@dataclass(frozen=True)
class Field:
    """Named value of every step.

    Parameters
    ----------
    shape : tuple of int
        Shape of one step's value; ``()`` for a number.
    dtype : DTypeLike
        Any plain NumPy dtype.
    stack : int or None
        Axis along which successive frames are stacked (an Atari observation of shape ``(4, 84, 84)`` has ``stack=0``).
        Each frame is then stored once, regardless of the number of stacks that contain it.
    shared : bool
        Store a value that several rows have only once; values are compared byte by byte. Worth it from about 1 KiB.
    next_of : str or None
        Field that this one succeeds, as ``next_obs`` does ``obs``: its value after the step. It shares that field's
        frames (with its ``stack`` and ``shared``); n-step rows take it from their last step.
    first : bool
        With ``sequences``, keep only the first step's value, such as the state of a memory core.
    """

    shape: tuple[int, ...] = ()
    dtype: DTypeLike = "float32"
    stack: int | None = None
    shared: bool = False
    next_of: str | None = None
    first: bool = False


@dataclass(frozen=True)
class NStep:
    """Rows of ``steps`` steps each, or fewer at the end of an episode (Sutton 1988; as in Rainbow, arXiv:1710.02298).

    A row holds the first step's values, the sum of ``gamma**i`` times the rewards, the last step's ``next_of`` fields
    and boundary signals, and ``discount``: ``gamma**m``, or 0 if the last of its ``m`` steps terminated the episode.
    A truncated episode keeps its discount: bootstrap from the true final observation.

    Parameters
    ----------
    steps : int
    gamma : float
    reward : str or tuple of str
        Floating-point fields to sum.
    """

    steps: int = 3
    gamma: float = 0.99
    reward: str | tuple[str, ...] = "reward"

    @property
    def rewards(self) -> tuple[str, ...]:
        """Fields to sum."""
        return (self.reward,) if isinstance(self.reward, str) else tuple(self.reward)


@dataclass(frozen=True)
class Sequences:
    """Rows of ``length`` successive steps of one episode, for recurrent learners (R2D2, OpenReview r1lyTjAqYX).

    A sequence starts every ``period`` steps. An episode's last one is padded with zeros; ``mask`` marks the real steps.
    """

    length: int = 80
    period: int = 40


@dataclass(frozen=True)
class Uniform:
    """Sampling with equal probability."""


@dataclass(frozen=True)
class Prioritized:
    """Sampling in proportion to ``(priority + eps)**alpha`` (Schaul et al. 2016, arXiv:1511.05952).

    Parameters
    ----------
    alpha : float
        0: uniform; 1: proportional.
    beta : float
        Exponent of the importance weights ``(N P(i))**-beta``; ``sample(beta=...)`` overrides it.
    eps : float
        Added to every priority, so that every row can be sampled.
    normalize : {"buffer", "batch"}
        Divide weights by the largest in the buffer, or in the batch.
    stratified : bool
        Whether to draw once from each of ``batch_size`` equal parts of the total, as in the paper, or independently.
    eviction_alpha : float or None
        Exponent, 0 or less: a full buffer replaces a row drawn in proportion to ``(priority + eps)**eviction_alpha``
        (Horgan et al. 2018, arXiv:1803.00933, appendix D), so that rows of small priority go first. Writers then take
        a lock for each row, and ids give no order of age. None: a new row replaces the oldest.
    """

    alpha: float = 0.6
    beta: float = 0.4
    eps: float = 1e-6
    normalize: str = "buffer"
    stratified: bool = True
    eviction_alpha: float | None = None


@dataclass(frozen=True)
class Reverse:
    """Sampling backwards in time (Rotinov 2019, arXiv:1910.08780): rows ``t, t - stride, ...``.

    Each batch starts one step earlier. After ``2 * stride`` batches, or if new rows leave it that far behind, it
    restarts at the newest row.
    """

    stride: int = 300


@dataclass(frozen=True)
class Reservoir:
    """Uniform sample of all rows ever added (Vitter 1985), instead of the newest; sampled uniformly."""


@dataclass(frozen=True)
class Elite:
    """Rows of low score, instead of the newest; sampled uniformly.

    In a full buffer a new row replaces the one with the largest score among `group` rows drawn at random. A row's score
    is 0 until `ReplayBuffer.update_scores` sets it.
    """

    group: int = 20


Sampler = Uniform | Prioritized | Reverse | Reservoir | Elite


def check_settings(
    capacity: int, fields: Mapping[str, Field], *, sampler: Sampler, n_step: NStep | None, sequences: Sequences | None,
    frame_capacity: int | None,
) -> None:  # fmt: skip
    """Check all settings; the message names the first illegal one, the value found and legal ones.

    Raises
    ------
    ValueError, TypeError
        A setting is not legal.
    """
    if not _is_whole(capacity) or not 1 <= capacity < 2**40:
        raise ValueError(f"capacity={capacity!r} is not legal: give a whole number of rows, 1 or more")
    if not isinstance(sampler, Sampler):
        raise TypeError(
            f"sampler={sampler!r} is not legal: give Uniform(), Prioritized(), Reverse(), Reservoir() or Elite()"
        )
    if not isinstance(n_step, NStep | None):
        raise TypeError(f"n_step={n_step!r} is not legal: give NStep(steps, gamma) or None")
    if not isinstance(sequences, Sequences | None):
        raise TypeError(f"sequences={sequences!r} is not legal: give Sequences(length, period) or None")
    if not isinstance(fields, Mapping):
        raise TypeError(f"fields={fields!r} is not legal: give a dict such as {{'obs': Field((4,))}}")
    if not fields:
        raise ValueError("fields is empty: name at least one, e.g. {'obs': Field((4,)), 'action': Field((), 'int64')}")
    for name, field in fields.items():
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} of a field is not a string")
        if not isinstance(field, Field):
            raise TypeError(f"fields[{name!r}] is {field!r}: give a Field(shape, dtype)")
        _check_field(name, field, fields, sequences)
    if isinstance(sampler, Prioritized):
        _check_prioritized(sampler)
    if isinstance(sampler, Elite) and not _is_count(sampler.group):
        raise ValueError(f"Elite(group={sampler.group!r}) is not legal: give a whole number, 1 or more")
    if isinstance(sampler, Reverse) and not _is_count(sampler.stride):
        raise ValueError(f"Reverse(stride={sampler.stride!r}) is not legal: give a whole number, 1 or more")
    if n_step is not None:
        _check_n_step(n_step, fields, sequences)
    if sequences is not None and not (_is_count(sequences.length) and _is_count(sequences.period)):
        raise ValueError(f"{sequences} is not legal: length and period must be whole numbers, 1 or more")
    _check_frame_capacity(frame_capacity, fields)


def check_names(fields: Mapping[str, Field], sampler: Sampler, n_step: NStep | None, lenient: bool) -> None:
    """Raise ValueError for a field whose name is used by ``add`` or the batches of this buffer."""
    taken = ["priorities"]
    taken += [] if lenient else ["ids", "mask"]
    taken += ["weights", "indexes"] if isinstance(sampler, Prioritized) else []
    taken += ["discount"] if n_step else []
    for name in fields:
        if name in taken:
            raise ValueError(f"fields[{name!r}]: the name is used by the buffer itself, as are {', '.join(taken)}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_whole(value) and 1 <= value < 2**31


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _check_frame_capacity(frame_capacity: int | None, fields: Mapping[str, Field]) -> None:
    if frame_capacity is None:
        return
    if not _is_whole(frame_capacity) or not 1 <= frame_capacity < 2**40:
        raise ValueError(f"frame_capacity={frame_capacity!r} is not legal: give a whole number, 1 or more, or None")
    if not any(field.next_of is None and (field.stack is not None or field.shared) for field in fields.values()):
        raise ValueError(
            f"frame_capacity={frame_capacity} has a meaning only with frames: leave it out, or give a field stack= or "
            f"shared=True; found none among {', '.join(fields)}"
        )


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
    if not all(_is_count(length) for length in field.shape):
        raise ValueError(f"fields[{name!r}] has shape {field.shape}: every length must be 1 or more, a whole number")
    if (nbytes := math.prod(map(int, field.shape)) * dtype.itemsize) > _MOST_ROW_NBYTES:
        raise MemoryError(f"fields[{name!r}] has {nbytes:,} bytes in each row: at most {_MOST_ROW_NBYTES:,} fit")
    if field.stack is not None:
        if not _is_whole(field.stack):
            raise ValueError(f"fields[{name!r}] has stack={field.stack!r}: give the number of an axis, or None")
        if not -len(field.shape) <= field.stack < len(field.shape):
            raise ValueError(f"fields[{name!r}] has stack={field.stack}, but {len(field.shape)} axes in {field.shape}")
        if field.shape[field.stack] > _MAX_DEPTH:
            raise ValueError(f"fields[{name!r}] stacks {field.shape[field.stack]} frames: at most {_MAX_DEPTH} fit")
    if field.next_of is not None:
        origin = fields.get(field.next_of) if isinstance(field.next_of, str) else None
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
        if not _is_number(value) or value < 0:
            raise ValueError(f"Prioritized({name}={value!r}) is not legal: give a finite number, 0 or more")
    if sampler.normalize not in ("buffer", "batch"):
        raise ValueError(f"Prioritized(normalize={sampler.normalize!r}) is not legal: give 'buffer' or 'batch'")
    if not isinstance(sampler.stratified, bool):
        raise ValueError(f"Prioritized(stratified={sampler.stratified!r}) is not legal: give True or False")
    exponent = sampler.eviction_alpha
    if exponent is None:
        return
    if not _is_number(exponent) or exponent > 0:
        raise ValueError(
            f"Prioritized(eviction_alpha={exponent!r}) is not legal: give a finite number, 0 or less, or None"
        )
    for name, value in (("alpha", sampler.alpha), ("eps", sampler.eps)):
        if value == 0:
            raise ValueError(
                f"Prioritized({name}={value!r}, eviction_alpha={exponent!r}) is not legal: with eviction by priority "
                f"give {name} more than 0"
            )


def _check_n_step(n_step: NStep, fields: Mapping[str, Field], sequences: Sequences | None) -> None:
    if sequences is not None:
        raise ValueError("n_step and sequences cannot be combined: sum the rewards of a sequence in the learner")
    if not _is_count(n_step.steps):
        raise ValueError(f"NStep(steps={n_step.steps!r}) is not legal: give a whole number, 1 or more")
    if not _is_number(n_step.gamma) or not 0 <= n_step.gamma <= 1:
        raise ValueError(f"NStep(gamma={n_step.gamma!r}) is not legal: give 0 to 1")
    if not isinstance(n_step.reward, str | tuple | list):
        raise ValueError(f"NStep(reward={n_step.reward!r}) is not legal: give the name of a field, or a tuple of them")
    for name in n_step.rewards:
        if name not in fields or np.dtype(fields[name].dtype).char not in "fd":
            found = fields[name].dtype if name in fields else "no such field"
            raise ValueError(f"NStep(reward={name!r}): give a field of dtype float32 or float64, found {found}")
