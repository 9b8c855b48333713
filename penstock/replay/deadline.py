"""Time left to wait."""

from __future__ import annotations

import time


def deadline_after(seconds: float | None) -> float | None:
    """The moment so many seconds from now, by the monotonic clock; None: never."""
    return None if seconds is None else time.monotonic() + seconds


def seconds_left(deadline: float | None) -> float | None:
    """Seconds until the deadline, 0 when it is over; None: for ever."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())
