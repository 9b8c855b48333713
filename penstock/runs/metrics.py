"""Writer of a run's metrics: one JSON object per line, and the same values as TensorBoard scalars."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from penstock.runs.files import AppendFile, json_values

METRICS = "metrics.jsonl"


class MetricsLog:
    """Writer of ``metrics.jsonl`` and TensorBoard events in a run directory.

    A full or failing disk is reported to `warn` once; lines that cannot be written are dropped.

    Parameters
    ----------
    run_dir
        The existing run directory; None: nothing is written.
    warn
        Called with one line of warning.
    start
        Steps and seconds of a resumed run's checkpoint. The first line is then ``"resumed": true``, which undoes
        earlier lines of later steps. None: the run is new.
    """

    def __init__(
        self, run_dir: str | os.PathLike[str] | None, warn: Callable[[str], None],
        start: tuple[int, float] | None = None,
    ) -> None:  # fmt: skip
        self._directory = None if run_dir is None else Path(run_dir)
        self._warn = warn
        self._start = start
        self._warned = False
        self._lines: AppendFile | None = None
        self._events: _EventFile | None = None

    def write(self, steps: int, seconds: float, values: Mapping[str, float]) -> None:
        """Write one line ``{"steps": ..., "seconds": ..., "time": ..., <values>}`` and a TensorBoard scalar per value.

        "time" is the time of day, in seconds since 1970.

        Parameters
        ----------
        steps
            Steps learned from so far: the x-axis.
        seconds
            Wall-clock time trained so far.
        values
            Numbers by name. NaN and infinities become null in the line; TensorBoard shows them as they are.
        """
        if self._directory is None:
            return
        numbers = {name: float(value) for name, value in values.items()}
        try:
            if self._lines is None:
                self._lines = AppendFile(self._directory / METRICS)
            if self._start is not None:
                self._lines.append(_line(*self._start, {"resumed": True}))
                self._start = None
            self._lines.append(_line(steps, seconds, numbers))
            if self._events is None:
                self._events = _EventFile(self._directory, steps)
            self._events.append(steps, {**numbers, "seconds": seconds})
        except OSError as error:
            if not self._warned:
                self._warn(
                    f"warning: metrics cannot be written to {self._directory} ({error.strerror}); training continues "
                    "without them until they can"
                )
            self._warned = True

    def close(self) -> None:
        """Close the files; it may be called again, and the next line opens them anew."""
        for file in (self._lines, self._events):
            if file is not None:
                file.close()
        self._lines = self._events = None


def _line(steps: int, seconds: float, values: Mapping[str, float]) -> bytes:
    when = {"steps": steps, "seconds": round(seconds, 3), "time": round(time.time(), 3)}
    return json.dumps(json_values(when | dict(values))).encode() + b"\n"


class _EventFile:
    """One file of TensorBoard events, through TensorBoard's own writer class and messages.

    TensorBoard is imported by the constructor, so that start-up does not wait for it; torch is never needed.
    """

    def __init__(self, directory: Path, first_step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._event, self._summary = Event, Summary
        self._writer = _writer_class()(os.fspath(directory))
        self._writer.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))
        # In a resumed run, TensorBoard hides this step and later ones of earlier files.
        start = SessionLog(status=SessionLog.START)
        self._writer.add_event(Event(wall_time=time.time(), step=first_step, session_log=start))

    def append(self, steps: int, values: Mapping[str, float]) -> None:
        scalars = [self._summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._writer.add_event(self._event(wall_time=time.time(), step=steps, summary=self._summary(value=scalars)))

    def close(self) -> None:
        self._writer.close()


def _writer_class() -> Any:
    """Return TensorBoard's current ``EventFileWriter`` class, changed to write a file of whole records.

    ``wandb.init(sync_tensorboard=True)`` and similar tools replace it by a subclass that records the directory of every
    writer. The returned class is between that subclass and TensorBoard's own, so that both work; the file is an
    `AppendFile`, written at once and without a thread.
    """
    from tensorboard.summary.writer import event_file_writer
    from tensorboard.summary.writer.record_writer import RecordWriter

    in_place = event_file_writer.EventFileWriter
    own = in_place.__mro__[-2]

    class RecordFile(own):  # type: ignore[valid-type, misc]
        def __init__(self, logdir: str) -> None:
            name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
            self._logdir = logdir
            self._file = AppendFile(Path(logdir) / name, text=False)

        def get_logdir(self) -> str:
            return self._logdir

        def add_event(self, event: Any) -> None:
            record = BytesIO()
            RecordWriter(record).write(event.SerializeToString())
            self._file.append(record.getvalue())

        def flush(self) -> None:
            """No-op: nothing is buffered."""

        def close(self) -> None:
            self._file.close()

    return RecordFile if in_place is own else type("FollowedRecordFile", (in_place, RecordFile), {})
