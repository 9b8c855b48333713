"""Growing files of lines, read incrementally from a cursor.

Files of a copied run may have any content: only ordinary files are read, in stretches of whole lines of limited size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.runs.documents import open_ordinary

_MOST_NBYTES = 1 << 22  # of a stretch


@dataclass(frozen=True)
class Cursor:
    """Position in a file: inode number and bytes read. A new cursor is at the start of any file."""

    inode: int = 0
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.inode}:{self.offset}"

    @classmethod
    def read(cls, text: str) -> Cursor:
        """Return the cursor of a text made by `str`; raise `ValueError` for another text."""
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
        Position after them.
    is_same
        Whether the file is still that of the given cursor: False if it was replaced, truncated or removed.
    """

    text: bytes
    cursor: Cursor
    is_same: bool

    @property
    def lines(self) -> list[bytes]:
        """Lines as a list."""
        return self.text.split(b"\n") if self.text else []


def read_on(path: Path, cursor: Cursor) -> Stretch:
    """Read whole lines after a cursor, up to the size of a stretch; links, folders and pipes have no lines."""
    descriptor = open_ordinary(path)
    if descriptor is None:
        return Stretch(b"", Cursor(), not cursor.inode)
    found = os.fstat(descriptor)
    with open(descriptor, "rb") as file:
        is_same = cursor.inode in (0, found.st_ino) and cursor.offset <= found.st_size
        offset = cursor.offset if is_same else 0
        file.seek(offset)
        text, newline, _ = file.read(_MOST_NBYTES).rpartition(b"\n")
    return Stretch(text, Cursor(found.st_ino, offset + len(text) + len(newline)), is_same)


def stretches(path: Path, cursor: Cursor) -> Iterator[Stretch]:
    """Read to the end of a file, a stretch at a time; the last stretch is empty, with the cursor at the end."""
    while True:
        stretch = read_on(path, cursor)
        before, cursor = cursor, stretch.cursor
        yield stretch
        if stretch.is_same and cursor in (before, Cursor()):
            return
