"""Command ``penstock watch``: the live view of a run that trains elsewhere, from its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from penstock.flags import parse_flags
from penstock.runs.descriptions import POLICY
from penstock.runs.formatting import printable
from penstock.runs.panes import Point
from penstock.runs.reading import RecordedRun
from penstock.runs.state import read_state, state_of, status_of
from penstock.runs.view import MOST_RETURNS, View, open_view
from penstock.studies import StudyError

_LOOK_SECONDS = 0.5  # between two reads of the files


@dataclass(frozen=True)
class Flags:
    """Show the live view of a run that trains in another terminal, or on another machine that shares its files.

    Keys 1 to 9 and the arrows select the policy with the shown returns and losses; q ends the view. For a run that has
    ended, the last state is shown.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Directory of a run."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code.

    Raises
    ------
    StudyError, RunDirectoryError
        There is no run, or it has no status that can be read.
    """
    flags = parse_flags(Flags, args, prog="penstock watch")
    run = RecordedRun.open(flags.run)
    with open_view() as view:
        watch(run, view)
    return 0


def histories_of(run: RecordedRun) -> list[list[Point]]:
    """Return the returns so far of each policy, or of the run itself if it has only one."""
    policies = run.directory.policies
    return [_history_of(run, f"{POLICY}{policy}/") for policy in policies] if policies else [_history_of(run, "")]


def _history_of(run: RecordedRun, before: str) -> list[Point]:
    """Return the returns in training and evaluation, from metrics with a prefix, at steps spread over the run."""
    (at, returns), (evaluated_at, scores) = (
        run.points("steps", f"{before}{kind}/mean_return") for kind in ("episode", "evaluation")
    )
    places = np.unique(np.concatenate([at, evaluated_at]))
    places = places[np.linspace(0, places.size - 1, min(places.size, MOST_RETURNS)).astype(int)]
    columns = []
    for known, values in ((at, returns), (evaluated_at, scores)):
        last = np.searchsorted(known, places, "right") - 1
        columns.append([float(values[n]) if n >= 0 else None for n in last])
    return [(int(step), *pair) for step, pair in zip(places, zip(*columns, strict=True), strict=True)]


def watch(run: RecordedRun, view: View) -> None:
    """Show a run until it has ended, or until a key ends the view.

    Parameters
    ----------
    run
        The run.
    view
        View to show it in.

    Raises
    ------
    StudyError
        The run has no status that can be read.
    """
    path = run.directory.path
    view.remember(histories_of(run))
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
        view.wait(_LOOK_SECONDS)
        if view.has_ended:
            view.close(status)
            return
