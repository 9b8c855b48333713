"""Metrics of runs over time, from growing files of JSON lines: as columns, as a curve, or at the ends of a file."""

from __future__ import annotations

import json
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from penstock.runs.documents import is_finite, open_ordinary
from penstock.runs.growing import Cursor, stretches

# Parts of lines of `MetricsLog`: the beginning, a key that is missing in versions without markers, a marker's key.
_BEGIN, _TIME, _MARKER = b'{"steps": ', b', "time": ', b', "resumed": '
MOST_NAMES = 4096
"""Largest number of metrics that are kept from a file."""
_NUMBERS = frozenset((int, float, type(None)))
_PIECE_NBYTES = 1 << 16  # read at an end of a file
_SAMPLE_NBYTES = (1 << 12, 1 << 16)  # where most lines have y, and where few have


def numbers_in(line: bytes) -> dict[str, Any] | None:
    """Return a line's finite numbers by name, and "resumed" for a marker; None for lines without steps and seconds."""
    return _numbers_of(record_in(line))


def numbers_at(path: Path, *, end: bool) -> list[dict[str, Any]]:
    """Return the numbers in the first or the last lines of an ordinary file."""
    descriptor = open_ordinary(path)
    if descriptor is None:
        return []
    with open(descriptor, "rb") as file:
        if end:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _PIECE_NBYTES))
        found = map(numbers_in, file.read(_PIECE_NBYTES).splitlines())
        return [numbers for numbers in found if numbers is not None]


def standing_rows(steps: np.ndarray, seconds: np.ndarray, is_marker: np.ndarray) -> np.ndarray:
    """Return which lines of a run's log are valid after its resumptions, bool ``[n]``.

    A marker, a line with ``"resumed": true``, undoes earlier lines of more steps and has no metrics itself. In logs of
    versions without markers, a line with fewer seconds than the previous one undoes lines as a marker does.

    Parameters
    ----------
    steps, seconds
        float64 ``[n]``.
    is_marker
        bool ``[n]``.
    """
    undoes = is_marker | (np.diff(seconds, prepend=0.0) < 0.0)
    limit = np.where(undoes, steps, np.inf)
    of_later = np.append(np.minimum.accumulate(limit[::-1])[::-1][1:], np.inf)[: steps.size]
    return ~is_marker & (steps <= of_later)


Range = tuple[str, float, float]
"""Name of a column, and the lowest and the highest value of a range in it."""


