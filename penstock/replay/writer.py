"""Writing of steps into a replay buffer, and conversion of values to arrays of a field's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock._native import ReplayCore, ReplayWriter
from penstock.replay.limiter import NotReady, RateLimiter, deadline_after, seconds_left, whole

_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # of dtype kinds: a field accepts its own rank and lower ones


class Writer:
    """Writer of the steps of one process's lanes; made by ``ReplayBuffer.writer``.

    The copy in a forked child is a new writer: unfinished steps stay with the parent.
    """

    def __init__(
        self, core: ReplayCore, limiter: RateLimiter | None, lanes: int, timeout: float | None, seed: int
    ) -> None:
        if not hasattr(lanes, "__index__") or lanes < 1:
            raise ValueError(f"lanes={lanes!r} is not legal: give a whole number, 1 or more")
        if timeout is not None and not (isinstance(timeout, int | float) and timeout >= 0):
            raise ValueError(f"timeout={timeout!r} is not legal: give seconds, 0 or more, or None for no limit")
        self._limiter = limiter
        self._timeout = timeout
        self._lanes = lanes
        self._native = ReplayWriter(core, int(lanes), seed, convert)

    @property
    def lanes(self) -> int:
        """Number of lanes that step together."""
        return self._lanes

    @property
    def written(self) -> NDArray[np.int64]:
        """Ids of the rows that the last ``add`` or ``end_episode`` finished, int64 ``[k]``, in the order written.

        Several lanes come one after another, each oldest first. A new array; empty at first, after ``clear`` or
        ``load`` of the buffer, and in a forked child. A call that raised before it wrote anything leaves it unchanged;
        after a ``NotReady`` with some steps written it holds the rows that these finished.
        """
        return self._native.written()

    def add(self, **steps: Any) -> int | None:
        """Write one step of every lane, or with one lane a step or ``[k, ...]`` successive ones.

        Parameters
        ----------
        **steps
            A value for every field: ``[*shape]`` or ``[k, *shape]`` with one lane, else ``[lanes, *shape]``. Also
            ``terminated`` and ``truncated``, which end an episode even if they are not fields; ``priorities`` (one for
            all or one per step; default: the largest so far); ``mask``, bool ``[lanes]``: the lanes that take part in
            this step.

        Returns
        -------
        int or None
            Id of the first row finished by these steps; None if there is none. All ids are in ``written``.

        Raises
        ------
        KeyError, TypeError, ValueError
            A field is missing, unknown, or its value has the wrong shape, dtype or range; nothing is written.
        NotReady
            The rate limiter has not admitted all steps within the writer's timeout; the error's ``written`` is the
            number of steps written.
        """
        if self._limiter is None:
            return self._native.add(steps)
        return self._add_in_turn(self._limiter, steps)

    def _add_in_turn(self, limiter: RateLimiter, steps: dict[str, Any]) -> int | None:
        """Add as many steps at once as the rate limiter admits; rows are counted when they are finished."""
        count = self._native.check(steps)
        deadline = deadline_after(self._timeout)
        first = None
        begin = 0
        while True:
            end = count if self._lanes > 1 else min(count, begin + limiter.largest_insert)
            rows = self._native.count_rows(steps, begin, end)
            while rows > limiter.largest_insert and end - begin > 1 and self._lanes == 1:
                end = begin + (end - begin) // 2
                rows = self._native.count_rows(steps, begin, end)
            self._take_turn(limiter, rows, deadline, begin)
            added = self._native.add(steps, begin, end)
            first = added if first is None else first
            if end == count:
                return first
            begin = end

    def _take_turn(self, limiter: RateLimiter, rows: int, deadline: float | None, written: int) -> None:
        try:
            if rows:
                limiter.insert(rows, seconds_left(deadline))
        except NotReady as error:
            error.written = written
            if written:
                error.add_note(f"{written} of the steps are written: give only the others again")
            raise

    def end_episode(self, lane: int | None = None) -> int | None:
        """Truncate the episode of a lane, or of all lanes, after its last step, and write unfinished rows.

        Returns
        -------
        int or None
            As for ``add``.
        """
        lane = None if lane is None else whole("lane", lane)
        if self._limiter is not None and (rows := self._native.count_rows_at_end(lane)):
            self._limiter.insert(rows, self._timeout)
        return self._native.end_episode(lane)

    def episode_length(self, lane: int = 0) -> int:
        """Return the steps of the lane's running episode."""
        if not 0 <= whole("lane", lane) < self._lanes:
            raise IndexError(f"lane {lane} is not legal: lanes are 0 to {self._lanes - 1}")
        return self._native.episode_length(lane)


def convert(value: Any, name: str, dtype: np.dtype, lenient: bool) -> np.ndarray:
    """Return ``value`` as a C-contiguous array of ``dtype``; called by the native core for values that are not arrays.

    Without ``lenient`` only the precision of floating-point numbers may be lost.

    Raises
    ------
    TypeError
        The kind of number does not fit: a float for an integer field.
    ValueError
        A number is outside the field's range, or a finite one would become infinite.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of numbers: {error}") from None
    if array.dtype == dtype:
        return np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype.hasobject or array.dtype.kind not in _RANKS:
        raise TypeError(f"{name} is {_described(value, array)}: give {dtype} numbers of one shape")
    if not lenient and _RANKS[array.dtype.kind] > _RANKS[dtype.kind]:
        raise TypeError(f"{name} is {array.dtype}, but the field holds {dtype}: convert it, or change the field")
    with np.errstate(over="warn" if lenient else "ignore"):
        converted = np.ascontiguousarray(array.astype(dtype)).reshape(array.shape)
    if not lenient:
        _require_equal(array, converted, name)
    return converted


def _require_equal(array: np.ndarray, converted: np.ndarray, name: str) -> None:
    dtype = converted.dtype
    if dtype.kind in "iu" and not np.array_equal(array, converted):
        raise ValueError(f"{name} holds {array.min()} to {array.max()}, which {dtype} cannot hold")
    if dtype.kind in "fc" and not (is_finite := np.isfinite(converted)).all():
        lost = array[~is_finite & np.isfinite(array)]
        if lost.size:
            largest = f"{float(np.finfo(dtype).max):.8g}"
            raise ValueError(f"{name} holds {lost[0]}, which {dtype} cannot hold: give -{largest} to {largest}")


def _described(value: Any, array: np.ndarray) -> str:
    return f"a {type(value).__name__}" + (f" of {array.dtype}" if not array.dtype.hasobject else "")
