"""Changes of a folder of runs in pieces, and the copy of the folder that the pieces are written to.

A checkpoint is sent from files that were opened together, and appears in the copy when it is whole and verified. A file
that says what others hold (``status.json``, a manifest) is opened before the others and sent after them: a copy that
ends in between has the older one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from penstock.runs.checkpoint import META, holds_only_a_checkpoint, verify_checkpoint
from penstock.runs.episodes import RECENT
from penstock.runs.files import directory_replacing, remove_directory, replace_file, write_file
from penstock.runs.lock import LOCK
from penstock.runs.state import STATUS

PIECE_NBYTES = 1 << 20
BATCH_NBYTES = 4 << 20  # of the pieces that are sent together
_LAST = (STATUS, "manifest.json")


@dataclass(frozen=True)
class Piece:
    """Part of a file that has changed.

    Attributes
    ----------
    path
        Path of the file, or of a checkpoint, relative to the folder.
    data
        Bytes; None: the path is gone, or with `checkpoint` all files of the checkpoint have been sent.
    offset
        Place of the bytes in the file, which is replaced if this is 0.
    checkpoint
        Relative path of the checkpoint that the file is part of; "" for others.
    """

    path: str
    data: bytes | None
    offset: int = 0
    checkpoint: str = ""


class Changes:
    """Changes of a folder since they were last read; links, hidden files and locks are left out.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}  # identity, and bytes that were read

    def pieces(self, within: Iterable[str] = ("",)) -> Iterator[Piece]:
        """Yield pieces of everything that has changed in files and folders, given by relative paths."""
        seen: set[str] = set()
        for path in within:
            place = self._folder / path
            if place.is_dir():
                yield from self._in(path, seen)
            elif place.is_file():
                with open(place, "rb") as file:
                    yield from self._of(path, file, seen)
        for path in self._known.keys() - seen:
            if not os.path.lexists(self._folder / path):
                del self._known[path]
                yield Piece(path, None)

    def skip(self) -> None:
        """Count everything as read."""
        for _ in self.pieces():
            pass

    def _in(self, path: str, seen: set[str]) -> Iterator[Piece]:
        """Yield pieces of a folder: folders first, files named in `_LAST` last."""
        place = self._folder / path
        if (place / META).is_file():
            yield from self._of_checkpoint(path, seen)
            return
        with ExitStack() as stack, suppress(FileNotFoundError):
            last = {name: stack.enter_context(open(place / name, "rb")) for name in _LAST if (place / name).is_file()}
            entries = sorted(os.scandir(place), key=lambda entry: (entry.is_file(), entry.name))
            for entry in entries:
                if entry.name.startswith(".") or entry.name in (LOCK, *last) or entry.is_symlink():
                    continue
                inner = os.path.join(path, entry.name)
                if entry.is_dir():
                    yield from self._in(inner, seen)
                else:
                    with suppress(FileNotFoundError), open(entry.path, "rb") as file:
                        yield from self._of(inner, file, seen)
            for name, file in last.items():
                yield from self._of(os.path.join(path, name), file, seen)

    def _of(self, path: str, file: IO[bytes], seen: set[str]) -> Iterator[Piece]:
        seen.add(path)
        found = os.fstat(file.fileno())
        identity = (found.st_ino,) if _grows(path) else (found.st_ino, found.st_mtime_ns, found.st_size)
        before, offset = self._known.get(path, ((), 0))
        if identity != before or found.st_size < offset:
            offset = -1
        while offset < found.st_size:
            offset = max(0, offset)
            data = os.pread(file.fileno(), min(PIECE_NBYTES, found.st_size - offset), offset)
            yield Piece(path, data, offset)
            offset += len(data)
            if not data:
                break
        self._known[path] = identity, offset

    def _of_checkpoint(self, path: str, seen: set[str]) -> Iterator[Piece]:
        place = self._folder / path
        with ExitStack() as stack:
            try:
                identity = _identity(place)
                if identity != self._known.get(path, ((), 0))[0]:
                    files = {name: stack.enter_context(open(place / name, "rb")) for name in sorted(os.listdir(place))}
                    if _identity(place) != identity:  # replaced meanwhile: the next reading finds the new one
                        files = {}
                else:
                    files = {}
            except OSError:
                return
            seen.add(path)
            for name, file in files.items():
                offset = 0
                while (data := file.read(PIECE_NBYTES)) or not offset:
                    yield Piece(os.path.join(path, name), data, offset, path)
                    offset += max(1, len(data))
            if files:
                yield Piece(path, None, checkpoint=path)
                self._known[path] = identity, 0


class Copy:
    """A folder that is written from pieces.

    Parameters
    ----------
    folder
        The folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._checkpoint = ExitStack()  # the place of a checkpoint that is not whole yet
        self._aside: Path | None = None

    def take(self, piece: Piece) -> None:
        """Write a piece.

        Raises
        ------
        CheckpointError
            A checkpoint did not arrive as it was sent.
        OSError
            The folder cannot be written.
        """
        path = self._folder / piece.path
        if piece.checkpoint:
            self._take_part(piece)
        elif piece.data is None:
            if holds_only_a_checkpoint(path):
                remove_directory(path)
            elif path.is_file():
                path.unlink()
        elif not piece.offset:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, piece.data)
        else:
            with open(path, "r+b") as file:
                file.truncate(piece.offset)
                file.seek(piece.offset)
                file.write(piece.data)

    def _take_part(self, piece: Piece) -> None:
        if self._aside is None:
            self._aside = self._checkpoint.enter_context(directory_replacing(self._folder / piece.checkpoint))
        if piece.data is None:
            verify_checkpoint(self._aside)
            self._aside = None
            self._checkpoint.close()
        elif not piece.offset:
            write_file(self._aside / Path(piece.path).name, piece.data)
        else:
            with open(self._aside / Path(piece.path).name, "ab") as file:
                file.write(piece.data)

    def close(self) -> None:
        """Remove a checkpoint that is not whole; it may be called again."""
        if self._aside is not None:
            self._aside = None
            with suppress(_Unfinished):
                self._checkpoint.__exit__(_Unfinished, _Unfinished(), None)


class _Unfinished(Exception):
    """A checkpoint has not arrived as a whole."""


def batches(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Yield pieces in lists of a limited number of bytes."""
    batch: list[Piece] = []
    nbytes = 0
    for piece in pieces:
        batch.append(piece)
        nbytes += len(piece.data or b"")
        if nbytes >= BATCH_NBYTES:
            yield batch
            batch, nbytes = [], 0
    if batch:
        yield batch


def _grows(path: str) -> bool:
    """Whether a file is only appended to; others are replaced as a whole, and a new one may have an old inode."""
    name = Path(path).name
    return name != RECENT and (name.endswith((".jsonl", ".txt")) or name.startswith("events.out."))


def _identity(place: Path) -> tuple[int, ...]:
    found = os.stat(place)
    return found.st_ino, found.st_mtime_ns
