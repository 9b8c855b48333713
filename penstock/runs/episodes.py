"""The episodes of a run's evaluations: one JSON object per line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.runs.files import AppendFile, json_values

EPISODES = "evaluations.jsonl"


class EpisodesLog:
    """Writes ``evaluations.jsonl`` into a run directory; with None it writes nothing at all.

    Parameters
    ----------
    run_dir
        The run directory, which exists; None: nothing is written.
    warn
        Takes one line when the disk is full, or fails; the run goes on.
    """

    def __init__(self, run_dir: str | os.PathLike[str] | None, warn: Callable[[str], None]) -> None:
        self._path = None if run_dir is None else Path(run_dir) / EPISODES
        self._warn = warn
        self._warned = False
        self._file: AppendFile | None = None

    def write(
        self,
        steps: int,
        seconds: float,
        version: int,
        returns: Sequence[float],
        lengths: Sequence[int],
        unfinished: int = 0,
    ) -> None:
        """Write a line for each episode: ``{"steps", "seconds", "version", "return", "length", "is_finished"}``.

        Parameters
        ----------
        steps, version
            Steps that the weights had learned from, and their version.
        seconds
            Wall-clock time trained so far.
        returns, lengths
            Of each episode.
        unfinished
            How many of them, the last ones, were given up.
        """
        if self._path is None:
            return
        about = {"steps": steps, "seconds": round(seconds, 3), "version": version}
        is_finished = [number < len(returns) - unfinished for number in range(len(returns))]
        lines = [
            json.dumps(json_values({**about, "return": float(score), "length": int(length), "is_finished": finished}))
            for score, length, finished in zip(returns, lengths, is_finished, strict=True)
        ]
        try:
            if self._file is None:
                self._file = AppendFile(self._path)
            self._file.append("".join(f"{line}\n" for line in lines).encode())
        except OSError as error:
            if not self._warned:
                self._warn(f"warning: {self._path} cannot be written ({error.strerror}); training goes on without it")
            self._warned = True

    def close(self) -> None:
        """Close the file; it may be called again."""
        if self._file is not None:
            self._file.close()
