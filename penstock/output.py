"""Standard output and standard error that never fail: output that cannot be written is dropped.

Characters that the encoding of a terminal lacks become question marks. A closed pipe (``head``), a closed terminal or
a full disk must end neither a training program nor an environment that prints.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class _LossyFile(io.FileIO):
    """File that accepts all output and drops what cannot be written."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


@contextmanager
def lossy_output() -> Iterator[None]:
    """Within the block, writing to ``sys.stdout`` or ``sys.stderr`` raises neither `OSError` nor `UnicodeError`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_lossy(stream) for stream in before)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # no stream, a broken one, or a closed one
                stream.flush()
        sys.stdout, sys.stderr = before


def _lossy(stream: Any) -> Any:
    """Return a lossy stream to the same file; the stream itself if it has no file (a notebook, a test)."""
    try:
        raw = _LossyFile(stream.fileno(), "w", closefd=False)
        with suppress(OSError):
            stream.flush()
    except (AttributeError, OSError, ValueError):
        return stream
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # unbuffered under PYTHONUNBUFFERED
        encoding=stream.encoding,
        errors="replace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
