"""Command ``penstock watch``: the live view of a run that trains elsewhere, from its files."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from penstock.flags import parse_flags
from penstock.runs.formatting import printable
from penstock.runs.reading import RecordedRun
from penstock.runs.state import read_state, state_of, status_of
from penstock.runs.view import MOST_RETURNS, View, open_view
from penstock.studies import StudyError

_LOOK_SECONDS = 0.5  # between two reads of the files
_ARROWS = {b"\x1b[A": -1, b"\x1b[D": -1, b"\x1b[B": 1, b"\x1b[C": 1}
_ENDS = (b"q", b"\x04")


@dataclass(frozen=True)
class Flags:
    """Show the live view of a run that trains in another terminal, or on another machine that shares its files.

    Keys 1 to 9 and the arrows choose the policy whose losses are shown, q ends the view. Of a run that has ended, the
    last state is shown.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    StudyError, RunDirectoryError
        There is no run, or it has no status that can be read.
    """
    flags = parse_flags(Flags, args, prog="penstock watch")
    run = RecordedRun.open(flags.run)
    with open_view() as view, keys() as pressed:
        watch(run, view, pressed)
    return 0


def watch(run: RecordedRun, view: View, pressed: Callable[[float], bytes]) -> None:
    """Show a run until it has ended, or until a key ends the view.

    Parameters
    ----------
    run
        The run.
    view
        View to show it in.
    pressed
        Function that waits for a key for some seconds at most, and returns it; b"" without one.

    Raises
    ------
    StudyError
        The run has no status that can be read.
    """
    path = run.directory.path
    _, returns = run.points("steps", "episode/mean_return")
    view.remember(returns[np.linspace(0, returns.size - 1, min(returns.size, MOST_RETURNS)).astype(int)].tolist())
    while True:
        record = read_state(path)
        state, status = state_of(record, path), status_of(record)
        if status is None:
            reason = record.get("reason") or "it has no status.json"
            raise StudyError(f"{path} cannot be watched: {printable(str(reason))}")
        view.update(status)
        if state not in ("running", "paused"):
            view.close(status)
            view.event(": ".join(filter(None, (state, printable(str(record.get("reason") or ""))))))
            return
        key = pressed(_LOOK_SECONDS)
        if key in _ENDS:
            view.close(status)
            return
        if key.isdigit() and key != b"0":
            view.choose(int(key) - 1, len(status.policies))
        elif key in _ARROWS:
            view.choose(view.chosen + _ARROWS[key], len(status.policies))


def _no_key(seconds: float) -> bytes:
    time.sleep(seconds)
    return b""


@contextmanager
def keys() -> Iterator[Callable[[float], bytes]]:
    """Read single keys of a terminal within the block; without a terminal there are none."""
    descriptor = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    if descriptor is None:
        yield _no_key
        return
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)

        def pressed(seconds: float) -> bytes:
            ready, _, _ = select.select([descriptor], [], [], seconds)
            return os.read(descriptor, 8) if ready else b""

        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
