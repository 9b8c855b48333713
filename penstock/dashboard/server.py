"""Routes of the dashboard: its pages, their data, and the signal that stops a run."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.dashboard.catalogue import Catalogue, unlike
from penstock.dashboard.curves import Curves
from penstock.dashboard.feed import cursors_in
from penstock.dashboard.files import files_of, films_of, pieces_of, text_of
from penstock.dashboard.guard import LOCAL, Guard, is_same
from penstock.dashboard.streams import curve_events, overview_events, run_events, until
from penstock.runs.lock import holding_of, holds
from penstock.runs.process import is_alive
from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import VIDEOS

STATIC = Path(__file__).parent / "static"
FILES = {
    "app.js": "text/javascript", "overview.js": "text/javascript", "run.js": "text/javascript",
    "curves.js": "text/javascript", "diff.js": "text/javascript", "files.js": "text/javascript",
    "chart.js": "text/javascript", "dom.js": "text/javascript", "uPlot.esm.js": "text/javascript",
    "icon.svg": "image/svg+xml", "style.css": "text/css", "uPlot.min.css": "text/css", "uPlot.LICENSE": "text/plain",
}  # fmt: skip
"""All files of the page: another name is not there."""
CONTROL_HEADER = "x-penstock-control"
_MOST_COMPARED = 20
_BANDS = ("ci", "minmax", "none")


def make_app(
    catalogue: Catalogue,
    *,
    token: str,
    cookie: str = "penstock",
    hosts: Collection[str] = LOCAL,
    control: bool = False,
    is_ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Make what uvicorn serves.

    Parameters
    ----------
    catalogue
        Knows the runs.
    token, cookie, hosts
        As `Guard` wants them.
    control
        Whether runs may be stopped.
    is_ending
        Whether the server is about to end: streams end then.
    """
    control_token = secrets.token_urlsafe(16) if control else None
    all_curves = Curves()

    def events(found: AsyncIterator[str]) -> Response:
        return StreamingResponse(until(is_ending, found), media_type="text/event-stream")

    def found(request: Request) -> RecordedRun | None:
        return catalogue.run(request.path_params["id"])

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        return FileResponse(STATIC / name, media_type=FILES[name]) if name in FILES else _missing()

    async def runs(request: Request) -> Response:
        return _Json({"runs": await run_in_threadpool(catalogue.rows), "control": control_token})

    async def run(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else _Json(await run_in_threadpool(catalogue.about, one))

    async def history(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else _Json(await run_in_threadpool(catalogue.feed(one).whole))

    async def progress(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else _Json({"share": catalogue.feed(one).share_read()})

    async def files(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        return _Json({"run": one.name, "files": [file.row() for file in await run_in_threadpool(files_of, one)]})

    async def file(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        there = [] if one is None else await run_in_threadpool(files_of, one)
        wanted = next((each for each in there if each.id == request.path_params["file"]), None)
        if wanted is None or not wanted.is_text:
            return _missing()
        if "download" not in request.query_params:
            return _Json({"name": wanted.name, **await run_in_threadpool(text_of, wanted)})
        name = quote(wanted.name.replace("/", "-"), safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return StreamingResponse(pieces_of(wanted), media_type="application/octet-stream", headers=headers)

    async def differences(request: Request) -> Response:
        ids = _ids_in(request)[:_MOST_COMPARED]
        runs = [one for id_ in ids if (one := await run_in_threadpool(catalogue.run, id_)) is not None]
        return _Json({"runs": [run.name for run in runs], "rows": await run_in_threadpool(unlike, runs)})

    async def curves(request: Request) -> Response:
        asked = request.query_params
        band = asked.get("band", "ci")
        if band not in _BANDS:
            return PlainTextResponse("There is no such band.\n", 400)
        keys = [key for key in asked.get("by", "").split(",") if key]
        return events(
            curve_events(
                catalogue, all_curves, asked.get("words", ""), _ids_in(request), asked.get("x", "steps"),
                asked.get("y", "evaluation/mean_return"), keys, band,
            )
        )  # fmt: skip

    async def film(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        films = [] if one is None else films_of(one)
        number = request.path_params["number"]
        if one is None or number >= len(films):
            return _missing()
        return FileResponse(one.directory.path / VIDEOS / films[number], media_type="video/mp4")

    async def overview_stream(request: Request) -> Response:
        return events(overview_events(catalogue))

    async def run_stream(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        try:
            cursors_in(cursor)
        except ValueError:
            return PlainTextResponse("This is no cursor.\n", 400)
        return events(run_events(one.directory.path, cursor))

    async def stop(request: Request) -> Response:
        given = request.headers.get(CONTROL_HEADER, "")
        if control_token is None:
            return PlainTextResponse("Runs are stopped with --control only.\n", 405, {"allow": "GET, HEAD"})
        if not is_same(given, control_token):
            return PlainTextResponse("The page's own token is missing.\n", 403)
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        told = await run_in_threadpool(stop_run, one)
        return _Json({"told": told}, 200 if told else 409)

    routes = [
        Route("/", page),
        Route("/static/{name}", static),
        Route("/api/runs", runs),
        Route("/api/stream", overview_stream),
        Route("/api/differences", differences),
        Route("/api/curves", curves),
        Route("/api/runs/{id}", run),
        Route("/api/runs/{id}/history", history),
        Route("/api/runs/{id}/stream", run_stream),
        Route("/api/runs/{id}/progress", progress),
        Route("/api/runs/{id}/files", files),
        Route("/api/runs/{id}/files/{file}", file),
        Route("/api/runs/{id}/films/{number:int}", film),
        Route("/api/runs/{id}/stop", stop, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, cookie, hosts)


def stop_run(run: RecordedRun) -> bool:
    """Ask the process that owns a run to save and end, as Ctrl-C does; False: no process of this machine owns it.

    The kernel says who owns the run: no file of a copied run can name another process. The process is held by a
    descriptor before it is asked for, so that no other one can be meant.
    """
    path = run.directory.path
    holding = holding_of(path)
    process = holding.owner.process
    if not holding.is_held or not is_alive(process):
        return False
    try:
        descriptor = os.pidfd_open(process["pid"])
    except OSError:
        return False
    try:
        if not holds(process["pid"], path):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


class _Json(JSONResponse):
    """JSON in ASCII: a copied run's texts may hold halves of characters, which UTF-8 has no bytes for."""

    def render(self, content: Any) -> bytes:
        """Bytes of the answer."""
        return json.dumps(content, allow_nan=False).encode()


def _ids_in(request: Request) -> list[str]:
    return [id_ for id_ in request.query_params.get("runs", "").split(",") if id_]


def _missing() -> Response:
    return PlainTextResponse("There is no such thing.\n", 404)
