"""The runs that the dashboard shows, each under an id of its own: nothing else of the disk can be asked for."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.dashboard.tails import Columns, Cursor, decoded, new_lines, numbers_in
from penstock.runs.files import json_values
from penstock.runs.metrics import METRICS
from penstock.runs.reading import RecordedRun, paths_in
from penstock.runs.run_directory import CHECKPOINTS, CONFIG, HARDWARE, LOG, VIDEOS, RunDirectory, RunDirectoryError
from penstock.runs.state import STATUS

POINTS = 1000
"""Rows of a chart's first drawing; lines that come later are added."""
_GROWING = {"metrics": METRICS, "hardware": HARDWARE, "log": LOG}
_MOST_FEEDS = 8
_MOST_LOG_LINES = 500
_SECRET = re.compile(r"token|secret|passw|credential|api_?key|auth", re.IGNORECASE)
_SECRET_WORD = re.compile(r"([\w-]*(?:token|secret|passw|credential|api[_-]?key|auth)[\w-]*[= ])\S+", re.IGNORECASE)


Stamp = tuple[tuple[int, int, int], ...]


@dataclass
class Feed:
    """What was read of a run's growing files, by one reader at a time."""

    path: Path
    columns: dict[str, Columns] = field(default_factory=lambda: {METRICS: Columns(), HARDWARE: Columns()})
    cursors: dict[str, Cursor] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def whole(self) -> dict[str, Any]:
        """Everything up to now, small enough to draw, and the cursors behind it."""
        with self.lock:
            for name in self.columns:
                self._catch_up(name)
            self._catch_up_log()
            return {
                "metrics": self.columns[METRICS].reduced(POINTS),
                "hardware": self.columns[HARDWARE].reduced(POINTS),
                "log": self.log,
                "cursor": ",".join(str(self.cursors[name]) for name in _GROWING.values()),
            }

    def _catch_up(self, name: str) -> None:
        while True:
            lines, cursor, is_same = new_lines(self.path / name, self.cursors.get(name, Cursor()))
            if not is_same:
                self.columns[name] = Columns()
            self.cursors[name] = cursor
            for numbers in map(numbers_in, lines):
                if numbers is not None:
                    self.columns[name].add(numbers)
            if not lines:
                return

    def _catch_up_log(self) -> None:
        while True:
            lines, cursor, is_same = new_lines(self.path / LOG, self.cursors.get(LOG, Cursor()))
            self.cursors[LOG] = cursor
            self.log = (self.log if is_same else []) + decoded(lines)
            self.log = self.log[-_MOST_LOG_LINES:]
            if not lines:
                return


@dataclass(frozen=True)
class Known:
    """A run's row of the overview, and of which state of its files it is."""

    path: Path
    stamp: Stamp
    row: dict[str, Any]


