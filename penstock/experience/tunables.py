"""The settings of a policy that may change while its run goes on, where the learner reads them before every batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from penstock.ipc import fence

MOST_TUNABLES = 63
"""Settings that a row of the arena has room for, behind the number of changes."""


class Tunables:
    """Values of tunable settings in shared memory: one process writes them, any number reads them.

    Parameters
    ----------
    row
        float64 ``[64]``: the number of changes so far, odd while one is under way, and a value for each name; NaN
        where the config's own holds. Written by the supervisor's process.
    names
        Of the settings, the same in every process.
    """

    def __init__(self, row: np.ndarray, names: Sequence[str]) -> None:
        self._row = row
        self._names = tuple(names)[:MOST_TUNABLES]
        self._seen = 0.0

    def write(self, values: Mapping[str, float]) -> None:
        """Replace all values; a setting without one has the config's own again."""
        self._row[0] += 1
        fence()
        for place, name in enumerate(self._names, start=1):
            self._row[place] = values.get(name, math.nan)
        fence()
        self._row[0] += 1

    def news(self) -> dict[str, float] | None:
        """Return the values that are set, by name; None if they are those of the last call, as at the start none are.

        What is being written meanwhile is news for the next call.
        """
        count = self._row[0]
        if count == self._seen or count % 2:
            return None
        fence()
        values = {name: float(value) for name, value in zip(self._names, self._row[1:], strict=False)}
        fence()
        if self._row[0] != count:
            return None
        self._seen = count
        return {name: value for name, value in values.items() if not math.isnan(value)}
