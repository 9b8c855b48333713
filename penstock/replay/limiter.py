"""Rate limiter: a fixed number of samples per inserted row, across processes of any speed."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Mapping
from typing import Any

from penstock._native import RateLimiter as NativeRateLimiter
from penstock.ipc import Arena
from penstock.replay.sharing import ArenaHandle, arena_handle, attach

_END_OF_COUNTS = 1 << 63  # the core's counters are growing 64-bit numbers


class RateLimiter:
    """Keeps sampling and inserting in step: the side that is ahead waits.

    Without a limiter, the speeds of the machine's actors and learner decide how often each row is learned from. The
    rule is that of Reverb (arXiv:2102.04736): with I rows inserted and S samples taken, the *surplus* of samples due is
    ``(I - min_size) * samples_per_insert - S``.

    - A sample of n passes when ``I >= min_size`` and ``surplus - n >= -tolerance``.
    - An insert of n passes when ``I + n <= min_size`` or ``surplus + n * samples_per_insert <= tolerance``.

    A batch must not exceed ``tolerance``, nor, once min_size is reached, an insert ``tolerance / samples_per_insert``
    rows. At any moment, one side may therefore proceed: the two never wait for each other.

    Any number of processes share a limiter: inherit it over fork, or pickle it (spawn, Ray actors on one node). It
    takes no lock: a process killed at any time blocks no other; at most its last request is counted without being done.

    Parameters
    ----------
    samples_per_insert : float, optional
        Samples (rows, not batches) per inserted row. None or inf: no limit once min_size rows are inserted.
    min_size : int
        Rows to insert before the first sample.
    tolerance : float, optional
        Largest distance of the surplus from 0, in samples: at least one batch, 1 and ``samples_per_insert``. A small
        value keeps the sides close together, a large one lets each run on while the other pauses. Default: the larger
        of 1024 and ``128 * samples_per_insert``, for batches up to 1024 and inserts up to 128 rows.

    Raises
    ------
    ValueError
        A setting is out of range.

    Examples
    --------
    >>> limiter = RateLimiter(samples_per_insert=4, min_size=100, tolerance=64)
    >>> limiter.insert(100)
    >>> limiter.sample(64)
    >>> limiter.try_sample(64)
    False
    """

    def __init__(
        self, samples_per_insert: float | None = None, min_size: int = 1, tolerance: float | None = None
    ) -> None:
        ratio = math.inf if samples_per_insert is None else real("samples_per_insert", samples_per_insert)
        tolerance = max(1024.0, 128.0 * ratio) if tolerance is None else real("tolerance", tolerance)
        self._arena = Arena.create(NativeRateLimiter.nbytes)
        self.native = NativeRateLimiter.create(self._arena, 0, ratio, tolerance, whole("min_size", min_size))

    def insert(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until n rows may be inserted, and count them.

        Parameters
        ----------
        n : int
            Rows.
        timeout : float, optional
            Longest wait in seconds; 0: no wait; None: no limit. Ctrl-C ends a wait.

        Raises
        ------
        NotReady
            The timeout has passed; nothing was counted.
        ValueError
            n exceeds the tolerance.
        """
        if not self.native.await_insert(whole("n", n), None if timeout is None else real("timeout", timeout)):
            raise NotReady(self.why_insert_waits(n))

    def sample(self, n: int = 1, timeout: float | None = None) -> None:
        """Wait until n samples may be taken, and count them; parameters and errors as for ``insert``."""
        if not self.native.await_sample(whole("n", n), None if timeout is None else real("timeout", timeout)):
            raise NotReady(self.why_sample_waits(n))

    def try_insert(self, n: int = 1) -> bool:
        """Count n rows if they may be inserted now; return whether they may. ValueError if n exceeds the tolerance."""
        return self.native.try_insert(whole("n", n))

    def try_sample(self, n: int = 1) -> bool:
        """Count n samples if they may be taken now; return whether they may. ValueError if n exceeds the tolerance."""
        return self.native.try_sample(whole("n", n))

    def why_insert_waits(self, n: int) -> str:
        """Return an error's description of the side ahead and the condition for an insert of n rows."""
        native = self.native
        missing = math.ceil(native.surplus + n * native.samples_per_insert - native.tolerance)
        return (
            f"an insert of {n} waits because inserting is ahead: {self._figures()}. It may proceed after "
            f"{max(missing, 1)} more samples: sample, wait longer, or make a limiter with a larger tolerance"
        )

    def why_sample_waits(self, n: int) -> str:
        """Return an error's description of the side ahead and the condition for a sample of n."""
        native = self.native
        if native.inserts < native.min_size:
            return (
                f"a sample of {n} waits for the first rows: {native.inserts} are inserted, min_size="
                f"{native.min_size}. Insert {native.min_size - native.inserts} more, wait longer, or make a limiter "
                "with a smaller min_size"
            )
        missing = math.ceil((n - native.tolerance - native.surplus) / native.samples_per_insert)
        return (
            f"a sample of {n} waits because sampling is ahead: {self._figures()}. It may proceed after "
            f"{max(missing, 1)} more inserts: insert, wait longer, or make a limiter with a larger tolerance"
        )

    @property
    def samples_per_insert(self) -> float:
        """Samples per inserted row; inf without a limit."""
        return self.native.samples_per_insert

    @property
    def min_size(self) -> int:
        """Rows to insert before the first sample."""
        return self.native.min_size

    @property
    def tolerance(self) -> float:
        """Largest distance of the surplus from 0, in samples; inf without a ratio."""
        return self.native.tolerance

    @property
    def largest_insert(self) -> int:
        """Largest insert once min_size is reached; larger ones must be split."""
        return self.native.largest_insert

    @property
    def inserts(self) -> int:
        """Rows inserted so far, by all processes."""
        return self.native.inserts

    @property
    def samples(self) -> int:
        """Samples taken so far, by all processes."""
        return self.native.samples

    @property
    def ratio(self) -> float:
        """Measured ratio ``samples / (inserts - min_size)``; 0 until there are more rows than min_size."""
        beyond = self.inserts - self.min_size
        return self.samples / beyond if beyond > 0 else 0.0

    @property
    def insert_wait(self) -> float:
        """Seconds that inserts have waited, over all processes, including waits in progress."""
        return self.native.insert_wait

    @property
    def sample_wait(self) -> float:
        """Seconds that samples have waited, over all processes, including waits in progress."""
        return self.native.sample_wait

    def state(self) -> dict[str, int]:
        """Return the counters ``inserts`` and ``samples``, for a checkpoint."""
        return {"inserts": self.inserts, "samples": self.samples}

    def restore(self, state: dict[str, int]) -> None:
        """Set the counters to those of ``state()``, while there are no inserts or samples.

        Raises
        ------
        ValueError
            The counters exceed the tolerance, for example because they belong to a limiter with other settings.
        """
        self.native.set_counters(state["inserts"], state["samples"])

    def snapshot(self) -> dict[str, float]:
        """Return settings and counters as JSON values, for `restore_or_reset`."""
        return {**self._settings(), **self.state()}

    def restore_or_reset(self, snapshot: Mapping[str, Any]) -> None:
        """Restore the counters of a `snapshot` if its settings equal this limiter's; otherwise reset them.

        Raises
        ------
        ValueError
            The values are not counters, or exceed the tolerance.
        """
        if not self._settings().items() <= snapshot.items():
            self.reset()
            return
        counters: dict[str, Any] = {name: snapshot.get(name) for name in self.state()}
        for name, count in counters.items():
            if type(count) is not int or not 0 <= count < _END_OF_COUNTS:
                raise ValueError(f"{name} is {count!r:.80}, not a whole number of 0 or more")
        self.restore(counters)

    def reset(self) -> None:
        """Reset both counters to 0, while there are no inserts or samples; waiting times are kept."""
        self.native.set_counters(0, 0)

    def _settings(self) -> dict[str, float]:
        return {
            "samples_per_insert": self.samples_per_insert,
            "min_size": self.min_size,
            "tolerance": self.tolerance,
        }

    def _figures(self) -> str:
        native = self.native
        return (
            f"{native.inserts} inserts and {native.samples} samples, a surplus of {native.surplus:.12g} samples within "
            f"{native.tolerance:.12g} (samples_per_insert={native.samples_per_insert:.12g}, min_size={native.min_size})"
        )

    def __repr__(self) -> str:
        native = self.native
        return (
            f"RateLimiter(samples_per_insert={native.samples_per_insert:.12g}, min_size={native.min_size}, "
            f"tolerance={native.tolerance:.12g}, inserts={native.inserts}, samples={native.samples})"
        )

    def __getstate__(self) -> ArenaHandle:
        return arena_handle(self._arena)

    def __setstate__(self, handle: ArenaHandle) -> None:
        self._arena = attach(handle)
        self.native = NativeRateLimiter.attach(self._arena, 0)


def whole(name: str, value: Any) -> int:
    """Return an argument as an int; raise TypeError if it is no whole number of 64 bits."""
    if not hasattr(value, "__index__") or abs(number := operator.index(value)) >= 2**63:
        raise TypeError(f"{name}={value!r} is not legal: give a whole number")
    return number


def real(name: str, value: Any) -> float:
    """Return an argument as a float; raise TypeError if it is no number."""
    if not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r} is not legal: give a number")
    return float(value)


def deadline_after(seconds: float | None) -> float | None:
    """Return the monotonic time at which a number of seconds will have passed; None: never."""
    return None if seconds is None else time.monotonic() + real("timeout", seconds)


def seconds_left(deadline: float | None) -> float | None:
    """Return the seconds until the deadline, 0 after it; None: no limit."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class NotReady(TimeoutError):
    """Timeout because the buffer is empty or the rate limiter blocked the request.

    Attributes
    ----------
    written : int
        Steps of an ``add`` that were written before it was blocked.
    """

    written = 0
