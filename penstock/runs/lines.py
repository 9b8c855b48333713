"""A file of one JSON object per line, which a full disk does not stop a run for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.runs.files import AppendFile, json_values


class LinesLog:
    """Appends JSON objects to a file, one a line; with None it writes nothing at all.

    Parameters
    ----------
    path
        The file, made with the first line; None: nothing is written.
    warn
        Takes one line when the disk is full, or fails: what could not be written is left out, and the run goes on.
    """

    def __init__(self, path: Path | None, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._warned = False
        self._file: AppendFile | None = None

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append these: all of them, or none where the disk is full."""
        if self._path is None:
            return
        lines = "".join(f"{json.dumps(json_values(record))}\n" for record in records)
        try:
            if self._file is None:
                self._file = AppendFile(self._path)
            self._file.append(lines.encode())
        except OSError as error:
            if not self._warned:
                self._warn(f"warning: {self._path} cannot be written ({error.strerror}); training goes on without it")
            self._warned = True

    def close(self) -> None:
        """Close the file; it may be called again, and the next line opens the file anew."""
        if self._file is not None:
            self._file.close()
            self._file = None
