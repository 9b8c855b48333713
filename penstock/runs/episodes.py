"""Episodes of a run, one JSON object per line: those of evaluations, and the steps of a recent one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from penstock.runs.documents import open_ordinary
from penstock.runs.files import json_values, replace_file
from penstock.runs.series import Columns

EPISODES = "evaluations.jsonl"
RECENT = "episode.jsonl"
MOST_NBYTES = 1 << 22  # read from ``episode.jsonl``


def write_episode(run_dir: Path, seconds: float, columns: Mapping[str, np.ndarray]) -> None:
    """Write ``episode.jsonl``, one line per step with a number from each column; on a full disk, keep the old file."""
    rows = zip_longest(*(np.asarray(column).tolist() for column in columns.values()))
    records = ({"steps": n, "seconds": seconds, **dict(zip(columns, row, strict=True))} for n, row in enumerate(rows))
    lines = "".join(f"{json.dumps(json_values(record))}\n" for record in records)
    with suppress(OSError):
        replace_file(run_dir / RECENT, lines.encode())


def read_episode(run_dir: Path, most: int) -> dict[str, list[float | None]]:
    """Return the numbers of a recent episode's steps, reduced to at most `most` rows; empty without an episode."""
    columns = Columns()
    if (descriptor := open_ordinary(run_dir / RECENT)) is not None:
        with open(descriptor, "rb") as file:
            columns.add(file.read(MOST_NBYTES).splitlines())
    return columns.reduced(most)


def episode_lines(
    steps: int, seconds: float, version: int, returns: Sequence[float], lengths: Sequence[int],
    unfinished: int = 0, requested: int = 0, policy: str = "", about: Mapping[str, Any] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield a record per episode for ``evaluations.jsonl``.

    Keys are steps, seconds, time, version, requested, return, length, is_finished.

    Parameters
    ----------
    steps, version
        Steps that the weights have learned from, and their version.
    seconds
        Wall-clock time trained so far. ("time" is the time of day, in seconds since 1970.)
    returns, lengths
        Return and length of each episode.
    unfinished
        Number of episodes, the last ones of `returns`, that were given up.
    requested
        Number of complete episodes requested.
    policy
        Name of the policy, if a run has several, recorded as "policy".
    about
        Further values of the records.
    """
    common: dict[str, Any] = {"steps": steps, "seconds": round(seconds, 3), "time": round(time.time(), 3)}
    common |= {"version": version, "requested": requested}
    common |= ({"policy": policy} if policy else {}) | dict(about or {})
    for number, (score, length) in enumerate(zip(returns, lengths, strict=True)):
        is_finished = number < len(returns) - unfinished
        yield {**common, "return": float(score), "length": int(length), "is_finished": is_finished}
