"""Files of runs as they grow: whole lines from a cursor on, and columns of numbers small enough to draw."""

from __future__ import annotations

import json
import math
import os
import stat
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MOST_NBYTES = 1 << 22
"""Read at once."""


@dataclass(frozen=True)
class Cursor:
    """How far a file was read: so many bytes of the one with this inode number. A new cursor is at the start of any."""

    inode: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.inode}:{self.offset}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read what `str` made of one; raises `ValueError`."""
        inode, _, offset = text.partition(":")
        return cls(int(inode), max(0, int(offset)))


def new_lines(path: Path, cursor: Cursor) -> tuple[list[bytes], Cursor, bool]:
    """Read the whole lines behind a cursor, `MOST_NBYTES` at most.

    What is no ordinary file, such as a link out of a copied run, has no lines.

    Returns
    -------
    tuple
        Lines, the cursor behind them, and whether it is still the file that the cursor is of.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return [], Cursor(), not cursor.inode
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        return [], Cursor(), not cursor.inode
    with open(descriptor, "rb") as file:
        is_same = cursor.inode in (0, found.st_ino) and cursor.offset <= found.st_size
        offset = cursor.offset if is_same else 0
        file.seek(offset)
        whole, newline, _ = file.read(MOST_NBYTES).rpartition(b"\n")
    taken = len(whole) + len(newline)
    return whole.split(b"\n") if newline else [], Cursor(found.st_ino, offset + taken), is_same


def numbers_in(line: bytes) -> dict[str, Any] | None:
    """Numbers of a line by name, and "resumed" where it says so; None: it is no line of numbers with steps."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict):
        return None
    numbers = {
        name: value
        for name, value in record.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
    if "steps" not in numbers or "seconds" not in numbers:
        return None
    return numbers | ({"resumed": True} if record.get("resumed") is True else {})


class Columns:
    """Numbers of lines, by name: NaN where a line has none."""

    def __init__(self) -> None:
        self._count = 0
        self._seconds = 0.0
        self._columns: dict[str, array[float]] = {}

    def add(self, numbers: dict[str, Any]) -> bool:
        """Add a line; one that says that the run was resumed removes what it undoes. Return whether it removed any.

        Of an earlier Penstock, a line whose seconds go back says it.
        """
        is_marker = "resumed" in numbers
        undoes = is_marker or numbers["seconds"] < self._seconds
        self._seconds = numbers["seconds"]
        removed = undoes and self._undo(numbers["steps"])
        if not is_marker:
            for name, value in numbers.items():
                column = self._columns.setdefault(name, array("d"))
                column.extend([math.nan] * (self._count - len(column)))
                column.append(value)
            self._count += 1
        return removed

    def reduced(self, most: int) -> dict[str, list[float | None]]:
        """Return the columns in at most so many rows: where there are more, stretches of them are two rows each.

        The first holds the lowest and the second the highest value of each column, so that no spike is hidden.
        """
        whole = {name: self._whole(name) for name in self._columns}
        if self._count > most:
            ends = np.linspace(0, self._count, most // 2 + 1).astype(int)[:-1]
            whole = {name: _lowest_and_highest(column, ends) for name, column in whole.items()}
        return {
            name: [None if math.isnan(value) else value for value in column.tolist()] for name, column in whole.items()
        }

    def _undo(self, steps: float) -> bool:
        stays = ~(self._whole("steps") > steps)
        if stays.all():
            return False
        self._columns = {name: array("d", self._whole(name)[stays].tobytes()) for name in self._columns}
        self._count = int(stays.sum())
        return True

    def _whole(self, name: str) -> np.ndarray:
        column = self._columns.get(name, array("d"))
        found = np.full(self._count, np.nan)
        found[: len(column)] = column
        return found


def _lowest_and_highest(column: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """float64 ``[2 * stretches]``: of each the lowest and the highest value, NaN where it has none."""
    low, high = np.fmin.reduceat(column, begins), np.fmax.reduceat(column, begins)
    return np.stack([low, high], 1).reshape(-1)


def decoded(lines: Iterable[bytes]) -> list[str]:
    """Lines of a log as text."""
    return [line.decode(errors="replace") for line in lines]
