"""Conversion of cpprb's declarations of a buffer to Penstock's fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from penstock.replay import Field, NStep
from penstock.replay.cpprb.storage import DONE

# Sharing a value between two rows saves its bytes, but costs an id per row and an indirection when sampled.
SHARING_PAYS_FROM = 256  # bytes


def names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return names given as None, one string or several as a tuple."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(str(name) for name in given)


def fields_of(
    env_dict: Mapping[str, Mapping[str, Any]] | None, *, next_of: str | Iterable[str] | None = None,
    stack_compress: str | Iterable[str] | None = None, default_dtype: DTypeLike | None = None,
) -> dict[str, Field]:  # fmt: skip
    """Return the fields declared by an ``env_dict``, those of ``next_of`` last.

    Parameters
    ----------
    env_dict
        ``{name: {"shape": int or tuple (default 1), "dtype": (default default_dtype)}}``. A value has at least one
        dimension: a number is an array of one.
    next_of
        Fields declared together with their successors, ``"next_"`` + name.
    stack_compress
        Fields whose last dimension is a stack of frames.
    default_dtype
        None: float32.

    Raises
    ------
    ValueError
        No field is declared, or ``next_of`` or ``stack_compress`` name an undeclared one.
    """
    if not env_dict:
        raise ValueError('env_dict declares no field: give at least one, such as {"obs": {"shape": 4}, "done": {}}')
    successors, stacked = names(next_of), names(stack_compress)
    for option, chosen in {"next_of": successors, "stack_compress": stacked}.items():
        if unknown := set(chosen) - set(env_dict):
            raise ValueError(f"{option} names {sorted(unknown)}, which env_dict lacks: it declares {list(env_dict)}")
    shapes = {name: _shape(spec.get("shape", 1)) for name, spec in env_dict.items()}
    dtypes = {name: _dtype(spec.get("dtype"), default_dtype) for name, spec in env_dict.items()}
    fields = {}
    for name in env_dict:
        is_large = math.prod(shapes[name]) * dtypes[name].itemsize >= SHARING_PAYS_FROM
        fields[name] = Field(
            shapes[name],
            dtypes[name],
            stack=-1 if name in stacked else None,
            shared=is_large and name in successors and name not in stacked,
        )
    for name in successors:
        fields[f"next_{name}"] = Field(shapes[name], dtypes[name], next_of=name)
    return fields


def n_step_of(nstep: Mapping[str, Any] | None, fields: Mapping[str, Field]) -> tuple[NStep | None, tuple[str, ...]]:
    """Return the ``NStep`` for ``Nstep={"size", "gamma", "rew", "next"}``, and the fields taken from the last step.

    Raises
    ------
    ValueError
        ``"size"``, a named field or ``"done"`` is missing.
    """
    if nstep is None:
        return None, ()
    if "size" not in nstep:
        raise ValueError(f'Nstep needs "size", the number of steps of a row: found only {sorted(nstep)}')
    rewards, moved = names(nstep.get("rew")), names(nstep.get("next"))
    if unknown := {DONE, *rewards, *moved} - set(fields):
        raise ValueError(f"Nstep needs the fields {sorted(unknown)}, which env_dict lacks: it declares {list(fields)}")
    return NStep(steps=int(nstep["size"]), gamma=float(nstep.get("gamma", 0.99)), reward=rewards), moved


def _shape(given: int | Iterable[int]) -> tuple[int, ...]:
    return tuple(int(length) for length in np.array(given, ndmin=1)) or (1,)


def _dtype(given: DTypeLike | None, default: DTypeLike | None) -> np.dtype[Any]:
    for dtype in (given, default):
        if dtype is not None:
            return np.dtype(dtype)
    return np.dtype(np.float32)
