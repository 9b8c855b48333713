"""Standard output and standard error that never fail: what they cannot take is dropped.

A command is piped into ``head``, a terminal is closed, the disk behind a log fills up: none of that is a reason for a
program that trains to end, nor for an environment in it that prints.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class _LossyFile(io.FileIO):
    """A file that takes everything, and drops what cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def lossy_output() -> Iterator[None]:
    """Within the block nothing that is written to ``sys.stdout`` or ``sys.stderr`` raises `OSError`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_lossy(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # none, one of another's that fails, or closed
                stream.flush()
        sys.stdout, sys.stderr = before


def _lossy(stream: Any) -> Any:
    """A stream to the same file; the stream itself where there is no file behind it (a notebook, a test)."""
    try:
        raw = _LossyFile(stream.fileno(), "w", closefd=False)
        with suppress(OSError):
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # as PYTHONUNBUFFERED has it
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
