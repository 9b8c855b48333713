"""The directory of a search, which several processes of one machine may share.

=====================  ========================================================================
``search.json``        the algorithm, its settings, the space and the number of seeds
``journal.log``        Optuna's journal: what was tried, and what came of it
``trial-3-seed-0/``    the run of a trial and seed, an ordinary run directory
``trial-3-seed-0.txt`` what its process printed
``locks/``             a file for each trial, locked by whoever trains it
=====================  ========================================================================

A lock is held by the processes that have its file open, and is free when the last of them is gone, however it ended: a
trial that is under way, and whose lock is free, was left by a process that died.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.config import ConfigError
from penstock.runs.files import json_bytes, write_file_atomically

SEARCH, JOURNAL, LOCKS = "search.json", "journal.log", "locks"


class SearchDirectory:
    """The files of a search. Make or find it with `share`, or find it again with `open`.

    Attributes
    ----------
    path
        The directory.
    facts
        What is searched, as ``search.json`` has it: algorithm, flags, config, space, seeds; and workers, the flag of
        the number of rollout workers, which the cores of a job decided where the search began.
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = path
        self.facts = facts

    @classmethod
    def share(cls, path: Path, facts: Mapping[str, Any]) -> SearchDirectory:
        """Make the directory of a search, or find it if the same is searched there already.

        Flags and workers are those of the directory: they may be written otherwise here.

        Raises
        ------
        ConfigError
            Something else is searched there, or lies there; the message says what differs.
        """
        try:
            if path.is_dir() and any(path.iterdir()) and not (path / SEARCH).exists() and not (path / LOCKS).exists():
                raise ConfigError(f"--dir {path} is not empty, and holds no search: give another")
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
        """Find the directory of a search again.

        Raises
        ------
        ConfigError
            There is no search.
        """
        try:
            facts = json.loads((path / SEARCH).read_bytes())
        except OSError:
            raise ConfigError(f"{path} holds no search: give the --dir of one") from None
        except ValueError as error:
            raise ConfigError(f"{path / SEARCH} is no JSON: {error}") from None
        return cls(path, facts)

    @property
    def journal(self) -> Path:
        """Path of Optuna's journal."""
        return self.path / JOURNAL

    def run(self, trial: int, seed: int) -> Path:
        """Where the run of a trial and seed lies, or would lie."""
        return self.path / f"trial-{trial}-seed-{seed}"

    def output(self, trial: int, seed: int) -> Path:
        """Where it is written what the run's process prints."""
        return self.path / f"trial-{trial}-seed-{seed}.txt"

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Within the block no other process decides what is tried next."""
        with _locked(self.path / LOCKS / "ask"):
            yield

    def take(self, trial: int) -> int | None:
        """Make a trial this process's own until the file descriptor returned is closed; None: it is another's.

        Processes that inherit the descriptor hold the trial, too.
        """
        descriptor = os.open(self.path / LOCKS / f"trial-{trial}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor

    def is_ending(self, trial: int) -> bool:
        """Whether the search that had a trial is gone, while the training that it began is about to end."""
        try:
            pid = (self.path / LOCKS / f"trial-{trial}").read_text()
        except OSError:
            return False
        return pid.isdigit() and not Path(f"/proc/{pid}").exists()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _require_same(path: Path, name: str, here: Any, there: Any) -> None:
    if here != there:
        raise ConfigError(
            f"--dir {path} holds another search: {name} is {there!r} there, and {here!r} here. Trials compare only "
            "where all else is the same: give another --dir, or the same settings"
        )
