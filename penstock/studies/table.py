"""Table of runs, and differences between the settings of two."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.flags import Places, parse_flags
from penstock.runs.descriptions import COLUMNS, Cell, Column
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
_TEXT_WIDTH = 28  # columns that the names of runs, and further columns, take from others


@dataclass(frozen=True)
class Flags:
    """Show the runs in some folders, with their present state.

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
    """Run the command; return its exit code.

    Raises
    ------
    StudyError, RunDirectoryError
        The request is not legal.
    """
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
        hidden = len(runs) - len(rows)
        what, archived = counted(len(rows), "run"), len(found) - len(shown)
        what += f", {counted(hidden, 'other')} not shown" if hidden else ""
        print(what + (f", {archived} of them archived" if archived else ""))
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
    """Draw runs for a terminal, one per row, without empty columns, and the least important ones that do not fit."""
    known, now = {column.name: column for column in COLUMNS}, time.time()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption_justify="left")
    cells, room, left_out = dict[Column, list[Text]](), dict[Column, int](), list[str]()
    for name in dict.fromkeys((*(column.name for column in COLUMNS if column.is_printed), *more)):
        values = [value_of(run, name) for run in runs]
        kind: Cell = "text" if any(isinstance(value, str) for value in values) else "number"
        column = known.get(name, Column(name, name, kind))
        if any(its := [_cell(known.get(name), value, now) for value in values]):
            cells[column] = its
            most = width if name in known and name != "run" else _TEXT_WIDTH
            room[column] = min(most, max(cell.cell_len for cell in (Text(column.heading), *its))) + 3
    optional = sorted(filter(lambda column: column.least_width, cells), key=lambda column: column.least_width or 0)
    while optional and sum(room.values()) > width + 1:
        left_out.insert(0, optional[-1].heading)
        del cells[optional[-1]], room[optional.pop()]
    if left_out:
        table.caption = f"{width} columns have no room for: {', '.join(left_out)}"
    for column, its in cells.items():
        is_whole = column.name in known and column.name != "run"
        table.add_column(column.heading, justify="left" if column.is_text else "right", no_wrap=is_whole)
        if column.name == "run":
            its[:] = [_cut(name, width + 1 - sum(room.values()) + room[column] - 3) for name in its]
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


def _cut(name: Text, width: int) -> Text:
    """Return a name without its middle if it is too long: names of runs begin with their folder, and end with the seed."""
    begin = width // 3
    return name if name.cell_len <= width else Text(f"{name.plain[:begin]}…{name.plain[begin + 1 - width :]}")


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
    """Return differing algorithm, settings, versions, commits and machine of runs, by name, with a value per run."""
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
    runs = [RecordedRun.open(path) for path in args]
    found = differences(runs)
    if not found:
        print("the same settings, versions, commits and machine")
        return 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", *args):
        table.add_column(Text(heading), overflow="fold")
    for name, values in found.items():
        table.add_row(Text(name), *(Text(words_of(value)) for value in values))
    Console(highlight=False).print(table)
    return 0


def _cell(column: Column | None, value: Any, now: float) -> Text:
    """Return a value as text; `column` is None for settings and columns without a description."""
    if value is None:
        return Text("")
    cell = None if column is None else column.cell
    if cell == "state":
        return Text(words_of(value), style=_STATE_COLORS.get(value, ""))
    if cell == "clock":
        return Text(clock(value))
    if cell == "ago":
        return Text(clock(max(0.0, now - value)))
    if cell == "share":
        return Text(f"{value:.0%}")
    if cell == "count":
        return Text(f"{value:,.0f}" if isinstance(value, int | float) else words_of(value))
    return Text(number(value) if isinstance(value, float) and cell == "number" else words_of(value))


def _plain(value: Any) -> Any:
    """Return a value as a cell of CSV: other values than numbers and texts as JSON, lone surrogates as "?"."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return value if value is None or isinstance(value, int | float) else words_of(value)
