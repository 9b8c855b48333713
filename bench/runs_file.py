"""Measured runs of a bench, one line of JSON each, so that an interrupted command can continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Run = dict[str, Any]


class RunsFile:
    """Measurements so far.

    Parameters
    ----------
    path
        File that grows by a line per run; None: runs are kept in memory only.

    Attributes
    ----------
    runs
        All runs, those of the file first.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.runs: list[Run] = []
        if path is not None and path.exists():
            self.runs = [json.loads(line) for line in path.read_text().splitlines()]

    def find(self, **what: Any) -> Run | None:
        """Return the run with these values; None if there is none."""
        return next((run for run in self.runs if what.items() <= run.items()), None)

    def add(self, run: Run) -> None:
        """Add a run, and write it to the file."""
        self.runs.append(run)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(run) + "\n")
