"""Table of runs, and differences between the settings of two."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.flags import Places, parse_flags
from penstock.runs.descriptions import COLUMNS, Column
from penstock.runs.files import json_bytes
from penstock.runs.formatting import clock, counted, number, printable, words_of
from penstock.runs.reading import RecordedRun, find_runs
from penstock.studies import StudyError
from penstock.studies.conditions import chosen, require_known, value_of

_STATE_COLORS = {
    "running": "green", "failed": "red", "died": "red", "unreadable": "red", "interrupted": "yellow",
    "silent": "yellow",
}  # fmt: skip
_MOST_UNREADABLE = 20  # runs whose reason is printed
_PIPE_WIDTH = 240  # columns of a table outside a terminal
_RUN = COLUMNS[0]
_TEXT_WIDTH = 28  # characters reserved for the names of runs, and for each further column


@dataclass(frozen=True)
class Flags:
    """Show the runs in some folders, with their current state.

    `penstock runs diff A B` shows the differences between two runs.
    """

    dirs: Places = (Path("runs"),)
    """Runs, or folders of runs."""
    where: str = ""
    """Conditions on columns and settings, such as "env=CartPole* state=done learning_rate<1e-3"."""
    sort: str = "created"
    """Column or setting to sort by."""
    reverse: bool = False
    """Sort from the highest to the lowest."""
    columns: str = ""
    """Further columns, separated by commas: settings, or "reason", "total_steps", "success_rate" and others."""
    archived: bool = False
    """Show archived runs (penstock tag --archive), too."""
    json: bool = False
    """Print all data of each run, with its settings, as JSON."""
    csv: bool = False
    """Print all data but the settings as CSV; --columns adds settings."""


def command(args: list[str]) -> int:
    """Run the command; return its exit code. A request may raise `StudyError` or `RunDirectoryError`."""
    if args[:1] == ["diff"]:
        return _diff(args[1:])
    flags = parse_flags(Flags, args, prog="penstock runs")
    runs = find_runs(flags.dirs)
    more = [name for name in flags.columns.split(",") if name]
    for name in (*more, flags.sort):
        require_known(name, runs, "--sort" if name == flags.sort else "--columns")
    found = chosen(runs, flags.where)
    shown = [run for run in found if flags.archived or not run.summary["archived"]]
    rows = ordered(shown, flags.sort, reverse=flags.reverse)
    if flags.json:
        records = [{**run.summary, "config": run.settings, "made": run.made} for run in rows]
        print(json_bytes(records).decode(), end="")
    elif flags.csv:
        print(as_csv(rows, more), end="")
    elif not runs:
        print(f"no runs in {', '.join(map(str, flags.dirs))}")
    else:
        console = Console(highlight=False)
        console.width = console.width if console.is_terminal else _PIPE_WIDTH
        console.print(as_table(rows, more, console.width))
        for run in [run for run in rows if run.summary["state"] == "unreadable"][:_MOST_UNREADABLE]:
            print(f"{printable(run.name)} is unreadable: {printable(run.summary['reason'])}")
        hidden, archived = len(runs) - len(rows), len(found) - len(shown)
        others = f", {counted(hidden, 'other')} not shown" if hidden else ""
        print(counted(len(rows), "run") + others + (f", {archived} of them archived" if archived else ""))
    return 0


def ordered(runs: Sequence[RecordedRun], key: str, *, reverse: bool = False) -> list[RecordedRun]:
    """Sort runs by a column or setting: numbers, then texts, then unknown values."""

    def place(run: RecordedRun) -> tuple[int, Any]:
        value = value_of(run, key)
        return (0, value) if isinstance(value, int | float) else (1, str(value))

    known = [run for run in runs if value_of(run, key) is not None]
    unknown = [run for run in runs if value_of(run, key) is None]
    return sorted(known, key=place, reverse=reverse) + unknown


def as_table(runs: Sequence[RecordedRun], more: Sequence[str] = (), width: int = _PIPE_WIDTH) -> Table:
    """Draw runs for a terminal, one per row; empty columns, and the least important that do not fit, are left out."""
    known, now = {column.name: column for column in COLUMNS}, time.time()
    shown = dict[Column, list[Text]]()
    for name in dict.fromkeys((*(column.name for column in COLUMNS if column.is_printed), *more)):
        column = known.get(name, Column(name, name, "text"))
        if any(its := [_cell(column, value_of(run, name), now) for run in runs]):
            shown[column] = its
    whole = {column for column in shown if column in COLUMNS and column != _RUN}
    room = {column: max(cell.cell_len for cell in (Text(column.heading), *its)) for column, its in shown.items()}
    room = {column: 3 + (need if column in whole else min(need, _TEXT_WIDTH)) for column, need in room.items()}
    optional = sorted(filter(lambda column: column.least_width, shown), key=lambda column: column.least_width or 0)
    while optional and sum(room.values()) > width + 1:
        del room[optional.pop()]
    names = width - 2 - sum(room.values()) + room.get(_RUN, 0)
    left_out = ", ".join(column.heading for column in shown if column not in room)
    caption = f"{width} columns have no room for: {left_out}" if left_out else None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    for column in room:
        is_text = any(isinstance(value_of(run, column.name), str) for run in runs)
        table.add_column(column.heading, justify="left" if is_text else "right", no_wrap=column in whole)
    for n in range(len(runs)):
        table.add_row(*(_cut(shown[column][n], names) if column == _RUN else shown[column][n] for column in room))
    return table


def _cut(name: Text, width: int) -> Text:
    """Return a name without its middle if it is too long; the end of a run's name often has the seed."""
    ends = f"{name.plain[: width // 3]}…{name.plain[width // 3 + 1 - width :]}"
    return name if name.cell_len <= width else Text(ends)


