"""``status.json``: state of a run, for readers outside its processes."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import typing
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypedDict

from penstock.runs.documents import DocumentError, hints_of, read_document, require_shape
from penstock.runs.files import json_values, remove_leftovers, replace_file
from penstock.runs.formatting import printable
from penstock.runs.lock import holding_of
from penstock.runs.process import is_alive, this_process
from penstock.runs.status import Status

STATUS = "status.json"
SILENT_SECONDS = 60.0
"""Seconds without a new status after which a run of another machine counts as silent."""

Written = Literal["running", "paused", "done", "interrupted", "failed"]
"""State written by a run. "paused": ``train(steps)`` has returned before the run's budget was spent."""

State = Written | Literal["died", "silent", "unknown", "unreadable"]
"""State for readers. "died": the process is gone. "silent": another machine has written nothing for a minute.
"unknown": there is no ``status.json``, as in runs of early versions. "unreadable": a file of the run cannot be read."""


class StateFile:
    """Writer of ``status.json`` in a run directory.

    A status that cannot be written is dropped; `MetricsLog` warns of a full disk.

    Parameters
    ----------
    run_dir
        The existing run directory; None: nothing is written.
    """

    def __init__(self, run_dir: str | os.PathLike[str] | None) -> None:
        self._path = None if run_dir is None else Path(run_dir) / STATUS
        self._process = this_process()
        if self._path is not None:
            remove_leftovers(self._path.parent, STATUS)

    def write(self, status: Status, state: Written, reason: str = "") -> None:
        """Replace the file.

        Parameters
        ----------
        status, state
            Status and state of the run.
        reason
            Reason why the run ended: "target", "steps", "seconds", "callback", "interrupted", or the failure.
        """
        if self._path is None:
            return
        about = {"state": state, "reason": reason, "time": round(time.time(), 3), "process": self._process}
        record = about | dataclasses.asdict(dataclasses.replace(status, nodes=()))
        record["nodes"] = [vars(node) for node in status.nodes]  # for a thousand, asdict takes 30 ms a second
        with suppress(OSError):
            replace_file(self._path, json.dumps(json_values(record)).encode() + b"\n")


class _Header(TypedDict, total=False):
    """Fields of ``status.json`` besides those of `Status`."""

    state: Written
    reason: str
    time: float
    process: dict[str, Any]


def read_state(run_dir: Path) -> dict[str, Any]:
    """Return the content of ``status.json``: empty without the file, state "unreadable" and reason if unreadable."""
    path = run_dir / STATUS
    try:
        record: dict[str, Any] = read_document(path)
        for shape in (_Header, Status):
            require_shape(record, os.fspath(path), shape)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"state": "unreadable", "reason": f"{path} cannot be read: {error.strerror}"}
    except DocumentError as error:
        return {"state": "unreadable", "reason": str(error)}
    return record


def status_of(record: Mapping[str, Any]) -> Status | None:
    """Return the status in the content of ``status.json``, as `read_state` returns it; None without one.

    Control characters in strings are replaced. A null becomes the field's default; in a mapping it is left out.
    """
    required = {field.name for field in dataclasses.fields(Status) if field.default is field.default_factory}
    is_whole = all(record.get(name) is not None for name in required)
    found: Status | None = _made(Status, record) if is_whole else None
    return found


def _made(shape: Any, value: Any) -> Any:
    """Convert a JSON value to the type of a field of `Status`."""
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if dataclasses.is_dataclass(shape):
        hints = hints_of(shape)  # type: ignore[arg-type]
        known = {name: item for name, item in value.items() if name in hints and item is not None}
        return shape(**{name: _made(hints[name], item) for name, item in known.items()})  # type: ignore[operator]
    if origin in (dict, Mapping):
        return {printable(name): item for name, item in value.items() if item is not None}
    if origin is tuple:
        return tuple(_made(arguments[0], item) for item in value)
    return printable(value) if isinstance(value, str) else value


def state_of(record: Mapping[str, Any], run_dir: Path | None = None) -> State:
    """Return the state of a run according to its ``status.json`` and its lock.

    Parameters
    ----------
    record
        Content of ``status.json``.
    run_dir
        The run directory, whose lock is queried; None: only the file decides.
    """
    state: State = record.get("state", "unknown")
    if state not in ("running", "paused"):
        return state
    is_held = None if run_dir is None else holding_of(run_dir).is_held
    if is_held:
        return state
    process = record.get("process")
    alive = None if process is None else is_alive(process)
    if alive is None:
        return state if time.time() - (record.get("time") or 0.0) < SILENT_SECONDS else "silent"
    return state if alive and is_held is None else "died"
