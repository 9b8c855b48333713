"""Numbers of a run's lines, as columns: all of them, or the two that a curve needs."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

# Of lines as `MetricsLog` writes them: what they begin with, what those of before it wrote markers lack, and a marker.
_BEGIN, _TIME, _MARKER = b'{"steps": ', b', "time": ', b', "resumed": '
_NUMBERS = frozenset((int, float, type(None)))


def standing_rows(steps: np.ndarray, seconds: np.ndarray, is_marker: np.ndarray) -> np.ndarray:
    """Which lines stand, of those that a run has logged over several resumes.

    A line with ``"resumed": true``, a marker, undoes earlier lines of more steps than its own, and is none of them
    itself. Of a Penstock that wrote no markers, a line whose seconds are fewer than those of the line before it undoes
    as a marker does.

    Parameters
    ----------
    steps, seconds
        float64 ``[n]``.
    is_marker
        bool ``[n]``.

    Returns
    -------
    numpy.ndarray
        bool ``[n]``.
    """
    undoes = is_marker | (np.diff(seconds, prepend=0.0) < 0.0)
    limit = np.where(undoes, steps, np.inf)
    of_later = np.append(np.minimum.accumulate(limit[::-1])[::-1][1:], np.inf)[: steps.size]
    return ~is_marker & (steps <= of_later)


def numbers_in(line: bytes) -> dict[str, Any] | None:
    """Numbers of a line by name, and "resumed" where it says so; None: it is no line of numbers with steps."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return _numbers_of(record) if isinstance(record, dict) else None


class Columns:
    """Numbers of lines, by name: NaN where a line has none."""

    def __init__(self) -> None:
        self._count = 0
        self._columns: dict[str, array[float]] = {}
        self._is_marker = bytearray()

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines; those without steps and seconds are left out."""
        alike: dict[tuple[str, ...], tuple[list[int], list[Iterable[float | None]]]] = {}
        is_marker = bytearray()
        for line in lines:
            record = _plain_record(line) or numbers_in(line)
            if record is None:
                continue
            rows, values = alike.setdefault(tuple(record), ([], []))
            rows.append(len(is_marker))
            values.append(record.values())
            is_marker.append("resumed" in record)
        found: dict[str, np.ndarray] = {}
        for names, (rows, values) in alike.items():
            for name, column in zip(names, _table(values, len(names)).T, strict=True):
                found.setdefault(name, np.full(len(is_marker), np.nan))[rows] = column
        for name, column in found.items():
            known = self._columns.setdefault(name, array("d"))
            known.frombytes(np.full(self._count - len(known), np.nan).tobytes())
            known.frombytes(np.where(np.isfinite(column), column, np.nan).tobytes())
        self._is_marker += is_marker
        self._count += len(is_marker)

    def reduced(self, most: int) -> dict[str, list[float | None]]:
        """Return the columns of the lines that stand, in at most so many rows.

        Where there are more, stretches of them are two rows each. The first holds the lowest and the second the highest
        value of each column, so that no spike is hidden.
        """
        stands = standing_rows(self._whole("steps"), self._whole("seconds"), np.frombuffer(self._is_marker, bool))
        whole = {name: self._whole(name)[stands] for name in self._columns}
        whole = {name: column for name, column in whole.items() if not np.isnan(column).all()}
        count = int(stands.sum())
        if count > most:
            begins = np.linspace(0, count, most // 2 + 1).astype(int)[:-1]
            whole = {name: _lowest_and_highest(column, begins) for name, column in whole.items()}
        return {
            name: [None if math.isnan(value) else value for value in column.tolist()] for name, column in whole.items()
        }

    def _whole(self, name: str) -> np.ndarray:
        column = self._columns.get(name, array("d"))
        found = np.full(self._count, np.nan)
        found[: len(column)] = column
        return found


def picked(text: bytes, x: str, y: str) -> np.ndarray:
    """Pick two numbers from lines, and what `standing_rows` asks for.

    Of lines as `MetricsLog` writes them only those with y are looked at, and little more of them than these numbers.

    Parameters
    ----------
    text
        Whole lines, with newlines between them.
    x, y
        Names of the numbers.

    Returns
    -------
    numpy.ndarray
        float64 ``[n, 5]``: steps, seconds, whether it is a marker, x and y; NaN where a line has none.
    """
    if not text.startswith(_BEGIN) or _TIME not in text.partition(b"\n")[0] or _MARKER in text:
        found = map(numbers_in, text.split(b"\n"))
        rows = [_row(numbers, x, y) for numbers in found if numbers is not None]
    else:
        rows = list(_rows_with(text, x, y))
    return np.array(rows).reshape(-1, 5)


def points_in(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of `picked` rows of a whole file, as far as they stand: float64 ``[n]``, x ascending."""
    steps, seconds, is_marker, x, y = rows.T
    chosen = standing_rows(steps, seconds, is_marker > 0.0) & ~np.isnan(x) & ~np.isnan(y)
    x, y = x[chosen], y[chosen]
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _rows_with(text: bytes, x: str, y: str) -> Iterator[tuple[float, ...]]:
    """Rows of the lines that have y, none of which is a marker."""
    seconds_key, x_key, y_key = (f", {json.dumps(name)}: ".encode() for name in ("seconds", x, y))
    at = text.find(y_key)
    while at >= 0:
        begin, end = text.rfind(b"\n", 0, at) + 1, text.find(b"\n", at)
        line = text[begin : len(text) if end < 0 else end]
        if line.startswith(_BEGIN) and line.endswith(b"}"):
            steps = _number_behind(line, len(_BEGIN))
            of_x = steps if x == "steps" else _number_at(line, x_key)
            yield steps, _number_at(line, seconds_key), 0.0, of_x, _number_behind(line, at - begin + len(y_key))
        elif (numbers := numbers_in(line)) is not None:
            yield _row(numbers, x, y)
        at = -1 if end < 0 else text.find(y_key, end)


