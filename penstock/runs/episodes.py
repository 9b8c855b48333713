"""Episodes of a run's evaluations: one JSON object per line."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.runs.files import LinesLog

EPISODES = "evaluations.jsonl"


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
        self,
        steps: int,
        seconds: float,
        version: int,
        returns: Sequence[float],
        lengths: Sequence[int],
        unfinished: int = 0,
        asked: int = 0,
        policy: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> None:
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