class Columns:
    """Metrics by name, each with its line numbers and values.

    Parameters
    ----------
    most_names
        Largest number of names; values of further names are dropped.

    Attributes
    ----------
    left_out
        Number of dropped values.
    """

    def __init__(self, most_names: int = MOST_NAMES) -> None:
        self._most_names = most_names
        self._count = 0
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._is_marker = bytearray()
        self.left_out = 0

    def add(self, lines: Iterable[bytes]) -> None:
        """Add lines; lines without steps and seconds are skipped."""
        alike: dict[tuple[str, ...], tuple[list[int], list[Iterable[float | None]]]] = {}
        is_marker = bytearray()
        for line in lines:
            if not _is_plain(record := record_in(line)):
                record = _numbers_of(record)
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

    @property
    def count(self) -> int:
        """Number of lines."""
        return self._count

    def reduced(self, most: int, within: Range | None = None) -> dict[str, list[float | None]]:
        """Return the columns of valid lines in at most `most` rows; None where a line has no number.

        More lines are divided into `most` // 2 stretches. Each becomes two rows, with the lowest and the highest value
        of each column, so that no spike is hidden. Most stretches are within the range, if one is given.
        """
        stands = standing_rows(self._whole("steps"), self._whole("seconds"), np.frombuffer(self._is_marker, bool))
        count, rows_of = int(stands.sum()), np.cumsum(stands) - 1
        begins = np.arange(0)
        if count > most:
            begins = _begins(count, most // 2, None if within is None else self._rows_within(within, stands))
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

    def _rows_within(self, within: Range, stands: np.ndarray) -> tuple[int, int]:
        """Return the first valid row in a range, and the row after the last one."""
        name, low, high = within
        values = self._whole(name)[stands]
        rows = np.flatnonzero((low <= values) & (values <= high))
        return (int(rows[0]), int(rows[-1]) + 1) if rows.size else (0, 0)

    def _known(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the lines that have a metric, ascending, and its values."""
        lines, values = self._columns.get(name, (array("I"), array("d")))
        return np.array(lines, np.int64), np.array(values, float)

    def _whole(self, name: str) -> np.ndarray:
        """Return a value per line, float64; NaN for lines without one."""
        whole = np.full(self._count, np.nan)
        lines, values = self._known(name)
        whole[lines] = values
        return whole


def columns_in(path: Path, most: int) -> dict[str, list[float | None]]:
    """Return the columns of a whole log, with at most about `most` rows; see `Columns.reduced`."""
    columns = Columns()
    for stretch in stretches(path, Cursor()):
        columns.add(stretch.lines)
    return columns.reduced(most)


def _begins(count: int, most: int, within: tuple[int, int] | None) -> np.ndarray:
    """Return the first rows of at most `most` stretches of `count` rows, most of them in the rows `within`."""
    begin, end = within or (0, 0)
    around = max(1, most // 8)
    stretches = min(most - around - 1, end - begin)
    if stretches < 1:
        return np.linspace(0, count, most + 1).astype(int)[:-1]
    inside = np.linspace(begin, end, stretches + 1).astype(int)
    return np.unique([*np.linspace(0, count, around + 1).astype(int)[:-1], *inside[inside < count]])


class GrowingCurve:
    """One metric over another, read incrementally as the file grows.

    Parameters
    ----------
    path
        File of metrics.
    x, y
        Names of the numbers.
    most
        Largest number of points, beyond which neighbours are averaged in pairs. None: no limit.

    Attributes
    ----------
    version
        Version of the curve, increased by each change.
    """

    def __init__(self, path: Path, x: str, y: str, most: int | None = None) -> None:
        self._path = path
        self._names = (x, y)
        self._most = most
        self.version = 0
        self._cursor = Cursor()
        self._seconds = 0.0  # of the last line
        self._width = 1  # lines that one mean stands for
        self._means = np.empty((2, 0))
        self._rest = np.empty((2, 0))  # lines that are too few for another mean

    def catch_up(self) -> None:
        """Read new lines; read the whole file again if lines were undone or the file was replaced."""
        begun, rows = self._cursor.offset > 0, list[np.ndarray]()
        for stretch in stretches(self._path, self._cursor):
            if not stretch.is_same:
                self._forget()
                begun, rows = False, []
            self._cursor = stretch.cursor
            rows.append(picked(stretch.text, *self._names))
        table = np.concatenate(rows)
        if not table.size:
            return
        if begun and (table[:, 2].any() or (np.diff(table[:, 1], prepend=self._seconds) < 0.0).any()):
            self._forget()
            self.catch_up()
            return
        self._seconds = float(table[-1, 1])
        self._add(*points_in(table))

    @property
    def nbytes_left(self) -> int:
        """Bytes of the file that are not read yet."""
        try:
            return max(0, os.lstat(self._path).st_size - self._cursor.offset)
        except OSError:
            return 0

    def sampled(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y of at most `count` lines spread over the file, without reading the rest."""
        descriptor = open_ordinary(self._path)
        if descriptor is None:
            return np.empty(0), np.empty(0)
        with open(descriptor, "rb") as file:
            end = max(0, os.fstat(descriptor).st_size - _SAMPLE_NBYTES[0])
            rows = [_first_with(file, int(place), *self._names) for place in np.linspace(0, end, count)]
        return points_in(np.concatenate(rows))

    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """Return x and y, float64 ``[n]``, in ascending order of x."""
        ends = [np.stack([self._rest.mean(1)], 1)] if self._rest.size else []
        x, y = np.concatenate([self._means, *ends], 1)
        order = np.argsort(x, kind="stable")
        return x[order], y[order]

    def _forget(self) -> None:
        self.version += 1
        self._cursor, self._seconds, self._width = Cursor(), 0.0, 1
        self._means, self._rest = np.empty((2, 0)), np.empty((2, 0))

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.version += 1
        self._rest = np.concatenate([self._rest, [x, y]], 1)
        self._settle()
        while self._most is not None and self._means.shape[1] > self._most:
            whole = self._means.shape[1] // 2 * 2
            left = np.repeat(self._means[:, whole:], self._width, 1)
            self._means = self._means[:, :whole].reshape(2, -1, 2).mean(2)
            self._width *= 2
            self._rest = np.concatenate([left, self._rest], 1)
            self._settle()

    def _settle(self) -> None:
        """Move complete groups of lines to the means."""
        whole = self._rest.shape[1] // self._width * self._width
        made = self._rest[:, :whole].reshape(2, -1, self._width).mean(2)
        self._means = np.concatenate([self._means, made], 1)
        self._rest = self._rest[:, whole:]


def picked(text: bytes, x: str, y: str) -> np.ndarray:
    """Return two numbers of each line, with the arguments of `standing_rows`.

    Lines of `MetricsLog` are not parsed whole, and those without y are skipped, for speed.

    Parameters
    ----------
    text
        Whole lines, with newlines between them.
    x, y
        Names of the numbers.

    Returns
    -------
    numpy.ndarray
        float64 ``[n, 5]``: steps, seconds, whether the line is a marker, x and y; NaN for missing numbers.
    """
    if not text.startswith(_BEGIN) or _TIME not in text.partition(b"\n")[0] or _MARKER in text:
        found = map(numbers_in, text.split(b"\n"))
        rows = [_row(numbers, x, y) for numbers in found if numbers is not None]
    else:
        rows = list(_rows_with(text, x, y))
    return np.array(rows).reshape(-1, 5)


def _first_with(file: BinaryIO, place: int, x: str, y: str) -> np.ndarray:
    """Return the `picked` row of the first whole line with y after `place`; float64 ``[n, 5]``, n <= 1."""
    for nbytes in _SAMPLE_NBYTES:
        text = os.pread(file.fileno(), nbytes, place)
        begin = text.find(b"\n") + 1 if place else 0
        rows = picked(text[begin : text.rfind(b"\n")], x, y)
        rows = rows[~np.isnan(rows[:, 4])]
        if rows.size:
            break
    return rows[:1]


def points_in(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of the valid rows among the `picked` rows of a whole file: float64 ``[n]``, x ascending."""
    steps, seconds, is_marker, x, y = rows.T
    chosen = standing_rows(steps, seconds, is_marker > 0.0) & ~np.isnan(x) & ~np.isnan(y)
    x, y = x[chosen], y[chosen]
    order = np.argsort(x, kind="stable")
    return x[order], y[order]


def _rows_with(text: bytes, x: str, y: str) -> Iterator[tuple[float, ...]]:
    """Yield rows of the lines that have y, in a text without markers."""
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
    """Return the number from `at` to the next comma or the end of the line; NaN if it is not a finite number."""
    end = line.find(b",", at)
    try:
        value = float(line[at : end if end >= 0 else -1])
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def record_in(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the whole lines of an ordinary file."""
    for stretch in stretches(path, Cursor()):
        yield from filter(None, map(record_in, stretch.lines))


def _numbers_of(record: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if record is None:
        return None
    numbers = {name: value for name, value in record.items() if type(value) in (int, float) and is_finite(value)}
    if "steps" not in numbers or "seconds" not in numbers:
        return None
    return numbers | ({"resumed": True} if record.get("resumed") is True else {})


def _is_plain(record: Mapping[str, Any] | None) -> bool:
    """Return whether a record has only numbers and nulls, with steps and seconds, as most lines have."""
    if record is None or not _NUMBERS.issuperset(map(type, record.values())):
        return False
    return record.get("steps") is not None and record.get("seconds") is not None


def _table(values: Sequence[Iterable[float | None]], width: int) -> np.ndarray:
    """Return values as float64 ``[lines, width]``, NaN for nulls."""
    cells = list(chain.from_iterable(values))
    try:
        return np.array(cells, float).reshape(-1, width)
    except OverflowError:
        finite = [cell if cell is not None and is_finite(cell) else None for cell in cells]
        return np.array(finite, float).reshape(-1, width)


def _lowest_and_highest(stretch: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return two row numbers for each stretch with values, for its lowest and its highest value, and these."""
    begins = np.flatnonzero(np.diff(stretch, prepend=-1))
    rows = 2 * stretch[begins]
    low, high = np.minimum.reduceat(values, begins), np.maximum.reduceat(values, begins)
    return np.stack([rows, rows + 1], 1).reshape(-1), np.stack([low, high], 1).reshape(-1)
