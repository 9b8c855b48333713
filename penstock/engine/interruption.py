"""Ctrl-C and SIGTERM: the first asks for an end in good order, the second is not to be waited for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Set an event at the first SIGINT or SIGTERM; raise KeyboardInterrupt at the second."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupted
    finally:
        for signum, handler in before.items():
            # None: a handler that was not installed from Python, and cannot be put back from it.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
