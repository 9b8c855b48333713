"""Values that are not yet arrays of a field's dtype; the native core asks for them, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np


def convert(value: Any, name: str, dtype: np.dtype, lenient: bool) -> np.ndarray:
    """``value`` as a C-contiguous array of ``dtype``.

    Without ``lenient`` nothing may be lost but the precision of floating-point numbers.

    Raises
    ------
    TypeError
        If the kind of number does not fit: a float for an integer field.
    ValueError
        If a number is outside the field's range.
    """
    array = np.asarray(value)
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.hasobject or array.dtype.kind not in "biufc":
        raise TypeError(f"{name} is {_described(value, array)}: give {dtype} numbers of one shape")
    converted = np.ascontiguousarray(array.astype(dtype)).reshape(array.shape)
    if lenient:
        return converted
    ranks = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}
    if ranks[array.dtype.kind] > ranks[dtype.kind]:
        raise TypeError(f"{name} is {array.dtype}, but the field holds {dtype}: convert it, or declare the field so")
    if dtype.kind in "iu" and not np.array_equal(array, converted):
        raise ValueError(f"{name} holds {array.min()} to {array.max()}, which {dtype} cannot hold")
    return converted


def _described(value: Any, array: np.ndarray) -> str:
    return f"a {type(value).__name__}" + (f" of {array.dtype}" if not array.dtype.hasobject else "")