def as_csv(runs: Sequence[RecordedRun], more: Sequence[str] = ()) -> str:
    """Return the summaries of runs, and further columns, as CSV."""
    if not runs:
        return ""
    names = list(dict.fromkeys((*runs[0].summary, *more)))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([[_plain(value_of(run, name)) for name in names] for run in runs])
    return file.getvalue()


def differences(runs: Sequence[RecordedRun]) -> dict[str, tuple[Any, ...]]:
    """Return the algorithm, settings, versions, commits and machine facts that differ, by name, one value per run."""
    facts = [_facts(run) for run in runs]
    names = dict.fromkeys(name for each in facts for name in each)
    sides = {name: tuple(each.get(name) for each in facts) for name in names}
    return {name: values for name, values in sides.items() if any(value != values[0] for value in values)}


def _facts(run: RecordedRun) -> dict[str, Any]:
    info = run.made
    settings = {name: value for name, value in run.settings.items() if name != "run_dir"}
    versions = {f"version of {name}": value for name, value in info.get("versions", {}).items()}
    machine = {f"machine's {name}": value for name, value in info.get("machine", {}).items()}
    commits = {name: info.get(name) for name in ("commit", "penstock_commit")}
    return {"algorithm": run.directory.algorithm, **settings, **commits, **versions, **machine}


def _diff(args: list[str]) -> int:
    if len(args) != 2 or args[0].startswith("-"):
        raise StudyError("usage: penstock runs diff A B, two runs")
    found = differences([RecordedRun.open(path) for path in args])
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *args):
        table.add_column(Text(heading), overflow="fold")
    for name, values in found.items():
        table.add_row(Text(name), *(Text(words_of(value)) for value in values))
    Console(highlight=False).print(table if found else "the same settings, versions, commits and machine")
    return 0


def _cell(column: Column, value: Any, now: float) -> Text:
    """Return a value as text."""
    forms: dict[str, Callable[[Any], str]] = {
        "clock": clock, "ago": lambda then: clock(max(0.0, now - then)), "share": "{:.0%}".format,
        "count": "{:,.0f}".format, "number": lambda size: number(size) if isinstance(size, float) else words_of(size),
    }  # fmt: skip
    form = forms.get(column.cell, words_of) if isinstance(value, int | float) else words_of
    style = _STATE_COLORS.get(value, "") if column.cell == "state" else ""
    return Text("" if value is None else form(value), style)


def _plain(value: Any) -> Any:
    """Return a value as a cell of CSV: values other than numbers and texts as JSON, lone surrogates as "?"."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if value is None or isinstance(value, int | float) else words_of(value)
