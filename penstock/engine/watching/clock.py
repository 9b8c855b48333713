"""Clock of a role: wall and CPU seconds per activity, written to the arena."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

import numpy as np

WALL, CPU = slice(0, 14), slice(14, 28)  # columns of a gauge row: wall and CPU seconds per activity
ACTIVITY, SINCE = 28, 29  # columns after them: the current activity, and when it began
# A look at the kernel's CPU time takes microseconds: activities that are shorter than this share one.
CPU_INTERVAL = 1e-3  # seconds


class _Thread(threading.local):
    running: Callable[[], Clock | None] = staticmethod(lambda: None)
    is_companion = False


_thread = _Thread()
_companion_cpu = 0.0  # CPU seconds booked by clocks of this process's companion thread; only that thread writes it


def count_as_companion() -> None:
    """Make clocks of this thread count its own CPU time, and those of the process's other thread the rest."""
    _thread.is_companion = True


def _cpu_time() -> float:
    return time.thread_time() if _thread.is_companion else time.process_time() - _companion_cpu


class Clock:
    """Counter of wall time, and of CPU time of the whole process, per activity; the role switches the activity.

    The CPU time of a companion, a second thread of the process, is counted only by the companion's clock. Roles that
    share a thread, as in the serial backend, take turns: one clock stands still while another runs.

    Parameters
    ----------
    gauges
        float64 ``[32]``, a row of the arena's gauges, which only this role writes.
    activities
        Names, at most 14. Those that begin with "wait" are not work.
    """

    def __init__(self, gauges: np.ndarray, activities: tuple[str, ...]) -> None:
        self._gauges = gauges
        self._gauges.fill(0.0)
        self._wall, self._cpu = gauges[WALL], gauges[CPU]
        self._index = {name: i for i, name in enumerate(activities)}
        self._is_wait = [name.startswith("wait") for name in activities]
        self._myself = weakref.ref(self)
        self._current = len(activities) - 1
        self._since = self._looked = self._cpu_then = 0.0
        self._unbooked = [0.0] * len(activities)
        self._run()

    def switch(self, activity: str) -> None:
        """Book the time since the last switch, and begin another activity."""
        current = self._index[activity]
        self._run()
        self._current = current
        self._gauges[ACTIVITY] = current
        self._gauges[SINCE] = self._since

    def _run(self) -> None:
        """Book the time of the clock that runs in this thread, and run this one."""
        now = time.monotonic()
        running = _thread.running()
        if running is not None:
            running._book(now)
        if running is self:
            if now - self._looked >= CPU_INTERVAL:
                self._book_cpu(now)
        else:
            if running is not None:
                running._book_cpu(now)
            self._since = self._looked = now
            self._cpu_then = _cpu_time()
        _thread.running = self._myself

    def _book(self, now: float) -> None:
        spent = now - self._since
        self._wall[self._current] += spent
        self._unbooked[self._current] += spent
        self._since = now

    def _book_cpu(self, now: float) -> None:
        """Book the CPU time since the last look: to work first, and to waiting only what exceeds the time of work."""
        global _companion_cpu
        cpu, walls = _cpu_time(), self._unbooked
        waits = sum(wall for wall, is_wait in zip(walls, self._is_wait, strict=True) if is_wait)
        work = sum(walls) - waits
        spent = cpu - self._cpu_then
        spent_waiting = min(max(0.0, spent - work), waits) if work else spent
        for i, (wall, is_wait) in enumerate(zip(walls, self._is_wait, strict=True)):
            if wall:
                self._cpu[i] += spent_waiting * wall / waits if is_wait else (spent - spent_waiting) * wall / work
        if _thread.is_companion:
            _companion_cpu += spent
        self._looked, self._cpu_then, self._unbooked = now, cpu, [0.0] * len(walls)
