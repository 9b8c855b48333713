"""Directory of a search, which several processes of one machine may share.

=====================  ========================================================================
``search.json``        algorithm, settings, space and number of seeds
``journal.log``        Optuna's journal of all trials and their results
``trial-3-seed-0/``    run of a trial and seed, an ordinary run directory
``trial-3-seed-0.txt`` output of its process
``locks/``             files per trial, locked by the processes that train it
=====================  ========================================================================

A lock is held by the processes that have its file open, and is free when the last of them has ended in any way: a
running trial with a free lock was left by a dead process.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from penstock.config import ConfigError
from penstock.runs.documents import DocumentError, read_document
from penstock.runs.files import json_bytes, write_file_atomically

SEARCH, JOURNAL, LOCKS = "search.json", "journal.log", "locks"


class _Facts(TypedDict):
    """Content of ``search.json``."""

    algorithm: str
    flags: list[str]
    workers: int | None
    config: dict[str, Any]
    space: dict[str, dict[str, Any]]
    seeds: int


class SearchDirectory:
    """Files of a search. Made or opened with `share`, opened with `open`.

    Attributes
    ----------
    path
        The directory.
    facts
        Content of ``search.json``: algorithm, flags, config, space, seeds; and workers, the number of rollout workers
        derived from a job's cores where the search was created, None if flags or space give it.
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.facts = facts

    @classmethod
    def share(cls, path: Path, facts: Mapping[str, Any]) -> SearchDirectory:
        """Make the directory of a search, or open it if it holds the same search; then its flags and workers apply.

        Raises
        ------
        ConfigError
            The directory holds other files, or another search; the message names the difference.
        """
        try:
            if path.is_dir() and any(path.iterdir()) and not (path / SEARCH).exists() and not (path / LOCKS).exists():
                raise ConfigError(f"--dir {path} is not empty, but holds no search: give another")
            (path / LOCKS).mkdir(parents=True, exist_ok=True)
            with _locked(path / LOCKS / "search"):
                if not (path / SEARCH).exists():
                    write_file_atomically(path / SEARCH, json_bytes(facts))
        except OSError as error:
            raise ConfigError(f"--dir {path} cannot be written: {error.strerror} ({error.filename})") from None
        there = cls.open(path)
        for name in ("algorithm", "space", "seeds"):
            _require_same(path, name, json.loads(json_bytes(facts[name])), there.facts[name])
        for name, value in json.loads(json_bytes(facts["config"])).items():
            _require_same(path, name, value, there.facts["config"].get(name))
        return there

    @classmethod
    def open(cls, path: Path) -> SearchDirectory:
        """Open the directory of a search; raise `ConfigError` if there is none."""
        try:
            facts = read_document(path / SEARCH, _Facts)
        except OSError:
            raise ConfigError(f"{path} holds no search: give the --dir of one") from None
        except DocumentError as error:
            raise ConfigError(str(error)) from None
        return cls(path, facts)

    @property
    def shared_flags(self) -> list[str]:
        """Flags of all trainings besides those of the command."""
        workers = self.facts["workers"]
        return [] if workers is None else ["--num-workers", str(workers)]

    @property
    def journal(self) -> Path:
        """Path of Optuna's journal."""
        return self.path / JOURNAL

    def run(self, trial: int, seed: int) -> Path:
        """Directory of a trial's run with a seed, whether it exists or not."""
        return self.path / f"trial-{trial}-seed-{seed}"

    def output(self, trial: int, seed: int) -> Path:
        """File with the output of the run's process."""
        return self.path / f"trial-{trial}-seed-{seed}.txt"

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Within the block, only this process chooses a trial."""
        with _locked(self.path / LOCKS / "ask"):
            yield

    def take(self, trial: int) -> Hold | None:
        """Hold a trial until it is released or this process ends; None: another process holds it. Only in `asking`."""
        path = self.path / LOCKS / f"trial-{trial}"
        if (training := _lock(path)) is None:
            return None
        search = _lock(path.with_suffix(".search"))
        assert search is not None, "it is locked after the first and freed before it"
        return Hold(training, search)

    def is_ending(self, trial: int) -> bool:
        """Return whether the search that held a trial is gone, so that its training is about to end.

        Only in `asking`: a free lock is taken for a moment.
        """
        path = self.path / LOCKS / f"trial-{trial}"
        return not _is_free(path) and _is_free(path.with_suffix(".search"))


@dataclass(frozen=True)
class Hold:
    """Hold of a trial by this process.

    Attributes
    ----------
    training
        Descriptor that a training inherits; it holds the trial until the training has ended too.
    search
        Descriptor that a training does not inherit.
    """

    training: int
    search: int

    def release(self) -> None:
        """Release the trial."""
        os.close(self.search)
        os.close(self.training)


def _lock(path: Path) -> int | None:
    """Lock a file, created if missing, until the descriptor is closed; None: it is locked already."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_free(path: Path) -> bool:
    descriptor = _lock(path)
    if descriptor is not None:
        os.close(descriptor)
    return descriptor is not None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_same(path: Path, name: str, here: Any, there: Any) -> None:
    if here != there:
        raise ConfigError(
            f"--dir {path} holds another search: {name} is {there!r} there, but {here!r} here. Trials can be compared "
            "only if all else is equal: give another --dir, or the same settings"
        )
