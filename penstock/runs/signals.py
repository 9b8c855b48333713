"""Signals that ask a training for its end, and handlers that heed what the program was started to ignore.

SIGHUP comes when the terminal is closed, SIGUSR1 from batch systems ahead of a time limit. SIGQUIT is left as it is: it
ends the process at once, without a checkpoint.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

Handler = Callable[[int, FrameType | None], None]


class Installed:
    """A handler of all signals in `ENDING`, in place of what handled them before.

    A signal that is ignored stays ignored, as SIGHUP is under ``nohup`` and SIGINT in what a shell runs in the
    background. A SIGUSR1 that the program handles itself stays the program's.

    Parameters
    ----------
    handler
        Called with the signal's number and the frame.

    Attributes
    ----------
    before : dict
        Earlier handlers of the signals that are handled now.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.before: dict[signal.Signals, Any] = {}
        for signum in ENDING:
            found = signal.getsignal(signum)
            if found is signal.SIG_IGN or (signum == signal.SIGUSR1 and found is not signal.SIG_DFL):
                continue
            self.before[signum] = signal.signal(signum, handler)

    def remove(self) -> None:
        """Put back what was there, unless another handler has been installed meanwhile."""
        for signum, before in self.before.items():
            if signal.getsignal(signum) is self._handler:
                # None: a handler that was not installed from Python, and cannot be put back from it.
                signal.signal(signum, signal.SIG_DFL if before is None else before)
