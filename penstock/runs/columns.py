"""Numbers of a run's lines, as columns: all of them, or the two that a curve needs."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from penstock.runs.documents import is_finite, numbers_in

# Of lines as `MetricsLog` writes them: what they begin with, what those of before it wrote markers lack, and a marker.
_BEGIN, _TIME, _MARKER = b'{"steps": ', b', "time": ', b', "resumed": '
MOST_NAMES = 4096
"""Names of numbers that are kept of a file."""
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



class Columns:
    """Numbers of lines, by name; each name keeps the lines that have it, and their values.

    Parameters
    ----------
    most_names
        Names that are kept: numbers of further names are counted and left out.

    Attributes
    ----------
    left_out
        Numbers that were left out because there were too many names.
    """

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._count = 0
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._is_marker = bytearray()
        self.left_out = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines; those without steps and seconds are left out."""
        alike: dict[tuple[str, ...], tuple[list[int], list[Iterable[float | None]]]] = {}
        is_marker = bytearray()
        for line in lines:
            record = _plain_record(line) or numbers_in(line)
            if record is None:
                continue
            rows, values = alike.setdefault(tuple(record), ([], []))
            rows.append(self._count + len(is_marker))
            values.append(record.values())
            is_marker.append("resumed" in record)
        found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        names_left = self._most_names - len(self._columns)
        for names, (rows, values) in alike.items():
            at = np.array(rows, np.uint32)
            for name, column in zip(names, _table(values, len(names)).T, strict=True):
                known = np.isfinite(column)
                if name not in self._columns and name not in found:
                    if not known.any():
                        continue
                    if not names_left:
                        self.left_out += int(known.sum())
                        continue
                    names_left -= 1
                found.setdefault(name, []).append((at[known], column[known]))
        for name, parts in found.items():
            at, column = (np.concatenate(each) for each in zip(*parts, strict=True))
            order = np.argsort(at, kind="stable")
            lines_of, values_of = self._columns.setdefault(name, (array("I"), array("d")))
            lines_of.frombytes(at[order].tobytes())
            values_of.frombytes(column[order].tobytes())
        self._is_marker += is_marker
        self._count += len(is_marker)

    def reduced(self, most: int) -> dict[str, list[float | None]]:
        """Return the columns of the lines that stand, in at most so many rows; None where a line has no number.

        Where there are more, stretches of them are two rows each. The first holds the lowest and the second the highest
        value of each column, so that no spike is hidden.
        """
        stands = standing_rows(self._whole("steps"), self._whole("seconds"), np.frombuffer(self._is_marker, bool))
        count, rows_of = int(stands.sum()), np.cumsum(stands) - 1
        begins = np.linspace(0, count, most // 2 + 1).astype(int)[:-1] if count > most else np.arange(0)
        shown: dict[str, list[float | None]] = {}
        for name in self._columns:
            lines, values = self._known(name)
            rows, values = rows_of[lines[stands[lines]]], values[stands[lines]]
            if not rows.size:
                continue
            if len(begins):
                rows, values = _lowest_and_highest(np.searchsorted(begins, rows, "right") - 1, values)
            column: list[float | None] = [None] * (2 * len(begins) or count)
            for row, value in zip(rows.tolist(), values.tolist(), strict=True):
                column[row] = value
            shown[name] = column
        return shown

    def _known(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the lines that have a name, ascending, and their values."""
        lines, values = self._columns.get(name, (array("I"), array("d")))
        return np.array(lines, np.int64), np.array(values, float)

    def _whole(self, name: str) -> np.ndarray:
        """A value for each line, float64; NaN where a line has none."""
        whole = np.full(self._count, np.nan)
        lines, values = self._known(name)
        whole[lines] = values
        return whole


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
        finite = [cell if cell is not None and is_finite(cell) else None for cell in cells]
        return np.array(finite, float).reshape(-1, width)



def _lowest_and_highest(stretch: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two rows of each stretch that has values, and what they hold: the lowest value and the highest."""
    begins = np.flatnonzero(np.diff(stretch, prepend=-1))
    rows = 2 * stretch[begins]
    low, high = np.minimum.reduceat(values, begins), np.maximum.reduceat(values, begins)
    return np.stack([rows, rows + 1], 1).reshape(-1), np.stack([low, high], 1).reshape(-1)
