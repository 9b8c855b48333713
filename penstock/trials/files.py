"""Changes of a folder of runs, and their writing into a copy of the folder.

A checkpoint is read as it was at one moment, and appears in the copy when it is complete and verified. A file that
describes others (``status.json``, a manifest) is read before them and written after them: if copying stops in between,
the copy has the older description.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.runs.checkpoint import META, holds_only_a_checkpoint, verify_checkpoint
from penstock.runs.episodes import RECENT
from penstock.runs.files import directory_replacing, remove_directory, replace_file, write_file
from penstock.runs.lock import LOCK
from penstock.runs.state import STATUS

BATCH_NBYTES = 4 << 20
_LAST = (STATUS, "manifest.json")


class Change(NamedTuple):
    """New bytes of a file from an offset on, all files of a checkpoint, or None: the path is gone."""

    path: str
    content: bytes | dict[str, bytes] | None
    offset: int = 0


class Changes:
    """Changes of a folder since they were last read; links, hidden files and locks are left out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], int]] = {}  # by path: identity, and number of bytes read

    def read(self, within: Iterable[str] = ("",)) -> Iterator[Change]:
        """Yield everything that has changed in files and folders, given by relative paths."""
        seen: set[str] = set()
        for path in within:
            if (self._folder / path).is_dir():
                yield from self._in(path, seen)
            elif (self._folder / path).is_file():
                yield from self._of(path, seen)
        for path in self._known.keys() - seen:
            if not os.path.lexists(self._folder / path):
                del self._known[path]
                yield Change(path, None)

    def _in(self, path: str, seen: set[str]) -> Iterator[Change]:
        last = []
        entries = sorted(os.scandir(self._folder / path), key=lambda entry: (entry.name not in _LAST, entry.is_file()))
        for entry in entries:
            if entry.name.startswith(".") or entry.name == LOCK or entry.is_symlink():
                continue
            inner = os.path.join(path, entry.name)
            with suppress(FileNotFoundError):  # gone meanwhile
                if entry.name in _LAST:
                    last += self._of(inner, seen)
                elif entry.is_file():
                    yield from self._of(inner, seen)
                elif os.path.isfile(os.path.join(entry, META)):
                    yield from self._of_checkpoint(inner, seen)
                else:
                    yield from self._in(inner, seen)
        yield from last

    def _of(self, path: str, seen: set[str]) -> list[Change]:
        with open(self._folder / path, "rb") as file:
            seen.add(path)
            found = os.fstat(file.fileno())
            identity = (found.st_ino,) if _grows(path) else (found.st_ino, found.st_mtime_ns, found.st_size)
            before, offset = self._known.get(path, ((), 0))
            if identity != before or found.st_size < offset:
                offset = 0
            elif found.st_size == offset:
                return []
            data = os.pread(file.fileno(), found.st_size - offset, offset)
        self._known[path] = identity, offset + len(data)
        return [Change(path, data, offset)]

    def _of_checkpoint(self, path: str, seen: set[str]) -> list[Change]:
        seen.add(path)
        place = self._folder / path
        if (identity := _identity(place)) == self._known.get(path, ((), 0))[0]:
            return []
        files = {name: (place / name).read_bytes() for name in os.listdir(place)}
        if _identity(place) != identity:  # replaced meanwhile: the next reading finds the new one
            return []
        self._known[path] = identity, 0
        return [Change(path, files)]


def write(folder: Path, change: Change) -> None:
    """Write a change into a copy of a folder.

    Raises
    ------
    CheckpointError
        A checkpoint differs from what was written.
    FileNotFoundError
        The copy lacks the file to append to.
    """
    path = folder / change.path
    if isinstance(change.content, dict):
        with directory_replacing(path) as aside:
            for name, data in change.content.items():
                write_file(aside / name, data)
            verify_checkpoint(aside)
    elif change.content is None:
        if holds_only_a_checkpoint(path):
            remove_directory(path)
        elif path.is_file():
            path.unlink()
    elif not change.offset:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, change.content)
    else:
        with open(path, "r+b") as file:
            file.truncate(change.offset)
            file.seek(change.offset)
            file.write(change.content)


def batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Yield changes in lists of about `BATCH_NBYTES`, or of one larger change."""
    batch: list[Change] = []
    nbytes = 0
    for change in changes:
        batch.append(change)
        parts = change.content.values() if isinstance(change.content, dict) else [change.content or b""]
        if (nbytes := nbytes + sum(map(len, parts))) >= BATCH_NBYTES:
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
