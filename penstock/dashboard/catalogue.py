"""Runs of the dashboard, by id. No other part of the disk can be requested."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from penstock.dashboard.feed import Feed
from penstock.runs.descriptions import AXES, NO_FRAMES
from penstock.runs.drawing import games_html
from penstock.runs.files import json_values
from penstock.runs.labels import LABELS
from penstock.runs.metrics import METRICS
from penstock.runs.reading import RecordedRun, paths_in, recorded
from penstock.runs.run_directory import CHECKPOINTS
from penstock.runs.state import STATUS, status_of
from penstock.runs.tables import WORDS, about_of, facts_of, games_of, limit_of, tables_of
from penstock.runs.vacancy import CONFIG, RunDirectoryError
from penstock.runs.videos import videos_of
from penstock.studies.lineage import has_lineage
from penstock.studies.searches import is_search, search_page
from penstock.studies.table import differences

_MOST_FEEDS = 8

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Known:
    """A run, its row of the overview, and the stamp of the row's files."""

    run: RecordedRun
    stamp: Stamp
    row: dict[str, Any]


class Catalogue:
    """Runs in some folders, read again for each request.

    Parameters
    ----------
    places
        Runs, or folders that hold runs.
    """

    def __init__(self, places: Sequence[str | os.PathLike[str]]) -> None:
        self._places = [Path(place) for place in places]
        self._known: dict[str, Known] = {}
        self._searches: dict[str, tuple[Path, str]] = {}
        self._feeds: dict[str, Feed] = {}
        self._lock = Lock()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the overview, each a run's summary with its id, newest first."""
        with self._lock:
            known: dict[str, Known] = {}
            searches: dict[str, tuple[Path, str]] = {}
            places = ((place, *found) for place in self._places for found in paths_in(place))
            for place, path, name in places:
                id_ = id_of(path)
                if (run := self._read(path, name, id_)) is not None:
                    known.setdefault(id_, run)
                    if path != place:  # a folder outside the places is not shown
                        searches.setdefault(id_of(path.parent), (path.parent, os.path.dirname(name) or place.name))
            self._known = known
            self._searches = {id_: found for id_, found in searches.items() if is_search(found[0])}
        return sorted((run.row for run in known.values()), key=lambda row: row["created"] or 0.0, reverse=True)

    def run(self, id_: str) -> RecordedRun | None:
        """Return the run with an id; None if there is none."""
        if id_ not in self._known:
            self.rows()
        known = self._known.get(id_)
        if known is None or _stamp(known.run.directory.path) is None:
            return None
        try:
            return recorded(known.run.directory.path, known.row["run"])
        except RunDirectoryError:
            return None

    def searches(self) -> list[dict[str, str]]:
        """Return id and name of the searches and populations that hold known runs."""
        return [{"id": id_, "name": name} for id_, (_, name) in self._searches.items()]

    def search(self, id_: str) -> dict[str, Any] | None:
        """Return name and trials of the search with an id, and ids of its runs; None if there is none."""
        self.rows()
        if id_ not in self._searches:
            return None
        path, name = self._searches[id_]
        runs = [one.run for one in self._known.values() if one.run.directory.path.parent == path]
        ids = {run.directory.path.name: id_of(run.directory.path) for run in runs}
        found = search_page(path, runs)
        for trial in found["trials"]:
            trial["runs"] = [{"run": run, "id": ids[run]} for run in trial["runs"] if run in ids]
        return {"name": name, **found}

    def chosen(self, words: str, ids: Sequence[str]) -> list[RecordedRun]:
        """Return readable runs that match words and ids, by name.

        Parameters
        ----------
        words
            Words, separated by spaces, that must all occur in state, name, algorithm, environment or tags.
        ids
            Ids of the runs to choose from; empty: all runs that are not archived.
        """
        self.rows()
        wanted, only = words.lower().split(), set(ids)
        found = []
        for known in self._known.values():
            text = " ".join(str(known.row[name]) for name in ("state", "run", "algorithm", "env", "tags")).lower()
            is_legal = known.row["id"] in only if only else not known.row["archived"]
            if is_legal and not known.run.problem and all(word in text for word in wanted):
                found.append(known.run)
        return sorted(found, key=lambda run: run.name)

    def _read(self, path: Path, name: str, id_: str) -> Known | None:
        """Read a run if its files or its state may have changed; None if it is not a run or has links."""
        stamp, known = _stamp(path), self._known.get(id_)
        if stamp is None:
            return None
        if known is not None and known.stamp == stamp and known.row["state"] not in ("running", "paused"):
            return known
        try:
            run = recorded(path, name)
        except RunDirectoryError:  # another program's config.json, or an incomplete copy
            return None
        return Known(run, stamp, {"id": id_, **json_values(run.summary)})

    def about(self, run: RecordedRun) -> dict[str, Any]:
        """Return settings, environment, videos and parent of a run, with possible secrets masked."""
        return {
            "summary": json_values(run.summary),
            "status": json_values(run.status),
            "shown": shown_of(run.summary, run.status),
            "about": about_of(run.summary),
            "words": WORDS,
            "config": run.settings,
            "made": run.made,
            "videos": [video.name for video in videos_of(run.directory.path)],
            "axes": AXES,
            "no_frames": NO_FRAMES,
            "parent": {"id": self._id_of_run(run.parent.get("run")), "words": run.origin} if run.parent else None,
            "has_lineage": has_lineage(run.directory.path),
        }

    def _id_of_run(self, own_id: Any) -> str | None:
        """Return the id of a known run from the id in its ``config.json``."""
        with self._lock:
            known = list(self._known.items()) if isinstance(own_id, str) else []
        return next((id_ for id_, one in known if one.run.directory.info.get("id") == own_id), None)

    def feed(self, run: RecordedRun) -> Feed:
        """Return the feed of a run; feeds of recently requested runs are kept."""
        path = run.directory.path
        with self._lock:
            feed = self._feeds.pop(str(path), None) or Feed(path)
            self._feeds[str(path)] = feed
            while len(self._feeds) > _MOST_FEEDS:
                self._feeds.pop(next(iter(self._feeds)))
        return feed


def shown_of(summary: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about a run, its limit, its tables by name, and its games as HTML, from summary and status."""
    record = {**summary, **status}
    found = status_of(status)
    about = {"facts": facts_of(record), "limit": limit_of(record)}
    return {**about, "tables": tables_of(found), "games": games_html(games_of(found))}


def unlike(runs: Sequence[RecordedRun]) -> list[dict[str, Any]]:
    """Return differences between runs: a row per setting, version, commit and machine, with a value per run."""
    found = differences(runs)
    return [{"name": name, "values": list(values)} for name, values in found.items()]


def _stamp(path: Path) -> Stamp | None:
    """Return identity, time and size of the files behind a row; None if one is a link, as in a hostile copy."""
    stamps = []
    for name in (CONFIG, STATUS, METRICS, LABELS, CHECKPOINTS):
        try:
            found = os.lstat(path / name)
        except OSError:
            stamps.append((0, 0, 0))
            continue
        if not (stat.S_ISDIR(found.st_mode) if name == CHECKPOINTS else stat.S_ISREG(found.st_mode)):
            return None
        stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(stamps)


def id_of(path: Path) -> str:
    """Return the id of a run or folder."""
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
