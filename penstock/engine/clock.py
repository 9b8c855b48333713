"""Where a role's time goes: seconds per activity, in the arena, where the supervisor reads them."""

from __future__ import annotations

import time

import numpy as np

ACTIVITY, SINCE = 14, 15  # places in a gauge row behind the seconds: the activity going on, and since when


class Clock:
    """Counts wall time per activity; the role says when it switches.

    Parameters
    ----------
    gauges
        float64 ``[16]``, a row of the arena's gauges; this role alone writes it.
    activities
        Names, at most 14. Those that begin with "wait" are no work.
    """

    def __init__(self, gauges: np.ndarray, activities: tuple[str, ...]) -> None:
        self._gauges = gauges
        self._gauges.fill(0.0)
        self._index = {name: i for i, name in enumerate(activities)}
        self._current = len(activities) - 1
        self._since = time.monotonic()

    def switch(self, activity: str) -> None:
        """Book the time since the last switch, and go on with another activity."""
        now = time.monotonic()
        gauges = self._gauges
        gauges[self._current] += now - self._since
        self._since = now
        self._current = self._index[activity]
        gauges[ACTIVITY] = self._current
        gauges[SINCE] = now