class Catalogue:
    """Finds runs in some folders, as often as it is asked.

    Parameters
    ----------
    places
        Runs, or folders that hold runs.
    """

    def __init__(self, places: Sequence[str | os.PathLike[str]]) -> None:
        self._places = [Path(place) for place in places]
        self._known: dict[str, Known] = {}
        self._feeds: dict[str, Feed] = {}
        self._lock = Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Rows of the overview: what a run's summary says, with its id, the newest first."""
        with self._lock:
            known: dict[str, Known] = {}
            for path, name in (found for place in self._places for found in paths_in(place)):
                id_ = _id_of(path)
                if (run := self._look_at(path, name, id_)) is not None:
                    known.setdefault(id_, run)
            self._known = known
        return sorted((run.row for run in known.values()), key=lambda row: row["created"] or 0.0, reverse=True)

    def run(self, id_: str) -> RecordedRun | None:
        """The run with this id, as it is now; None: there is none."""
        if id_ not in self._known:
            self.rows()
        known = self._known.get(id_)
        if known is None or _stamp(known.path) is None:
            return None
        try:
            return RecordedRun(RunDirectory.open(known.path), known.row["run"])
        except RunDirectoryError:
            return None

    def _look_at(self, path: Path, name: str, id_: str) -> Known | None:
        """Read a run, if its files have changed or its state may have; None: it is none, or not one to be read."""
        stamp, known = _stamp(path), self._known.get(id_)
        if stamp is None:
            return None
        if known is not None and known.stamp == stamp and known.row["state"] not in ("running", "paused"):
            return known
        try:
            run = RecordedRun(RunDirectory.open(path), name)
        except RunDirectoryError:  # the config.json of something else, or half a copy
            return None
        return Known(path, stamp, {"id": id_, **json_values(run.summary)})

    def about(self, run: RecordedRun) -> dict[str, Any]:
        """What a run was made with, and which films there are; what may be a secret is masked."""
        info = dict(run.directory.info)
        if isinstance(info.get("command"), str):
            info["command"] = _SECRET_WORD.sub(r"\1***", info["command"])
        return {
            "summary": json_values(run.summary),
            "status": json_values(run.status),
            "config": masked(run.directory.config),
            "made": masked(info),
            "films": films_of(run),
        }

    def feed(self, run: RecordedRun) -> Feed:
        """What was read of a run so far: of the last few runs that were asked for it is kept."""
        path = run.directory.path
        with self._lock:
            feed = self._feeds.pop(str(path), None) or Feed(path)
            self._feeds[str(path)] = feed
            while len(self._feeds) > _MOST_FEEDS:
                self._feeds.pop(next(iter(self._feeds)))
        return feed


def cursors_in(text: str) -> list[Cursor]:
    """Read the cursors of a run's metrics, hardware and log; raises `ValueError` where they are not these three."""
    cursors = [Cursor.read(each) for each in text.split(",")]
    if len(cursors) != len(_GROWING):
        raise ValueError(f"{len(cursors)} cursors, of {len(_GROWING)} files")
    return cursors


def news(run_path: Path, text: str) -> tuple[dict[str, Any], str]:
    """Return what came behind the cursors of a text, and the text of the cursors behind that.

    ``{"reload": True}`` says that what was read before does not stand: a file is another one, or a run was resumed.
    """
    found: dict[str, Any] = {}
    behind = []
    for (key, name), cursor in zip(_GROWING.items(), cursors_in(text), strict=True):
        lines, after, is_same = new_lines(run_path / name, cursor)
        behind.append(after)
        if not is_same:
            return {"reload": True}, text
        if key == "log":
            added: list[Any] = decoded(lines)
        else:
            added = [numbers for numbers in map(numbers_in, lines) if numbers is not None]
            if any("resumed" in numbers for numbers in added):
                return {"reload": True}, text
        if added:
            found[key] = added
    return found, ",".join(map(str, behind))


def films_of(run: RecordedRun) -> list[str]:
    """Names of the films of a run: ordinary files of its folder of films."""
    folder = run.directory.path / VIDEOS
    if folder.is_symlink() or not folder.is_dir():
        return []
    names = (entry.name for entry in os.scandir(folder) if entry.is_file(follow_symlinks=False))
    return sorted(name for name in names if name.endswith(".mp4"))


def masked(value: Any, name: str = "") -> Any:
    """Return a value of JSON with what may be a secret, by its name, replaced."""
    if isinstance(value, Mapping):
        return {key: masked(item, str(key)) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item, name) for item in value]
    return "***" if _SECRET.search(name) and value not in (None, "") else json_values(value)


def _stamp(path: Path) -> Stamp | None:
    """When the files that a row is made of were changed; None where one of them is a link out of a copied run."""
    stamps = []
    for name in (CONFIG, STATUS, METRICS, CHECKPOINTS):
        try:
            found = os.lstat(path / name)
        except OSError:
            stamps.append((0, 0, 0))
            continue
        if not (stat.S_ISDIR(found.st_mode) if name == CHECKPOINTS else stat.S_ISREG(found.st_mode)):
            return None
        stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)


def _id_of(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
