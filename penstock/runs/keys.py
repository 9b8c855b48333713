"""Keys of a terminal, read one by one and without echo while a live view is shown."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from penstock.ipc.ownership import Owned, owner_only

_KEY = re.compile(rb"\x1b[\[O][A-D]|.", re.DOTALL)
_HANDLED = (signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP, signal.SIGCONT)


class Keys(Owned):
    """Keys pressed in the terminal of standard input.

    The mode of the terminal is set by `pressed`, while this process is in the foreground, and restored by `close` and
    before a signal stops or ends the process. Ctrl-C and Ctrl-Z have their usual effects. There are no keys without a
    terminal, and outside the main thread.

    Parameters
    ----------
    leave
        Function called with True before a signal stops or ends the process, and with False when it is continued (by
        ``fg`` or ``bg``), because a shell may have written below the panels.
    """

    def __init__(self, leave: Callable[[bool], object]) -> None:
        self._leave = leave
        self._terminal = _terminal()
        self._before: Any = None  # the terminal's mode, to be restored
        self._handled: list[signal.Signals] = []
        for signum in _HANDLED if self._terminal is not None else ():
            if signal.getsignal(signum) is signal.SIG_DFL:
                signal.signal(signum, self._come_back if signum == signal.SIGCONT else self._give_way)
                self._handled.append(signum)

    def pressed(self, seconds: float = 0.0) -> list[bytes]:
        """Wait up to `seconds` for keys; return them, an arrow key as its escape sequence."""
        if self._terminal is None or not self._has_taken():
            time.sleep(seconds)
            return []
        with suppress(OSError):
            ready, _, _ = select.select([self._terminal], [], [], seconds)
            if not ready or not self._is_in_front():
                return []
            if read := os.read(self._terminal, 64):
                return _KEY.findall(read)
        self._terminal = None  # it was closed
        return []

    @owner_only
    def close(self) -> None:
        """Restore the terminal's mode and the handlers of signals; it may be called again."""
        self._restore()
        for signum in self._handled:
            if signal.getsignal(signum) in (self._give_way, self._come_back):
                signal.signal(signum, signal.SIG_DFL)
        self._handled = []

    @property
    def is_behind(self) -> bool:
        """Whether this process is in the background of its terminal."""
        return self._front_group() not in (None, os.getpgrp())

    def _is_in_front(self) -> bool:
        """Return whether this process may use the terminal; the kernel stops a background process that does."""
        return self._front_group() == os.getpgrp()

    def _front_group(self) -> int | None:
        with suppress(OSError):  # not the controlling terminal of this process
            return None if self._terminal is None else os.tcgetpgrp(self._terminal)
        return None

    def _has_taken(self) -> bool:
        """Set the terminal's mode, which a shell resets for a stopped process; return False if this one may not."""
        if self._terminal is None or not self._is_in_front():
            return False
        with suppress(termios.error):
            mode = termios.tcgetattr(self._terminal)
            if mode[3] & termios.ICANON:
                self._before = mode
                tty.setcbreak(self._terminal, termios.TCSANOW)
            return True
        return False

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None and self._terminal is not None and self._is_in_front():
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSANOW, before)

    def _give_way(self, signum: int, frame: FrameType | None) -> None:
        """Restore the terminal, and let a signal have its default effect."""
        if not self.is_foreign:
            self._restore()
            self._leave(True)
        signal.signal(signum, signal.SIG_DFL)
        signal.raise_signal(signum)
        signal.signal(signum, self._give_way)  # the process was stopped, and continues

    def _come_back(self, signum: int, frame: FrameType | None) -> None:
        """Report that this process was continued."""
        if not self.is_foreign:
            self._leave(False)


def _terminal() -> int | None:
    """Return the descriptor of standard input if it is a terminal whose keys this thread may read."""
    if threading.current_thread() is not threading.main_thread():
        return None
    with suppress(AttributeError, ValueError, OSError):
        descriptor = sys.stdin.fileno()
        return descriptor if os.isatty(descriptor) else None
    return None
