"""Files of runs as they grow: whole lines from a cursor on, from ordinary files alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_NBYTES = 1 << 22
"""Read at once."""


@dataclass(frozen=True)
class Cursor:
    """Position in a file: bytes read of the file with this inode number. A new cursor is at the start of any file."""

    inode: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.inode}:{self.offset}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Read what `str` made of one; raises `ValueError`."""
        inode, _, offset = text.partition(":")
        return cls(int(inode), max(0, int(offset)))


@dataclass(frozen=True)
class Stretch:
    """Whole lines of a file.

    Attributes
    ----------
    text
        The lines, with the newlines between them.
    cursor
        Behind them.
    is_same
        Whether it is still the file that was asked for: False where it was replaced, cut or removed.
    """

    text: bytes
    cursor: Cursor
    is_same: bool

    @property
    def lines(self) -> list[bytes]:
        """The lines one by one."""
        return self.text.split(b"\n") if self.text else []


def open_ordinary(path: Path) -> int | None:
    """Open an ordinary file for reading; None: it is not there, or a link, a folder or a pipe.

    A copied run may hold any of these. The caller closes the descriptor.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def read_on(path: Path, cursor: Cursor) -> Stretch:
    """Read the whole lines behind a cursor, `MOST_NBYTES` at most. What is no ordinary file has no lines."""
    descriptor = open_ordinary(path)
    if descriptor is None:
        return Stretch(b"", Cursor(), not cursor.inode)
    found = os.fstat(descriptor)
    with open(descriptor, "rb") as file:
        is_same = cursor.inode in (0, found.st_ino) and cursor.offset <= found.st_size
        offset = cursor.offset if is_same else 0
        file.seek(offset)
        text, newline, _ = file.read(MOST_NBYTES).rpartition(b"\n")
    return Stretch(text, Cursor(found.st_ino, offset + len(text) + len(newline)), is_same)


def stretches(path: Path, cursor: Cursor) -> Iterator[Stretch]:
    """Read on up to the end of a file, a stretch at a time; the last one is empty, and has the cursor behind all."""
    while True:
        stretch = read_on(path, cursor)
        before, cursor = cursor, stretch.cursor
        yield stretch
        if stretch.is_same and cursor in (before, Cursor()):
            return


def decoded(lines: Iterable[bytes]) -> list[str]:
    """Lines of a log as text."""
    return [line.decode(errors="replace") for line in lines]
