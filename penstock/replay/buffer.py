"""Replay buffer that any number of processes write and read."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.ipc import whole_cores
from penstock.replay.files import load_buffer, save_buffer
from penstock.replay.limiter import NotReady, RateLimiter, deadline_after, real, seconds_left, whole
from penstock.replay.memory import Memory, Stats
from penstock.replay.plan import Plan, describe, make_plan
from penstock.replay.reverse import ReverseCursor
from penstock.replay.settings import Field, NStep, Prioritized, Reverse, Sampler, Sequences, Uniform
from penstock.replay.writer import Writer

Batch = dict[str, NDArray[Any]]

_MOST_THREADS = 4  # more add little: memory bandwidth is the limit


class Draw(NamedTuple):
    """Rows of a shard, as `ReplayBuffer.draw` returns them.

    Attributes
    ----------
    batch : dict of ndarray
        As returned by `ReplayBuffer.sample`, with weights of 1.
    masses : float64 [batch_size]
        Mass of each row: with ``Prioritized`` ``(priority + eps)**alpha``, otherwise 1.
    total, least : float
        Mass of all rows of the buffer at the draw, and smallest mass of a row.
    """

    batch: Batch
    masses: NDArray[np.float64]
    total: float
    least: float


class ReplayBuffer:
    """Rows of experience, written and sampled by any number of threads and processes at once.

    Writers never wait for other writers or readers, unless rows are evicted by priority. A killed process blocks no
    other: its unfinished row stays invisible. Pass the buffer itself to other processes, as an argument: it is pickled
    as a handle of its memory, which has no name and is freed with the last process that holds it.

    Parameters
    ----------
    capacity : int
        Rows kept. The oldest row is overwritten, unless the sampler defines another order.
    fields : mapping of str to Field
        Values of every step.
    sampler : Uniform, Prioritized, Reverse, Reservoir or Elite
        Order of drawing, and with ``Reservoir``, ``Elite`` or ``eviction_alpha`` also of eviction.
    n_step : NStep or None
        Rows of n-step rewards.
    sequences : Sequences or None
        Rows of several steps each.
    rate_limiter : RateLimiter or None
        Blocks writers or readers that are ahead.
    frame_capacity : int or None
        Frames kept for each stacked or shared field. Default: 9/8 of the steps of all rows, enough for episodes of at
        least 8 steps (with ``sequences``: of several times their length). With shorter episodes, the oldest rows lose
        their frames early and cannot be drawn.
    disk : str, Path or None
        Directory on whose disk the rows are stored, in a file without a name. Words and priorities stay in memory.
    num_threads : int or None
        Threads that gather a batch of 512 KiB or more; None: one per core of this process, up to 4.
    seed : int or None
        Seed of sampling. Each other process has its own random stream.

    Raises
    ------
    ValueError, TypeError
        If a setting is not legal.
    MemoryError
        If the machine or container has too little memory; the message shows the arithmetic.
    OSError
        With errno ENOSPC if ``disk`` is full.
    """

    def __init__(
        self, capacity: int, fields: Mapping[str, Field], *, sampler: Sampler | None = None,
        n_step: NStep | None = None, sequences: Sequences | None = None, rate_limiter: RateLimiter | None = None,
        frame_capacity: int | None = None, disk: str | Path | None = None, num_threads: int | None = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        sampler = Uniform() if sampler is None else sampler
        if not isinstance(rate_limiter, RateLimiter | None):
            raise TypeError(f"rate_limiter={rate_limiter!r} is not legal: give a RateLimiter or None")
        plan = make_plan(
            capacity, fields, sampler=sampler, n_step=n_step, sequences=sequences, frame_capacity=frame_capacity
        )
        self._create(plan, describe(plan, fields, sampler, n_step, sequences), sampler, disk, num_threads, seed)
        self.rate_limiter = rate_limiter

    def _create(
        self, plan: Plan, description: dict[str, Any], sampler: Sampler, disk: str | Path | None,
        num_threads: int | None, seed: int | None,
    ) -> None:  # fmt: skip
        if num_threads is None:
            num_threads = min(whole_cores(), _MOST_THREADS)
        if not hasattr(num_threads, "__index__") or not 1 <= num_threads <= 64:
            raise ValueError(f"num_threads={num_threads!r} is not legal: give a whole number, 1 to 64")
        if seed is not None and not hasattr(seed, "__index__"):
            raise ValueError(f"seed={seed!r} is not legal: give a whole number, or None")
        self._open(Memory.create(plan, disk), description, sampler, int(num_threads), seed, is_new=True)

    def _open(
        self, memory: Memory, description: dict[str, Any], sampler: Sampler, num_threads: int, seed: int | None,
        *, is_new: bool,
    ) -> None:  # fmt: skip
        self._memory, self._plan = memory, memory.plan
        self._description = description
        self._sampler = sampler
        self._num_threads = num_threads
        first_seed = secrets.randbits(64) if seed is None else int(seed) % 2**64
        # Sampling and each writer (reservoirs draw too) have separate streams.
        self._writer_seeds = (number % 2**64 for number in itertools.count(first_seed + 1))
        self._core = memory.open(num_threads, first_seed, is_new=is_new)
        self._beta = sampler.beta if isinstance(sampler, Prioritized) else 0.0
        self._reverse = ReverseCursor(self._core, sampler.stride) if isinstance(sampler, Reverse) else None
        self._own_writer: Writer | None = None

    # ---- writing

    def writer(self, lanes: int = 1, timeout: float | None = None) -> Writer:
        """Return a writer of several lanes that step together.

        Parameters
        ----------
        lanes : int
            Number of lanes.
        timeout : float or None
            Longest wait of ``add`` for the rate limiter, in seconds; None: no limit.
        """
        return Writer(self._core, self.rate_limiter, lanes, timeout, next(self._writer_seeds))

    def add(self, **steps: Any) -> int | None:
        """Write a step, or ``[k, ...]`` successive steps of one lane: see ``Writer.add``."""
        return self._default_writer().add(**steps)

    def end_episode(self) -> int | None:
        """End the episode that ``add`` writes, after its last step: see ``Writer.end_episode``."""
        return self._default_writer().end_episode()

    def _default_writer(self) -> Writer:
        if self._own_writer is None:
            self._own_writer = self.writer()
        return self._own_writer

    # ---- reading

    def sample(
        self, batch_size: int, *, beta: float | None = None, out: Batch | None = None, timeout: float | None = 0.0
    ) -> Batch:
        """Draw rows at random, with replacement.

        Parameters
        ----------
        batch_size : int
        beta : float or None
            Exponent of the importance weights; None: the sampler's.
        out : dict or None
            Arrays to fill and return, as made by ``allocate(batch_size)``; None: new arrays.
        timeout : float or None
            Longest wait, in seconds, while the buffer is empty or the rate limiter blocks readers; None: no limit.

        Returns
        -------
        dict of ndarray
            Every field, ``[batch_size, *shape]`` (``[batch_size, length, *shape]`` with sequences), and ``ids`` int64
            ``[batch_size]``, for ``update_priorities``; with ``Prioritized`` ``weights`` float32
            ``[batch_size]``; with ``n_step`` ``discount`` float32 ``[batch_size]``; with ``sequences`` ``mask`` bool
            ``[batch_size, length]``.

        Raises
        ------
        NotReady
            Nothing could be sampled within the timeout.
        """
        batch_size = batch_size if type(batch_size) is int else whole("batch_size", batch_size)
        beta = self._beta if beta is None else real("beta", beta)
        found = self._draw(batch_size, beta, out)
        if found is not None and self.rate_limiter is None:
            return found
        deadline = deadline_after(timeout)
        if found is None:
            found = self._draw_later(batch_size, beta, out, deadline)
        # Only samples that can be taken are counted. A reader that had to wait draws again, from the newer contents.
        if self.rate_limiter is not None and not self.rate_limiter.try_sample(batch_size):
            self.rate_limiter.sample(batch_size, seconds_left(deadline))
            found = self._draw(batch_size, beta, out) or found
        return found

    def _draw(self, batch_size: int, beta: float, out: Batch | None) -> Batch | None:
        if self._reverse is not None:
            return self._reverse.sample(batch_size, out)
        return self._core.sample(batch_size, beta, out)

    def _draw_later(self, batch_size: int, beta: float, out: Batch | None, deadline: float | None) -> Batch:
        while self._core.await_rows(seconds_left(deadline)) and seconds_left(deadline) != 0.0:
            found = self._draw(batch_size, beta, out)
            if found is not None:
                return found
            time.sleep(0.001)  # rows exist, but all have priority 0 or are being written
        raise NotReady(self._nothing_to_sample())

    def _nothing_to_sample(self) -> str:
        if len(self) == 0:
            return "the buffer is empty: add rows first, or give sample(timeout=seconds) to wait for another process"
        reasons = ["writers hold all of them"]
        reasons += ["their frames have been overwritten"] if self._plan.frame_stores else []
        reasons += ["their priorities are all 0"] if self._core.prioritized else []
        return f"none of the {len(self):,} rows can be sampled: {', or '.join(reasons)}"

    def allocate(self, batch_size: int) -> Batch:
        """Return arrays for ``sample(batch_size, out=...)``, uninitialised.

        For pinned memory replace them by NumPy views of pinned tensors of the same shapes.
        """
        return self._core.allocate(whole("batch_size", batch_size))

    def get(self, ids: ArrayLike, fields: tuple[str, ...] | None = None) -> Batch:
        """Return the rows with these ids.

        Parameters
        ----------
        ids : int64 [n]
        fields : tuple of str or None
            Names of the fields to read, to save copying large ones; None: all. ``ids``, ``discount`` and ``mask`` are
            included as in ``sample``.

        Raises
        ------
        KeyError
            A row has been overwritten, or a field does not exist.
        TypeError
            The buffer is a ``Reservoir`` or ``Elite`` one, which stores rows out of order.
        """
        if self._plan.reservoir or self._plan.group:
            kept = "a reservoir" if self._plan.reservoir else "one of the elite"
            raise TypeError(f"get() needs rows stored in order, but this buffer is {kept}")
        numbers = np.asarray(ids)
        if numbers.dtype.kind not in "iu" and numbers.size:
            raise TypeError(f"ids must be whole numbers, found {numbers.dtype}")
        numbers = np.ascontiguousarray(numbers, np.int64)
        if fields is not None:
            self._require_fields(fields)
        batch, unread = self._core.gather(numbers % self.capacity, numbers, fields=fields)
        if len(unread):
            raise KeyError(f"row {numbers[unread[0]]} is not in the buffer: {len(unread)} of {len(numbers)} missing")
        return batch

    def _require_fields(self, names: tuple[str, ...]) -> None:
        if isinstance(names, str):
            raise TypeError(f"fields={names!r} is not legal: give a tuple of names, such as ({names!r},)")
        for name in names:
            if name not in self.fields:
                raise KeyError(f"{name!r} is not a field of this buffer: it has {', '.join(self.fields)}")

    def sample_uniform(self, batch_size: int) -> Batch:
        """Draw rows with equal probability, regardless of the sampler; like ``sample``, without weights.

        Raises
        ------
        NotReady
            The buffer is empty.
        """
        found = self._core.sample_uniform(whole("batch_size", batch_size))
        if found is None:
            raise NotReady(self._nothing_to_sample())
        return found

    def get_all(self) -> Batch:
        """Return all rows, oldest first, with their ``ids``."""
        rows, ids, _ = self._core.live()
        return self._rows(rows, ids)

    def episodes(self) -> Iterator[Batch]:
        """Yield the rows of each episode, in order; episodes in the order of their first rows.

        The first may have lost its beginning, and the last ones may be unfinished.

        Raises
        ------
        TypeError
            Rows are evicted by priority, so that episodes have gaps and ids give no order.
        """
        if self._plan.eviction_alpha is not None:
            raise TypeError(
                f"episodes() needs rows that are evicted in order, but this buffer has "
                f"eviction_alpha={self._plan.eviction_alpha}: use get_all()"
            )
        return self._episodes()

    def _episodes(self) -> Iterator[Batch]:
        rows, ids, episodes = self._core.live()
        _, first, which = np.unique(episodes, return_index=True, return_inverse=True)
        order = np.argsort(first[which], kind="stable")
        bounds = np.flatnonzero(np.diff(which[order])) + 1
        for part in np.split(order, bounds) if len(order) else []:
            batch = self._rows(rows[part], ids[part])
            if len(batch["ids"]):
                yield batch

    def _rows(self, rows: NDArray[np.int64], ids: NDArray[np.int64]) -> Batch:
        """Return these rows, without those overwritten meanwhile."""
        batch, unread = self._core.gather(rows, ids)
        return {name: np.delete(array, unread, axis=0) for name, array in batch.items()} if len(unread) else batch

    # ---- selection of rows

    def live(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return rows with readable contents and their ids, oldest first, both int64 ``[len]``."""
        rows, ids, _ = self._core.live()
        return rows, ids

    def read(
        self, rows: NDArray[np.int64], ids: NDArray[np.int64], fields: tuple[str, ...] | None = None
    ) -> tuple[Batch, NDArray[np.bool_]]:
        """Return the contents of rows returned by `live`.

        Parameters
        ----------
        rows, ids : int64 [n]
        fields : tuple of str or None
            As for `get`.

        Returns
        -------
        batch : dict of str to ndarray
        is_there : bool [n]
            False for rows overwritten since; their entries in the batch are meaningless.
        """
        batch, unread = self._core.gather(rows, ids, fields=fields)
        is_there = np.ones(len(rows), bool)
        is_there[unread] = False
        return batch, is_there

    def update_scores(self, rows: NDArray[np.int64], ids: NDArray[np.int64], scores: NDArray[np.float32]) -> int:
        """Set eviction scores of rows, in an ``Elite`` buffer.

        Parameters
        ----------
        rows, ids : int64 [n]
            As returned by `live`.
        scores : float32 [n]
            Rows with larger scores are replaced sooner.

        Returns
        -------
        int
            Number of updates dropped because their rows have been overwritten.

        Raises
        ------
        TypeError
            The buffer has no scores.
        """
        if not self._plan.group:
            raise TypeError("update_scores() needs a buffer with scores: make it with sampler=Elite()")
        return self._core.update_scores(rows, ids, np.ascontiguousarray(scores, np.float32))

    # ---- priorities

    def update_priorities(self, ids: ArrayLike, priorities: ArrayLike) -> int:
        """Set the priorities of rows, by their ids.

        Parameters
        ----------
        ids : int64 [n]
        priorities : float [n]
            Such as absolute TD errors; ``alpha`` and ``eps`` are applied here.

        Returns
        -------
        int
            Number of updates dropped because their rows have been overwritten.

        Raises
        ------
        ValueError
            A priority is NaN, infinite or negative; nothing is updated.
        TypeError
            The buffer is not prioritized.
        """
        self._require_priorities()
        return self._core.update(np.asarray(ids), np.asarray(priorities))

    @property
    def max_priority(self) -> float:
        """Largest priority so far, the default of new rows; initially 1.0."""
        self._require_priorities()
        return self._core.largest_priority

    def _require_priorities(self) -> None:
        if not self._core.prioritized:
            raise TypeError("this buffer has no priorities: make it with sampler=Prioritized()")

    # ---- as a shard of a larger buffer

    def draw(self, batch_size: int, out: Batch | None = None) -> Draw:
        """Draw rows as `sample` does, and return their masses, for drawing from several shards.

        Parameters
        ----------
        batch_size, out
            As for `sample`.

        Raises
        ------
        NotReady
            There is nothing to draw.
        """
        size = whole("batch_size", batch_size)
        found = self._core.draw(size, out) if self._core.prioritized else self._draw(size, 0.0, out)
        if found is None:
            raise NotReady(self._nothing_to_sample())
        return Draw(*found) if isinstance(found, tuple) else Draw(found, np.ones(size), float(len(self)), 1.0)

    @property
    def mass(self) -> float:
        """Sum of the masses of all rows, for drawing from several shards: see `draw`."""
        return self._core.total if self._core.prioritized else float(len(self))

    def raise_priority(self, priority: float) -> None:
        """Raise the priority of new rows to at least this one, for example that of a row in another shard.

        Raises
        ------
        ValueError
            The priority is NaN, infinite or negative.
        TypeError
            The buffer is not prioritized.
        """
        self._require_priorities()
        self._core.raise_largest([priority])

    # ---- the whole buffer

    def __len__(self) -> int:
        """Number of rows in the buffer; slightly too low after a writer was killed inside ``add``."""
        return self._core.size

    @property
    def capacity(self) -> int:
        """Rows kept."""
        return self._plan.capacity

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self._plan.fields)

    @property
    def num_added(self) -> int:
        """Rows ever added."""
        return self.stats().rows_added

    @property
    def num_begun(self) -> int:
        """Rows ever added, and rows that writers are adding or have left unfinished."""
        return self._core.num_claimed

    def stats(self) -> Stats:
        """Return counts since the buffer was made."""
        return Stats(**self._core.counts())

    def clear(self) -> None:
        """Remove all rows and priorities, unfinished steps of writers, and the rate limiter's counts."""
        self._core.clear()
        if self.rate_limiter is not None:
            self.rate_limiter.reset()

    def save(self, path: str | Path, *, report: Callable[[str], None] | None = None) -> None:
        """Write rows, priorities, counters and the generator's state to a directory; the buffer may be in use.

        Only changes since the last save to the same directory are written. After an interruption the last save is
        intact.

        Parameters
        ----------
        path : str or Path
            Directory, created if missing.
        report : callable or None
            Called with a message if a damaged manifest was moved aside; None: a RuntimeWarning.

        Raises
        ------
        OSError
            The disk is full or cannot be written.
        ReplayFileError
            The directory holds a save of another version, or another program's ``manifest.json``.
        """
        extras = {
            "reverse": self._reverse.next if self._reverse else None,
            "rate_limiter": self.rate_limiter.snapshot() if self.rate_limiter else None,
        }
        save_buffer(self._core, self._description, Path(path), extras, report)

    def load(self, path: str | Path) -> None:
        """Replace the contents by a save; no other thread or process may use the buffer meanwhile.

        Earlier ids become invalid, and unfinished steps of writers are dropped. A rate limiter with the saved settings
        continues from the saved counts; one with other settings starts anew.

        Raises
        ------
        ReplayFileError
            A file is damaged or missing, or of a buffer with other settings; the buffer is unchanged.
        OSError
            A file cannot be read.
        """
        load_buffer(self._core, self._description, Path(path), self._take_extras)

    def _take_extras(self, extras: dict[str, Any]) -> None:
        reverse, counts = extras.get("reverse"), extras.get("rate_limiter")
        if type(reverse) not in (int, type(None)):
            raise ValueError(f"extras.reverse is {reverse!r:.80}")
        if not isinstance(counts, dict | None):
            raise ValueError(f"extras.rate_limiter is {counts!r:.80}")
        if self.rate_limiter is not None:
            self.rate_limiter.restore_or_reset(counts or {})
        if self._reverse is not None and reverse is not None:
            self._reverse.next = reverse

    def __getstate__(self) -> dict[str, Any]:
        return {
            "memory": self._memory,
            "description": self._description,
            "sampler": self._sampler,
            "num_threads": self._num_threads,
            "rate_limiter": self.rate_limiter,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.rate_limiter = state.pop("rate_limiter")
        self._open(**state, seed=None, is_new=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} of {self.capacity:,} rows, {', '.join(self.fields)})"
