"""Routes of the dashboard: pages, their data, and requests to stop or label a run."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from penstock.dashboard.catalogue import Catalogue, id_of, unlike
from penstock.dashboard.curves import Curves
from penstock.dashboard.feed import POINTS, cursors_in, range_in
from penstock.dashboard.files import files_of, pieces_of, text_of
from penstock.dashboard.guard import LOCAL, Guard, is_same
from penstock.dashboard.streams import curve_events, overview_events, run_events, until
from penstock.runs.descriptions import COLUMNS, EPISODE, charts_of
from penstock.runs.documents import DocumentError, document_in
from penstock.runs.episodes import read_episode
from penstock.runs.files import json_values
from penstock.runs.labels import MOST_NBYTES, LabelsError, change_labels, labels_in
from penstock.runs.lock import holding_of, holds
from penstock.runs.process import is_alive
from penstock.runs.reading import RecordedRun
from penstock.runs.videos import videos_of
from penstock.studies.compare_page import SCORES, comparison_page, settings_table, settings_unlike, sides_of
from penstock.studies.lineage import lineage_page, steps_of

STATIC = Path(__file__).parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".LICENSE": "text/plain"}
FILES = {path.name: _TYPES[path.suffix] for path in STATIC.iterdir() if path.suffix in _TYPES}
"""Files of the page, with their media types."""
CONTROL_HEADER = "x-penstock-control"
_MOST_COMPARED = 20
_MOST_RUNS = 200  # of a comparison
_BANDS = ("ci", "quartiles", "minmax", "none")


def of_run(answer: Callable[[Pages, Request, RecordedRun], Awaitable[Response]]) -> Callable[..., Awaitable[Response]]:
    """Decorate a method to get the run whose id is in the path; answer 404 if there is none."""

    async def answer_of_run(pages: Pages, request: Request) -> Response:
        run = await run_in_threadpool(pages.catalogue.run, request.path_params["id"])
        return _missing() if run is None else await answer(pages, request, run)

    return answer_of_run


class Pages:
    """Answers to the requests of the dashboard's page.

    Parameters
    ----------
    catalogue
        The runs.
    control
        Whether runs may be stopped.
    is_ending
        Returns whether the server is about to end, and with it every stream.
    """

    def __init__(self, catalogue: Catalogue, control: bool, is_ending: Callable[[], bool]) -> None:
        self.catalogue = catalogue
        self._control_token = secrets.token_urlsafe(16) if control else None
        self._is_ending = is_ending
        self._curves = Curves()

    def _events(self, found: AsyncIterator[str]) -> Response:
        return StreamingResponse(until(self._is_ending, found), media_type="text/event-stream")

    async def page(self, request: Request) -> Response:
        """Answer with the page, whose script shows all views."""
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def static(self, request: Request) -> Response:
        """Answer with a file of the page."""
        name = request.path_params["name"]
        return FileResponse(STATIC / name, media_type=FILES[name]) if name in FILES else _missing()

    async def runs(self, request: Request) -> Response:
        """Answer with the rows of the overview."""
        rows = await run_in_threadpool(self.catalogue.rows)
        about = {"searches": self.catalogue.searches(), "control": self._control_token}
        return _Json({"runs": rows, "columns": [asdict(column) for column in COLUMNS], **about})

    async def search(self, request: Request) -> Response:
        """Answer with the trials of a search, and their pictures."""
        found = await run_in_threadpool(self.catalogue.search, request.path_params["id"])
        return _missing() if found is None else _Json(found)

    @of_run
    async def run(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the description of a run."""
        return _Json(await run_in_threadpool(self.catalogue.about, run))

    @of_run
    async def history(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the logged data of a run."""
        asked = request.query_params
        within = range_in(asked.get("x", "steps"), asked.get("zoom", ""))
        return _Json(await run_in_threadpool(self.catalogue.feed(run).whole, run.directory.policies, within))

    @of_run
    async def lineage(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the lineage of a population, and its picture."""
        return _Json(await run_in_threadpool(lineage_page, run.directory.path, steps_of(run.status)))

    @of_run
    async def episode(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the steps of a recent episode, and its charts."""
        columns = await run_in_threadpool(read_episode, run.directory.path, POINTS)
        return _Json({"columns": columns, "charts": charts_of(columns, run.directory.policies, EPISODE)})

    @of_run
    async def progress(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the share of the metrics read so far."""
        return _Json({"share": self.catalogue.feed(run).share_read()})

    @of_run
    async def files(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the files of a run."""
        return _Json({"run": run.name, "files": [file.row() for file in await run_in_threadpool(files_of, run)]})

    @of_run
    async def file(self, request: Request, run: RecordedRun) -> Response:
        """Answer with the text of a file, or its download."""
        files = await run_in_threadpool(files_of, run)
        wanted = next((file for file in files if file.id == request.path_params["file"]), None)
        if wanted is None or not wanted.is_text:
            return _missing()
        if "download" not in request.query_params:
            return _Json({"name": wanted.name, **await run_in_threadpool(text_of, wanted)})
        name = quote(wanted.name.replace("/", "-"), safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
        return StreamingResponse(pieces_of(wanted), media_type="application/octet-stream", headers=headers)

    async def differences(self, request: Request) -> Response:
        """Answer with the differences between runs."""
        ids = _ids_in(request)[:_MOST_COMPARED]
        runs = [one for id_ in ids if (one := await run_in_threadpool(self.catalogue.run, id_)) is not None]
        return _Json({"runs": [run.name for run in runs], "rows": await run_in_threadpool(unlike, runs)})

    async def comparison(self, request: Request) -> Response:
        """Answer with the comparison of runs."""
        asked, ids = request.query_params, _ids_in(request)
        if asked.get("score", "final") not in SCORES or len(ids) > _MOST_RUNS:
            return PlainTextResponse(f"At most {_MOST_RUNS} runs are compared, by final or best returns.\n", 400)
        return _Json(await run_in_threadpool(self._compared, ids, asked))

    def _compared(self, ids: list[str], asked: QueryParams) -> dict[str, Any]:
        found = self.catalogue.chosen(asked.get("words", ""), ids)
        runs = found[:_MOST_RUNS]
        known = settings_unlike(runs)
        by = asked["by"].split(",") if "by" in asked else [key for key in known if key != "seed"]
        sides = sides_of(runs, [key for key in known if key in by], asked.get("first", ""))
        parts, notes = comparison_page(sides, asked.get("score", "final"), self._curves.points)
        if len(found) > len(runs):
            notes.append(f"{len(found)} runs are too many: the first {_MOST_RUNS} by name are compared.")
        for row in [row for part in parts for row in part["runs"]]:
            row["id"] = id_of(Path(row.pop("path")))
        shown = [{"id": id_of(run.directory.path), "run": run.name, "state": run.state} for run in runs]
        about = {"keys": known, "by": by, "groups": [name for name, _ in sides], "notes": notes, "count": len(found)}
        return json_values({"envs": parts, "runs": shown, "settings": settings_table(runs), **about})

    async def curves(self, request: Request) -> Response:
        """Stream the curves of many runs."""
        asked = request.query_params
        band = asked.get("band", "ci")
        if band not in _BANDS:
            return PlainTextResponse("This band is unknown.\n", 400)
        keys = [key for key in asked.get("by", "").split(",") if key]
        return self._events(
            curve_events(
                self.catalogue, self._curves, asked.get("words", ""), _ids_in(request), asked.get("x", "steps"),
                asked.get("y", "evaluation/mean_return"), keys, band,
            )
        )  # fmt: skip

    @of_run
    async def video(self, request: Request, run: RecordedRun) -> Response:
        """Answer with a video of a run."""
        videos = await run_in_threadpool(videos_of, run.directory.path)
        wanted = next((video for video in videos if video.name == request.path_params["name"]), None)
        return _missing() if wanted is None else FileResponse(wanted, media_type="video/mp4")

    async def overview_stream(self, request: Request) -> Response:
        """Stream changes of the overview."""
        return self._events(overview_events(self.catalogue))

    @of_run
    async def run_stream(self, request: Request, run: RecordedRun) -> Response:
        """Stream a run's new lines."""
        cursor = request.headers.get("last-event-id") or request.query_params.get("cursor", "")
        try:
            cursors_in(cursor)
        except ValueError:
            return PlainTextResponse("This cursor is not legal.\n", 400)
        return self._events(run_events(run, cursor))

    async def stop(self, request: Request) -> Response:
        """Ask a run to save and end."""
        return self._refusal(request) or await self._stop(request)

    async def label(self, request: Request) -> Response:
        """Write the labels of a run."""
        return self._refusal(request) or await self._label(request)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to an illegal change; None for a legal one."""
        if self._control_token is None:
            return PlainTextResponse("Runs can be changed only with --control.\n", 405, {"allow": "GET, HEAD"})
        if not is_same(request.headers.get(CONTROL_HEADER, ""), self._control_token):
            return PlainTextResponse("The page's own token is missing.\n", 403)
        return None

    @of_run
    async def _label(self, request: Request, run: RecordedRun) -> Response:
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_NBYTES:
                return PlainTextResponse("These labels are too long.\n", 413)
        try:
            labels = labels_in(document_in(body, "labels", Any))
            await run_in_threadpool(change_labels, run.directory.path, lambda _: labels)
        except (DocumentError, LabelsError) as error:
            return PlainTextResponse(f"{error}\n", 400)
        return _Json(asdict(labels))

    @of_run
    async def _stop(self, request: Request, run: RecordedRun) -> Response:
        is_sent = await run_in_threadpool(stop_run, run)
        return _Json({"told": is_sent}, 200 if is_sent else 409)


def make_app(
    catalogue: Catalogue, *, token: str, cookie: str = "penstock", hosts: Collection[str] = LOCAL,
    control: bool = False, is_ending: Callable[[], bool] = lambda: False,
) -> ASGIApp:  # fmt: skip
    """Make the ASGI application of the dashboard.

    Parameters
    ----------
    token, cookie, hosts
        As for `Guard`.
    catalogue, control, is_ending
        As for `Pages`.
    """
    pages = Pages(catalogue, control, is_ending)
    routes = [
        Route("/", pages.page),
        Route("/static/{name}", pages.static),
        Route("/api/runs", pages.runs),
        Route("/api/stream", pages.overview_stream),
        Route("/api/differences", pages.differences),
        Route("/api/comparison", pages.comparison),
        Route("/api/searches/{id}", pages.search),
        Route("/api/curves", pages.curves),
        Route("/api/runs/{id}", pages.run),
        Route("/api/runs/{id}/history", pages.history),
        Route("/api/runs/{id}/stream", pages.run_stream),
        Route("/api/runs/{id}/lineage", pages.lineage),
        Route("/api/runs/{id}/episode", pages.episode),
        Route("/api/runs/{id}/progress", pages.progress),
        Route("/api/runs/{id}/files", pages.files),
        Route("/api/runs/{id}/files/{file}", pages.file),
        Route("/api/runs/{id}/videos/{name}", pages.video),
        Route("/api/runs/{id}/stop", pages.stop, methods=["POST"]),
        Route("/api/runs/{id}/labels", pages.label, methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), token, cookie, hosts)


def stop_run(run: RecordedRun) -> bool:
    """Ask the process that owns a run to save and end, as Ctrl-C does; return whether this machine has one.

    The kernel's lock identifies the owner, so that no file of a copied run can name another process. A descriptor of
    the process is opened before the check, so that a reused pid is excluded.
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
    """JSON in ASCII, because texts of a copied run may have lone surrogates, which UTF-8 cannot encode."""

    def render(self, content: Any) -> bytes:
        """Return the body of the answer."""
        return json.dumps(content, allow_nan=False).encode()


def _ids_in(request: Request) -> list[str]:
    return [id_ for id_ in request.query_params.get("runs", "").split(",") if id_]


def _missing() -> Response:
    return PlainTextResponse("Not found.\n", 404)
