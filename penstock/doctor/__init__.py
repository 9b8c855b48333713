"""``penstock doctor``: findings about this machine, or about an environment, each with advice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Literal["ok", "warn", "fail"]
    """"fail": Penstock does not run here, or the environment breaks its contract. "warn": it runs, within a limit."""
    found: str
    advice: str = ""


def report(
    checks: Sequence[Check], *, subject: str = "", success: str = "ready to train", as_json: bool = False
) -> int:
    """Print the findings: as a table in a terminal, as lines elsewhere, or as JSON.

    Parameters
    ----------
    checks
        The findings.
    subject
        Environment that was checked; "": the machine.
    success
        Last line if no check failed.
    as_json
        Whether to print JSON: the findings, in the order of the table.

    Returns
    -------
    int
        Exit code: 1 if a check failed, else 0.
    """
    blockers = sum(check.status == "fail" for check in checks)
    if as_json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
        return 1 if blockers else 0
    from rich.console import Console

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(_table(checks, f"penstock doctor {subject}".rstrip()))
    else:
        width = max(12, *(len(check.name) for check in checks))
        for check in checks:
            advice = f"  -> {check.advice}" if check.advice else ""
            print(f"{check.status:<5} {check.name:<{width}} {check.found}{advice}")
    plural = "" if blockers == 1 else "s"
    print(f"{blockers} blocker{plural}: see the lines marked fail" if blockers else success)
    return 1 if blockers else 0


def _table(checks: Sequence[Check], title: str) -> object:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "bold red")}
    table = Table(box=box.ROUNDED, border_style="bright_black", show_header=False, title=title)
    for check in checks:
        mark, color = marks[check.status]
        found = Text(check.found)
        if check.advice:
            found.append(f"\n{check.advice}", color if check.status != "ok" else "dim")
        table.add_row(Text(mark, color), Text(check.name, "bold"), found)
    return table
