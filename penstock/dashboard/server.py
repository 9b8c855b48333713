"""What the dashboard answers, and to whom: its own page in a browser that was given the token, and nobody else."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.dashboard.catalogue import Catalogue, settings_unlike, unlike
from penstock.dashboard.curves import Curves
from penstock.dashboard.feed import cursors_in, news
from penstock.dashboard.files import files_of, films_of, pieces_of, text_of
from penstock.runs.process import is_alive
from penstock.runs.reading import RecordedRun
from penstock.runs.run_directory import VIDEOS
from penstock.runs.state import read_state, state_of

STATIC = Path(__file__).parent / "static"
FILES = {
    "app.js": "text/javascript", "overview.js": "text/javascript", "run.js": "text/javascript",
    "curves.js": "text/javascript", "diff.js": "text/javascript", "files.js": "text/javascript",
    "chart.js": "text/javascript", "dom.js": "text/javascript", "uPlot.esm.js": "text/javascript",
    "icon.svg": "image/svg+xml", "style.css": "text/css", "uPlot.min.css": "text/css", "uPlot.LICENSE": "text/plain",
}  # fmt: skip
"""All files of the page: another name is not there."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")
CONTROL_HEADER = "x-penstock-control"
LOOK_SECONDS = 0.5
"""Between two looks at the files of an open page."""
OVERVIEW_SECONDS = 1.0
CURVES_SECONDS = 1.0
_NOTHING = ""  # what a stream makes where nothing is new
_QUIET_SECONDS = 15.0  # that a stream says nothing
_TOLD_SECONDS = 0.3  # between two words of how far many runs are read
_MOST_COMPARED = 20
_BANDS = ("ci", "minmax", "none")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "media-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """Lets through what comes from a browser that has the token, asks for this host, and wants to read.

    Parameters
    ----------
    app
        What answers then.
    token
        Whoever has it may read.
    cookie
        Name of the cookie that holds it.
    hosts
        Names, without a port, that a request may ask for: a page of another name that was made to lead here (DNS
        rebinding) asks for its own.
    """

    def __init__(self, app: ASGIApp, token: str, cookie: str, hosts: Collection[str]) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        answer = self._app if refusal is None else refusal

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if _name_of(headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("This name is not the dashboard's: see --allow-host.\n", 421)
        is_stop = scope["method"] == "POST" and scope["path"].endswith("/stop")
        if scope["method"] not in ("GET", "HEAD") and not is_stop:
            return PlainTextResponse("The dashboard is read only.\n", 405, {"allow": "GET, HEAD"})
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return PlainTextResponse("Another site has asked for this.\n", 403)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if scope["path"] == "/" and given:
            if not _is_same(given, self._token):
                return PlainTextResponse("This token is of another dashboard: use the address it printed.\n", 403)
            cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
            return Response(status_code=303, headers={"location": "/", "set-cookie": cookie})
        if not _is_same(_cookie_in(headers.get("cookie", ""), self._cookie), self._token):
            return PlainTextResponse("Open the address that penstock dashboard has printed.\n", 403)
        return None


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
        return StreamingResponse(_until(is_ending, found), media_type="text/event-stream")

    def found(request: Request) -> RecordedRun | None:
        return catalogue.run(request.path_params["id"])

    async def page(request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def static(request: Request) -> Response:
        name = request.path_params["name"]
        return FileResponse(STATIC / name, media_type=FILES[name]) if name in FILES else _missing()

    async def runs(request: Request) -> Response:
        return JSONResponse({"runs": await run_in_threadpool(catalogue.rows), "control": control_token})

    async def run(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else JSONResponse(await run_in_threadpool(catalogue.about, one))

    async def history(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else JSONResponse(await run_in_threadpool(catalogue.feed(one).whole))

    async def progress(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        return _missing() if one is None else JSONResponse({"share": catalogue.feed(one).share_read()})

    async def files(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        return JSONResponse({"run": one.name, "files": [file.row() for file in await run_in_threadpool(files_of, one)]})

    async def file(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        there = [] if one is None else await run_in_threadpool(files_of, one)
        wanted = next((each for each in there if each.id == request.path_params["file"]), None)
        if wanted is None or not wanted.is_text:
            return _missing()
        if "download" not in request.query_params:
            return JSONResponse({"name": wanted.name, **await run_in_threadpool(text_of, wanted)})
        name = quote(wanted.name.replace("/", "-"), safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return StreamingResponse(pieces_of(wanted), media_type="application/octet-stream", headers=headers)

    async def differences(request: Request) -> Response:
        ids = _ids_in(request)[:_MOST_COMPARED]
        runs = [one for id_ in ids if (one := await run_in_threadpool(catalogue.run, id_)) is not None]
        return JSONResponse({"runs": [run.name for run in runs], "rows": await run_in_threadpool(unlike, runs)})

    async def curves(request: Request) -> Response:
        asked = request.query_params
        band = asked.get("band", "ci")
        if band not in _BANDS:
            return PlainTextResponse("There is no such band.\n", 400)
        keys = [key for key in asked.get("by", "").split(",") if key]
        return events(
            _curve_events(
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
        return events(_overview_events(catalogue))

    async def run_stream(request: Request) -> Response:
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        try:
            cursors_in(cursor)
        except ValueError:
            return PlainTextResponse("This is no cursor.\n", 400)
        return events(_run_events(one.directory.path, cursor))

    async def stop(request: Request) -> Response:
        given = request.headers.get(CONTROL_HEADER, "")
        if control_token is None:
            return PlainTextResponse("Runs are stopped with --control only.\n", 405, {"allow": "GET, HEAD"})
        if not _is_same(given, control_token):
            return PlainTextResponse("The page's own token is missing.\n", 403)
        one = await run_in_threadpool(found, request)
        if one is None:
            return _missing()
        told = await run_in_threadpool(stop_run, one)
        return JSONResponse({"told": told}, 200 if told else 409)

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
    """Ask the process of a run to save and end, as Ctrl-C does; False: it is not there, or of another machine.

    The process is held by a descriptor before its start time is compared, so that no other one can be meant.
    """
    process = read_state(run.directory.path).get("process")
    if not isinstance(process, dict):
        return False
    pid = process.get("pid")
    if not isinstance(pid, int) or pid <= 1:
        return False
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


async def _overview_events(catalogue: Catalogue) -> AsyncIterator[str]:
    """Rows that have changed, and the ids of all."""
    known: dict[str, Any] = {}
    while True:
        rows = await run_in_threadpool(catalogue.rows)
        changed = [row for row in rows if known.get(row["id"]) != row]
        if changed or len(rows) != len(known):
            yield _event("runs", {"changed": changed, "ids": [row["id"] for row in rows]})
        else:
            yield _NOTHING
        known = {row["id"]: row for row in rows}
        await asyncio.sleep(OVERVIEW_SECONDS)


async def _run_events(path: Path, cursor: str) -> AsyncIterator[str]:
    """What is new in the files of a run, with the cursor behind it as the event's id, and its status."""
    status: dict[str, Any] = {}
    state = ""
    while True:
        found, cursor = await run_in_threadpool(news, path, cursor)
        if found:
            yield _event("news", found, cursor)
        now = await run_in_threadpool(read_state, path)
        if now != status or state_of(now) != state:
            status, state = now, state_of(now)
            yield _event("status", {"state": state, "status": status})
        elif not found:
            yield _NOTHING
        await asyncio.sleep(LOOK_SECONDS)


