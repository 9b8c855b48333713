"""Lists and texts of a run's files. Links are neither shown nor followed."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.redaction import masked
from penstock.runs.documents import DocumentError, open_ordinary, read_document
from penstock.runs.files import json_bytes
from penstock.runs.reading import RecordedRun

SHOWN_NBYTES = 1 << 18
"""Largest shown part of a file, at its end."""
_MOST_FILES = 2000
_TEXTS = frozenset((".json", ".jsonl", ".txt", ".toml", ".csv", ".md", ".log"))
_MOST_JSON_NBYTES = 1 << 22


@dataclass(frozen=True)
class RunFile:
    """A file of a run.

    Attributes
    ----------
    id
        Id in requests, derived from the name.
    name
        Path within the run directory.
    path
        Path of the file.
    size, time
        Bytes, and time of the last change in seconds since 1970.
    """

    id: str
    name: str
    path: Path
    size: int
    time: float

    @property
    def is_text(self) -> bool:
        """Whether the file can be shown and downloaded; weights and events cannot."""
        return self.path.suffix in _TEXTS

    def row(self) -> dict[str, Any]:
        """Return the file's row for the page."""
        return {"id": self.id, "name": self.name, "size": self.size, "time": self.time, "is_text": self.is_text}


def files_of(run: RecordedRun) -> list[RunFile]:
    """Return the regular files in a run directory and its folders, by name, at most 2,000."""
    return list(_files_in(run.directory.path))


def text_of(file: RunFile, most: int = SHOWN_NBYTES) -> dict[str, Any]:
    """Return a file's text; of a long file, the last whole lines.

    Returns
    -------
    dict
        text, and left_out, the number of bytes before the text.
    """
    if (whole := _masked_json(file)) is not None:
        return {"text": whole.decode(), "left_out": 0}
    descriptor = open_ordinary(file.path)
    if descriptor is None:
        return {"text": "", "left_out": 0}
    with open(descriptor, "rb") as opened:
        left_out = max(0, opened.seek(0, os.SEEK_END) - most)
        opened.seek(left_out)
        found = opened.read(most)
    if left_out:
        begun, newline, lines = found.partition(b"\n")
        if newline:
            left_out, found = left_out + len(begun) + 1, lines
    return {"text": found.decode(errors="replace"), "left_out": left_out}


def pieces_of(file: RunFile) -> Iterator[bytes]:
    """Yield the current contents of a file, in pieces."""
    if (whole := _masked_json(file)) is not None:
        yield whole
        return
    descriptor = open_ordinary(file.path)
    if descriptor is None:
        return
    with open(descriptor, "rb") as opened:
        left = os.fstat(descriptor).st_size
        while left > 0 and (piece := opened.read(min(left, 1 << 16))):
            left -= len(piece)
            yield piece


def _files_in(root: Path) -> Iterator[RunFile]:
    count = 0
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = Path(folder) / name
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if not stat.S_ISREG(found.st_mode):
                continue
            relative = os.fspath(path.relative_to(root))
            id_ = hashlib.sha256(os.fsencode(relative)).hexdigest()[:16]
            shown = os.fsencode(relative).decode(errors="replace")
            yield RunFile(id_, shown, path, found.st_size, found.st_mtime)
            count += 1
            if count == _MOST_FILES:
                return


def _masked_json(file: RunFile) -> bytes | None:
    """Return a JSON file with possible secrets masked; None for other files and very large ones."""
    if file.path.suffix != ".json" or file.size > _MOST_JSON_NBYTES:
        return None
    try:
        value = masked(read_document(file.path, Any, _MOST_JSON_NBYTES))
    except (OSError, DocumentError):
        return b""
    return json_bytes(value)
