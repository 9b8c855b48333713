"""Wall and CPU seconds of a role per activity, in the arena, where the supervisor reads them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

import numpy as np

WALL, CPU = slice(0, 14), slice(14, 28)  # places in a gauge row: seconds per activity, of wall and of CPU time
ACTIVITY, SINCE = 28, 29  # and behind them: the activity going on, and since when
# Asking the kernel for CPU time takes microseconds: activities that are over sooner than this are asked for together.
CPU_INTERVAL = 1e-3  # seconds


class _Thread(threading.local):
    """Clocks of a thread."""

    running: Callable[[], Clock | None] = staticmethod(lambda: None)
    is_companion = False


_thread = _Thread()
_companion_cpu = 0.0  # CPU seconds that clocks of this process's companion have booked; its thread alone writes it


def count_as_companion() -> None:
    """From now on clocks of this thread count its own CPU time, and those of the process's other thread the rest."""
    _thread.is_companion = True


def _cpu_time() -> float:
    return time.thread_time() if _thread.is_companion else time.process_time() - _companion_cpu


class Clock:
    """Counts wall time per activity, and the CPU time of the whole process; the role says when it switches.

    Where a companion lives in the same process, in a thread of its own, its CPU time is counted by its clock alone.
    Roles that share a thread, as in the serial backend, take turns: one clock stands still while another runs.

    Parameters
    ----------
    gauges
        float64 ``[32]``, a row of the arena's gauges; this role alone writes it.
    activities
        Names, at most 14. Those that begin with "wait" are no work.
    """

    def __init__(self, gauges: np.ndarray, activities: tuple[str, ...]) -> None:
        self._gauges = gauges
        self._gauges.fill(0.0)
        self._wall, self._cpu = gauges[WALL], gauges[CPU]
        self._index = {name: i for i, name in enumerate(activities)}
        self._is_wait = [name.startswith("wait") for name in activities]
        self._myself = weakref.ref(self)
        self._current = len(activities) - 1
        self._since = self._asked = self._cpu_then = 0.0
        self._unasked = [0.0] * len(activities)
        self._run()

    def switch(self, activity: str) -> None:
        """Book the time since the last switch, and go on with another activity."""
        current = self._index[activity]
        self._run()
        self._current = current
        self._gauges[ACTIVITY] = current
        self._gauges[SINCE] = self._since

    def _run(self) -> None:
        """Have the clock that runs in this thread book its time, and run on from now."""
        now = time.monotonic()
        running = _thread.running()
        if running is not None:
            running._book(now)
        if running is self:
            if now - self._asked >= CPU_INTERVAL:
                self._book_cpu(now)
        else:
            if running is not None:
                running._book_cpu(now)
            self._since = self._asked = now
            self._cpu_then = _cpu_time()
        _thread.running = self._myself

    def _book(self, now: float) -> None:
        spent = now - self._since
        self._wall[self._current] += spent
        self._unasked[self._current] += spent
        self._since = now

    def _book_cpu(self, now: float) -> None:
        """Book the CPU time since it was last asked for: to work, and to waiting only what work had no time for."""
        global _companion_cpu
        cpu, walls = _cpu_time(), self._unasked
        waits = sum(wall for wall, is_wait in zip(walls, self._is_wait, strict=True) if is_wait)
        work = sum(walls) - waits
        spent = cpu - self._cpu_then
        spent_waiting = min(max(0.0, spent - work), waits) if work else spent
        for i, (wall, is_wait) in enumerate(zip(walls, self._is_wait, strict=True)):
            if wall:
                self._cpu[i] += spent_waiting * wall / waits if is_wait else (spent - spent_waiting) * wall / work
        if _thread.is_companion:
            _companion_cpu += spent
        self._asked, self._cpu_then, self._unasked = now, cpu, [0.0] * len(walls)
