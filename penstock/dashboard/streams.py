"""Server-sent events for open pages: changed runs, new lines, growing curves."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool

from penstock.dashboard.catalogue import Catalogue, shown_of
from penstock.dashboard.curves import Curves
from penstock.dashboard.feed import news
from penstock.runs.descriptions import AXES, NO_FRAMES
from penstock.runs.reading import RecordedRun
from penstock.runs.state import read_state, state_of
from penstock.runs.videos import videos_of
from penstock.studies.compare_page import settings_unlike

LOOK_SECONDS = 0.8
"""Seconds between two reads of the files of an open page."""
OVERVIEW_SECONDS = 1.0
CURVES_SECONDS = 1.0
_NOTHING = ""  # value of a stream without news
_QUIET_SECONDS = 15.0  # longest time without a line
_PROGRESS_SECONDS = 0.3  # between two reports of progress in reading many runs


async def overview_events(catalogue: Catalogue) -> AsyncIterator[str]:
    """Yield changed rows with the ids of all rows, and all searches."""
    known: dict[str, Any] = {}
    while True:
        rows = await run_in_threadpool(catalogue.rows)
        changed = [row for row in rows if known.get(row["id"]) != row]
        if changed or len(rows) != len(known):
            ids, searches = [row["id"] for row in rows], catalogue.searches()
            yield _event("runs", {"changed": changed, "ids": ids, "searches": searches})
        else:
            yield _NOTHING
        known = {row["id"]: row for row in rows}
        await asyncio.sleep(OVERVIEW_SECONDS)


async def run_events(run: RecordedRun, cursor: str) -> AsyncIterator[str]:
    """Yield new lines of a run's files, with the cursor after them as event id, and the run's status."""
    path, summary = run.directory.path, run.summary
    shown: dict[str, Any] = {}

    def look() -> tuple[dict[str, Any], str, dict[str, Any]]:
        found, behind = news(path, cursor)
        status = read_state(path)
        videos = [video.name for video in videos_of(path)]
        return found, behind, {"state": state_of(status, path), "status": status, "videos": videos}

    while True:
        found, cursor, now = await run_in_threadpool(look)
        if found:
            yield _event("news", found, cursor)
        if now != shown:
            shown = now
            yield _event("status", {**now, "shown": shown_of(summary, now["status"])})
        elif not found:
            yield _NOTHING
        await asyncio.sleep(LOOK_SECONDS)


async def curve_events(
    catalogue: Catalogue, curves: Curves, words: str, ids: list[str], x: str, y: str, keys: list[str], band: str
) -> AsyncIterator[str]:
    """Yield curves of samples and progress if reading takes long, then all curves, and again after each change."""
    shown: dict[str, Any] = {}
    while True:
        runs = await run_in_threadpool(catalogue.chosen, words, ids)
        settings = settings_unlike(runs)
        known = [key for key in keys if key in settings]
        about = {"settings": settings, "count": len(runs), "no_frames": NO_FRAMES if x == "frames" else ""}
        if not shown and await run_in_threadpool(curves.is_long, runs, x, y):
            panels = await run_in_threadpool(partial(curves.panels, runs, x, y, known, band, is_sampled=True))
            yield _event("curves", {"panels": panels, "names": [], "axes": [], "is_sampled": True, **about})
        left = list(runs)
        while left:
            await run_in_threadpool(curves.catch_up, left, x, y, _PROGRESS_SECONDS)
            if left and not shown:
                yield _event("progress", {"read": len(runs) - len(left), "of": len(runs)})
        panels = await run_in_threadpool(curves.panels, runs, x, y, known, band)
        names = await run_in_threadpool(curves.names, runs)
        axes = [[name, AXES.get(name, name)] for name in (*AXES, "episodes") if name in names and name != "time"]
        found = {"panels": panels, "names": names, "axes": axes, "is_sampled": False, **about}
        if found != shown:
            shown = found
            yield _event("curves", found)
        else:
            yield _NOTHING
        await asyncio.sleep(CURVES_SECONDS)


async def until(is_ending: Callable[[], bool], events: AsyncIterator[str]) -> AsyncIterator[str]:
    """Pass on events until the server ends; after a long silence send a comment, which detects a dead connection."""
    last = time.monotonic()
    async for event in events:
        if is_ending():
            return
        if event != _NOTHING or time.monotonic() >= last + _QUIET_SECONDS:
            last = time.monotonic()
            yield event or ": still here\n\n"


def _event(name: str, data: Any, cursor: str = "") -> str:
    id_ = f"id: {cursor}\n" if cursor else ""
    return f"event: {name}\n{id_}data: {json.dumps(data)}\n\n"
