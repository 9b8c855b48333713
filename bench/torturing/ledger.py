"""The ledger of a run: the steps learned from, recorded batch by batch by the process that learns.

A step's *key* is ``environment << 32 | number``: the environments of a story are numbered, and so are the steps of
each. A process appends records of int64 words to its own file::

    MARK, steps learned from, steps torn, n, key of the first step of a stretch, its steps, ... (n times)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FOLDER, LIFE = "PENSTOCK_TORTURE_LEDGER", "PENSTOCK_TORTURE_LIFE"
"""Environment variables: the ledger's folder, and the name of this life of the run."""
MARK = 0x5EDE5
HEADER = 4  # words
UNIT = 2.0**-24  # of numbers in observations: float32 represents its multiples below 1 exactly


class Ledger:
    """The file of this process."""

    def __init__(self, folder: Path, life: str) -> None:
        self._descriptor = os.open(folder / f"{life}-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def learned(self, keys: np.ndarray, torn: int) -> None:
        """Record one batch.

        Parameters
        ----------
        keys
            int64 ``[K]``: keys of the steps learned from, in any order.
        torn
            Number of rows of the batch that mix several steps.
        """
        keys = np.sort(keys)
        begins = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 2) != 1)
        counts = np.diff(begins, append=len(keys))
        record = np.empty(HEADER + 2 * len(begins), np.int64)
        record[:HEADER] = MARK, len(keys), torn, len(begins)
        record[HEADER::2], record[HEADER + 1 :: 2] = keys[begins], counts
        os.write(self._descriptor, record.tobytes())


def of_this_process() -> Ledger | None:
    """Return the ledger that the environment variables name; None if they name none."""
    folder = os.environ.get(FOLDER)
    return None if folder is None else Ledger(Path(folder), os.environ.get(LIFE, "0"))


def new_environment() -> int:
    """Return a number that is unique among all environments of the story."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return 0
    descriptor = os.open(Path(folder) / "environments", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(descriptor, b".")
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


def keys_of(observations: np.ndarray) -> np.ndarray:
    """Return the keys of steps from observations ``[..., (place, environment, number)]``, int64 ``[...]``."""
    numbers = (observations[..., 1:] / np.float64(UNIT)).astype(np.int64)
    return numbers[..., 0] << 32 | numbers[..., 1]


@dataclass(frozen=True)
class Account:
    """Contents of the ledgers of one life.

    Attributes
    ----------
    steps
        Steps learned from.
    twice, lost, torn
        Steps learned from more than once; steps never learned from before a later one of the same environment; rows
        that mix several steps.
    sums
        Steps learned from after each batch of each process: ``[0]`` and then ascending, by process id.
    """

    steps: int
    twice: int
    lost: int
    torn: int
    sums: dict[int, np.ndarray]


def read(folder: Path, life: str) -> Account:
    """Add up the ledgers of a life; an incomplete last record of a killed process does not count."""
    sums, begins, counts, torn = {}, [], [], 0
    for path in sorted(folder.glob(f"{life}-*")):
        words = np.fromfile(path, np.int64)
        learned, at = [0], 0
        while at + HEADER <= len(words) and (end := at + HEADER + 2 * int(words[at + 3])) <= len(words):
            if words[at] != MARK:
                raise ValueError(f"{path} is not a ledger: word {at} is {words[at]}")
            learned.append(int(words[at + 1]))
            torn += int(words[at + 2])
            begins.append(words[at + HEADER : end : 2])
            counts.append(words[at + HEADER + 1 : end : 2])
            at = end
        sums[int(path.name.rpartition("-")[2])] = np.cumsum(learned)
    keys = _expand(begins, counts)
    twice, lost = twice_and_lost(keys)
    return Account(len(keys), twice, lost, torn, sums)


def twice_and_lost(keys: np.ndarray) -> tuple[int, int]:
    """Count the keys that occur more than once, and those missing before the last one of each environment.

    Parameters
    ----------
    keys
        int64 ``[K]``, in any order.
    """
    once = np.unique(keys)
    environments, first = np.unique(once >> 32, return_index=True)
    last = np.append(first[1:], len(once)) - 1
    expected = (once[last] & 0xFFFFFFFF) + 1 if len(once) else np.empty(0, np.int64)
    found = last - first + 1
    assert len(environments) == len(first)
    return len(keys) - len(once), int((expected - found).sum())


def _expand(begins: list[np.ndarray], counts: list[np.ndarray]) -> np.ndarray:
    """Return all keys of the stretches, int64."""
    if not begins:
        return np.empty(0, np.int64)
    begin, count = np.concatenate(begins), np.concatenate(counts)
    before = np.repeat(np.cumsum(count) - count, count)
    return np.repeat(begin, count) + np.arange(count.sum()) - before
