"""Values that are not yet arrays of a field's dtype; the native core asks for them, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # of kinds of dtype: what a field holds may not be below what it gets


def convert(value: Any, name: str, dtype: np.dtype, lenient: bool) -> np.ndarray:
    """``value`` as a C-contiguous array of ``dtype``.

    Without ``lenient`` nothing may be lost but the precision of floating-point numbers.

    Raises
    ------
    TypeError
        If the kind of number does not fit: a float for an integer field.
    ValueError
        If a number is outside the field's range: a finite one that would become infinite too.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is no array of numbers: {error}") from None
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.hasobject or array.dtype.kind not in _RANKS:
        raise TypeError(f"{name} is {_described(value, array)}: give {dtype} numbers of one shape")
    if not lenient and _RANKS[array.dtype.kind] > _RANKS[dtype.kind]:
        raise TypeError(f"{name} is {array.dtype}, but the field holds {dtype}: convert it, or declare the field so")
    with np.errstate(over="warn" if lenient else "ignore"):
        converted = np.ascontiguousarray(array.astype(dtype)).reshape(array.shape)
    if not lenient:
        _require_equal(array, converted, name)
    return converted


def _require_equal(array: np.ndarray, converted: np.ndarray, name: str) -> None:
    dtype = converted.dtype
    if dtype.kind in "iu" and not np.array_equal(array, converted):
        raise ValueError(f"{name} holds {array.min()} to {array.max()}, which {dtype} cannot hold")
    if dtype.kind in "fc" and not (is_finite := np.isfinite(converted)).all():
        lost = array[~is_finite & np.isfinite(array)]
        if lost.size:
            largest = f"{float(np.finfo(dtype).max):.8g}"
            raise ValueError(f"{name} holds {lost[0]}, which {dtype} cannot hold: give -{largest} to {largest}")


def _described(value: Any, array: np.ndarray) -> str:
    return f"a {type(value).__name__}" + (f" of {array.dtype}" if not array.dtype.hasobject else "")
