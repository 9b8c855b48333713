"""The projection of C51 in numbers of Python's."""

import math
from collections.abc import Sequence


def projected_plainly(returns: Sequence[float], probability: Sequence[float], atoms: Sequence[float]) -> list[float]:
    """Algorithm 1 of arXiv:1707.06887, with the mass that it loses where l == u put back."""
    spacing = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    found = [0.0] * len(atoms)
    for x, p in zip(returns, probability, strict=True):
        position = (min(max(x, atoms[0]), atoms[-1]) - atoms[0]) / spacing
        position = min(position, len(atoms) - 1)  # it may be rounded up
        low, high = math.floor(position), math.ceil(position)
        if low == high:
            found[low] += p
        else:
            found[low] += p * (high - position)
            found[high] += p * (position - low)
    return found
