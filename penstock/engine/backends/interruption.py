"""Ending signals: the first stops a run in order, the second at once.

A signal may go only to the supervisor's process (``kill``), to all processes of a terminal (Ctrl-C), or to every
process of a run (``systemctl stop``, a batch system's time limit). Only the supervisor acts on it: roles continue until
it has saved and ends them. Processes that environments start handle signals by their own rules.
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

ECHO_SECONDS = 0.5  # a repetition within this time is the same signal: `timeout` sends it to process and group


@dataclass
class Interrupted:
    """Whether an ending signal has come.

    No `threading.Event`: the handler of a second signal may interrupt that of the first, and would wait for the event's
    lock for ever.
    """

    has_come: bool = False


@contextmanager
def interruption() -> Iterator[Interrupted]:
    """Record the first ending signal, and raise KeyboardInterrupt at the second, within the block.

    A signal that was ignored before, as SIGINT is in a shell's background jobs, stays ignored.
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
        if _installed:  # a forked child has removed it already
            _installed.pop().remove()


def leave_to_supervisor() -> None:
    """Neutralise ending signals in this process, a role's, and unblock all signals.

    They are handled, not ignored: `exec` resets a handler to the default, but leaves a signal ignored, and a server
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
    """Before a fork: block signals, so that an early `Process.terminate` waits until the child has no handler."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, set(ENDING) - {signal.SIGINT}) if _installed else None


def _release_signals() -> None:
    if _forking.mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _remove_handlers() -> None:
    """After a fork, in the child: restore the handlers, so that the child can be ended."""
    while _installed:
        _installed.pop().remove()
    _release_signals()


os.register_at_fork(before=_hold_signals, after_in_parent=_release_signals, after_in_child=_remove_handlers)
