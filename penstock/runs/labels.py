"""``labels.json``: tags and a note that the user gave to a run, and whether the run is archived."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from penstock.runs.documents import DocumentError, read_document, require_shape
from penstock.runs.files import json_bytes, write_file_atomically

LABELS = "labels.json"
MOST_TAGS, MOST_NOTE = 20, 4_000
"""Largest number of tags, and of characters of a note."""
MOST_NBYTES = 1 << 16
_FORMAT = "penstock labels"
_TAG = re.compile(r"[\w][\w.:/+-]{0,39}")


class LabelsError(ValueError):
    """Labels are not legal, or cannot be written."""


class _Labels(TypedDict):
    tags: list[str]
    note: str
    archived: bool


class _Document(_Labels):
    format: Literal["penstock labels"]


@dataclass(frozen=True)
class Labels:
    """Labels of a run.

    Attributes
    ----------
    tags
        Words, in alphabetical order.
    note
        Text of any number of lines.
    archived
        Whether tables of runs hide the run.
    """

    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False

    def validate(self) -> None:
        """Raise `LabelsError` unless tags and note are legal."""
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise LabelsError(f"{tag!r} is not a tag: use up to 40 letters, digits and . : / + - _, without spaces")
        if len(self.tags) > MOST_TAGS:
            raise LabelsError(f"{len(self.tags)} tags: a run has {MOST_TAGS} at most")
        if len(self.note) > MOST_NOTE:
            raise LabelsError(f"a note of {len(self.note):,} characters: it has {MOST_NOTE:,} at most")


def labels_in(value: Any) -> Labels:
    """Return the labels in a JSON value; raise `LabelsError` for illegal ones."""
    try:
        require_shape(value, "labels", _Labels)
    except DocumentError as error:
        raise LabelsError(str(error)) from error
    labels = Labels(tuple(sorted(set(value["tags"]))), value["note"], value["archived"])
    labels.validate()
    return labels


def read_labels(run_dir: Path) -> Labels:
    """Return the labels of a run, which are empty if the file is missing or cannot be read."""
    try:
        return labels_in(read_document(run_dir / LABELS, _Document, MOST_NBYTES))
    except (OSError, DocumentError, LabelsError):
        return Labels()


def change_labels(run_dir: Path, change: Callable[[Labels], Labels]) -> Labels:
    """Change the labels of a run while other processes and threads are locked out; return the new labels.

    Raises
    ------
    LabelsError
        They are not legal, the file is another program's, or it cannot be written.
    """
    path = run_dir / LABELS
    try:
        with ExitStack() as stack:
            stack.callback(os.close, folder := os.open(run_dir, os.O_RDONLY | os.O_CLOEXEC))
            with suppress(OSError):  # a file system without locks
                fcntl.flock(folder, fcntl.LOCK_EX)
            labels = change(before := read_labels(run_dir))
            labels.validate()
            if labels != before and os.path.lexists(path):
                read_document(path, _Document, MOST_NBYTES)
            if labels != before:
                write_file_atomically(path, json_bytes({"format": _FORMAT, **asdict(labels)}))
            return labels
    except DocumentError as error:
        raise LabelsError(f"{path} was not written by penstock tag, and is left as it is: {error}") from error
    except OSError as error:
        raise LabelsError(f"{path} cannot be written: {error.strerror}") from error