def _row(numbers: Mapping[str, float], x: str, y: str) -> tuple[float, ...]:
    is_marker = float("resumed" in numbers)
    return numbers["steps"], numbers["seconds"], is_marker, numbers.get(x, math.nan), numbers.get(y, math.nan)


def _number_at(line: bytes, key: bytes) -> float:
    at = line.find(key)
    return math.nan if at < 0 else _number_behind(line, at + len(key))


def _number_behind(line: bytes, at: int) -> float:
    """The number that begins there, up to the next comma or the end of the line; NaN: it is none, or not finite."""
    end = line.find(b",", at)
    try:
        value = float(line[at : end if end >= 0 else -1])
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def _numbers_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Finite numbers of a line; None: without steps or seconds."""
    numbers = {name: value for name, value in record.items() if type(value) in (int, float) and _is_finite(value)}
    if "steps" not in numbers or "seconds" not in numbers:
        return None
    return numbers | ({"resumed": True} if record.get("resumed") is True else {})


def _plain_record(line: bytes) -> dict[str, float | None] | None:
    """A line that holds numbers and nothing else, steps and seconds among them; None: it is another one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not _NUMBERS.issuperset(map(type, record.values())):
        return None
    return None if record.get("steps") is None or record.get("seconds") is None else record


def _table(values: Sequence[Iterable[float | None]], width: int) -> np.ndarray:
    """float64 ``[lines, width]``, NaN for what is not known."""
    cells = list(chain.from_iterable(values))
    try:
        return np.array(cells, float).reshape(-1, width)
    except OverflowError:
        finite = [cell if cell is not None and _is_finite(cell) else None for cell in cells]
        return np.array(finite, float).reshape(-1, width)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number with hundreds of digits
        return False


def _lowest_and_highest(column: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """float64 ``[2 * stretches]``: of each the lowest and the highest value, NaN where it has none."""
    low, high = np.fmin.reduceat(column, begins), np.fmax.reduceat(column, begins)
    return np.stack([low, high], 1).reshape(-1)
