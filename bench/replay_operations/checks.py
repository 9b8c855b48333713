"""Checks before anything is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from libraries import ALPHA, BATCH, BETA, EPS
from rows import CheckFailed, whole_numbers

_SMALL = 64
"""Rows of the buffers whose sampling is checked."""
_DRAWS = 200
"""Batches drawn to count frequencies: 800 of each row on average."""


def check_sampling(make: Callable[[int], Any], workload: Any) -> None:
    """Raise `CheckFailed` unless a small buffer of this kind samples the right rows, frequencies and weights."""
    face, random = make(_SMALL), np.random.default_rng(1)
    shares = np.full(_SMALL, 1 / _SMALL)
    initial = random.uniform(0.1, 2.0, _SMALL).astype(np.float32)
    face.add(workload.make(np.arange(_SMALL)), initial if face.prioritized else None)
    if face.prioritized:
        priorities = np.linspace(0.2, 5.0, _SMALL, dtype=np.float32)
        order = random.permutation(_SMALL)
        face.sample(BATCH)  # cpprb's shared buffer ignores an update of rows written since the last sample
        face.update(order, priorities[order])
        leaves = (priorities.astype(np.float64) + EPS) ** ALPHA
        shares, weights = leaves / leaves.sum(), (leaves / leaves.min()) ** -BETA
        if hasattr(face, "max_priority") and face.max_priority() != 5.0:
            raise CheckFailed(f"the largest priority is {face.max_priority()} after an update to 5.0")
    counts = np.zeros(_SMALL)
    for _ in range(_DRAWS):
        batch = face.sample(BATCH)
        numbers = whole_numbers(workload, batch)
        if face.prioritized:
            if (np.asarray(batch["indexes"]) != numbers).any():
                raise CheckFailed("the indexes of a batch are not those of its rows")
            off = np.abs(batch["weights"] / weights[numbers] - 1).max()
            if not off < 1e-5:
                raise CheckFailed(f"weights are off by {off:.1e} of their value; 1e-5 is allowed")
        counts += np.bincount(numbers, minlength=_SMALL)
    expected = shares * _DRAWS * BATCH
    chi_square, limit = float(((counts - expected) ** 2 / expected).sum()), _chi_square_limit(_SMALL - 1)
    if not chi_square < limit:
        raise CheckFailed(f"rows are not sampled as often as they should: chi-square {chi_square:.0f} of {limit:.0f}")


def _chi_square_limit(freedom: int) -> float:
    """Return the value exceeded by chance once in a million times (Wilson and Hilferty's approximation)."""
    spread = 2 / (9 * freedom)
    return float(freedom * (1 - spread + 4.753 * np.sqrt(spread)) ** 3)
