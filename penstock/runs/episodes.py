"""Episodes of a run, one JSON object per line: those of evaluations, and the steps of a recent one."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from penstock.runs.documents import open_ordinary
from penstock.runs.files import LinesLog, json_values, replace_file
from penstock.runs.series import Columns

EPISODES = "evaluations.jsonl"
RECENT = "episode.jsonl"
MOST_NBYTES = 1 << 22  # read of the steps of an episode


def write_episode(run_dir: Path, seconds: float, columns: Mapping[str, np.ndarray]) -> None:
    """Write ``episode.jsonl``, a line for each step with the numbers of all columns; a full disk leaves the old one."""
    rows = zip_longest(*(np.asarray(column).tolist() for column in columns.values()))
    records = ({"steps": n, "seconds": seconds, **dict(zip(columns, row, strict=True))} for n, row in enumerate(rows))
    lines = "".join(f"{json.dumps(json_values(record))}\n" for record in records)
    with suppress(OSError):
        replace_file(run_dir / RECENT, lines.encode())


def read_episode(run_dir: Path, most: int) -> dict[str, list[float | None]]:
    """Return the numbers of the steps of a recent episode, in at most `most` rows; empty without one."""
    columns = Columns()
    if (descriptor := open_ordinary(run_dir / RECENT)) is not None:
        with open(descriptor, "rb") as file:
            columns.add(file.read(MOST_NBYTES).splitlines())
    return columns.reduced(most)


class EpisodesLog:
    """Writer of ``evaluations.jsonl`` in a run directory.

    Parameters
    ----------
    run_dir
        The existing run directory; None: nothing is written.
    warn
        Called with a warning when the disk is full or fails; the run continues.
    """

    def __init__(self, run_dir: str | os.PathLike[str] | None, warn: Callable[[str], None]) -> None:
        self._lines = LinesLog(None if run_dir is None else Path(run_dir) / EPISODES, warn)

    def write(
        self, steps: int, seconds: float, version: int, returns: Sequence[float], lengths: Sequence[int],
        unfinished: int = 0, asked: int = 0, policy: str = "", about: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """Write a line per episode: steps, seconds, time, version, asked, return, length, is_finished.

        Parameters
        ----------
        steps, version
            Steps that the weights have learned from, and their version.
        seconds
            Wall-clock time trained so far. ("time" is the calendar's, in seconds since 1970.)
        returns, lengths
            Return and length of each episode.
        unfinished
            Number of the last episodes that were given up.
        asked
            Number of complete episodes requested.
        policy
            Name of the policy, if a run has several; "policy" of the lines.
        about
            Further values of the lines.
        """
        common: dict[str, Any] = {"steps": steps, "seconds": round(seconds, 3), "time": round(time.time(), 3)}
        common |= {"version": version, "asked": asked}
        common |= ({"policy": policy} if policy else {}) | dict(about or {})
        is_finished = [number < len(returns) - unfinished for number in range(len(returns))]
        self._lines.write(
            {**common, "return": float(score), "length": int(length), "is_finished": finished}
            for score, length, finished in zip(returns, lengths, is_finished, strict=True)
        )

    def close(self) -> None:
        """Close the file; it may be called again."""
        self._lines.close()
