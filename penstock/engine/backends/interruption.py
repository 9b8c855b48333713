"""Signals that ask for an end: the first for one in good order, the second is not to be waited for.

Both may go to the supervisor's process alone (``kill``), to all of a terminal (Ctrl-C), or to every process of a run at
once (``systemctl stop``, a batch system's time limit). Only the supervisor heeds them: roles go on until it has saved,
and it ends them. Processes that environments start heed signals as if Penstock were not there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from penstock.runs.process import ENDING, Installed

ECHO_SECONDS = 0.5  # within which a signal that comes again is the same one: `timeout` sends it to process and group

@dataclass
class Interrupted:
    """Whether a signal has asked for the end.

    No `threading.Event`: the handler of a second signal, which may run while that of the first sets it, would wait for
    ever for the event's lock.
    """

    has_come: bool = False


@contextmanager
def interruption() -> Iterator[Interrupted]:
    """Note the first signal that asks for an end; raise KeyboardInterrupt at the second.

    A signal that was ignored before, as SIGINT is in what a shell runs in the background, stays ignored.
    """
    interrupted = Interrupted()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    echo_until: dict[int, float] = {}

    def interrupt(signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if interrupted.has_come and now >= echo_until.get(signum, 0.0):
            raise KeyboardInterrupt
        echo_until.setdefault(signum, now + ECHO_SECONDS)
        interrupted.has_come = True

    _installed.append(Installed(interrupt))
    try:
        yield interrupted
    finally:
        if _installed:  # in a child that was forked meanwhile there is nothing left to remove
            _installed.pop().remove()


def leave_to_supervisor() -> None:
    """Let signals that ask for an end do nothing in this process, a role's, from now on, and block no signal any more.

    They are handled, not ignored: `exec` puts a handler back to the default and leaves a signal ignored, and a server
    that an environment starts has to end at SIGTERM.
    """
    installed = Installed(lambda signum, frame: None)
    _installed.append(installed)
    for signum in installed.before:
        signal.siginterrupt(signum, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


_installed: list[Installed] = []
_forking = threading.local()


def _hold_signals() -> None:
    """Before a fork: the SIGTERM of an early `Process.terminate` waits until the child has our handler no more."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(ENDING) - {signal.SIGINT}) if _installed else None


def _release_signals() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _heed_signals() -> None:
    """After a fork, in the child: whoever forked wants a process that can be ended."""
    while _installed:
        _installed.pop().remove()
    _release_signals()


os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_heed_signals)
