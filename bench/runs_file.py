"""Runs that a bench has measured, a line of JSON for each, so that a command that was cut off goes on."""

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
        File that grows by a line for each run; None: runs are only held.

    Attributes
    ----------
    runs
        All of them, those that the file held first.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.runs: list[Run] = []
        if path is not None and path.exists():
            self.runs = [json.loads(line) for line in path.read_text().splitlines()]

    def find(self, **what: Any) -> Run | None:
        """The run of which all this is true; None: it is not measured yet."""
        return next((run for run in self.runs if what.items() <= run.items()), None)

    def add(self, run: Run) -> None:
        """Hold a run, and write it down."""
        self.runs.append(run)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write(json.dumps(run) + "\n")
