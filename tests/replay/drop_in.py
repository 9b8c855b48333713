"""Buffers of the drop-in for cpprb, and what they hold."""

import numpy as np


def numbers(kind, size, **options):
    """A buffer of this kind for one number per step."""
    return kind(size, {"a": {}}, **options)


def filled(kind, size, rows, **options):
    """The same with rows 0, 1, 2, ..."""
    buffer = numbers(kind, size, **options)
    for i in range(rows):
        buffer.add(a=i)
    return buffer


def columns(buffer):
    """All that it holds, by field, as flat lists."""
    return {name: array.ravel().tolist() for name, array in buffer.get_all_transitions().items()}


def rows_of(buffer, name="obs"):
    """One field of all rows."""
    return buffer.get_all_transitions()[name].tolist()


def stack(i):
    """A stack of two frames that no other number has."""
    return np.stack([np.arange(i, i + 3), np.arange(i, i + 3) + 100])