async def _curve_events(
    catalogue: Catalogue, curves: Curves, words: str, ids: list[str], x: str, y: str, keys: list[str], band: str
) -> AsyncIterator[str]:
    """How many runs were read so far, until all are; then their curves, as often as these change."""
    shown: dict[str, Any] = {}
    while True:
        runs = await run_in_threadpool(catalogue.chosen, words, ids)
        settings = settings_unlike(runs)
        left = list(runs)
        while left:
            await run_in_threadpool(curves.catch_up, left, x, y, _TOLD_SECONDS)
            if left:
                yield _event("progress", {"read": len(runs) - len(left), "of": len(runs)})
        known = [key for key in keys if key in settings]
        found = {
            "panels": await run_in_threadpool(curves.panels, runs, x, y, known, band),
            "names": await run_in_threadpool(curves.names, runs),
            "settings": settings,
            "count": len(runs),
        }
        if found != shown:
            shown = found
            yield _event("curves", found)
        else:
            yield _NOTHING
        await asyncio.sleep(CURVES_SECONDS)


def _ids_in(request: Request) -> list[str]:
    return [id_ for id_ in request.query_params.get("runs", "").split(",") if id_]


async def _until(is_ending: Callable[[], bool], events: AsyncIterator[str]) -> AsyncIterator[str]:
    """Pass events on until the server ends; `_NOTHING` becomes a word now and then, so that a dead line is noticed."""
    told = time.monotonic()
    async for event in events:
        if is_ending():
            return
        if event != _NOTHING or time.monotonic() >= told + _QUIET_SECONDS:
            told = time.monotonic()
            yield event or ": still here\n\n"


def _event(name: str, data: Any, cursor: str = "") -> str:
    id_ = f"id: {cursor}\n" if cursor else ""
    return f"event: {name}\n{id_}data: {json.dumps(data)}\n\n"


def _missing() -> Response:
    return PlainTextResponse("There is no such thing.\n", 404)


def _name_of(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()


def _cookie_in(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def _is_same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())
