"""The tables of current results, made from the files in bench/history.

    python bench/results.py [--write]

``history/current.jsonl`` holds one record for every current figure, ``history/older.jsonl`` those that a newer one
replaced, ``history/final_policies.jsonl`` and ``history/defaults.jsonl`` one for every training of
bench/final_policies.py and bench/defaults.py, and ``history/curves.jsonl`` one for every run of bench/curves.py. The
table is printed. ``--write`` puts it into docs/benchmarks/speed.md and, with every column, docs/benchmarks/figures.csv;
a few of its rows into README.md; the tables of final policies into docs/benchmarks/learning.md and defaults.md, that of
robots into robots.md; the results in
``history/scaling/``, written by ``penstock bench cluster --json``, into docs/how-it-works/scaling.md: each between two
comments of the page. ``history/delayed.jsonl`` holds single runs of delayed.py, ``history/runs/`` runs (see
keep_runs.py). A comment of a page such as
``<!-- penstock compare bench/history/runs/cartpole --by algorithm --markdown -->`` is followed by the output of this
command, and with ``--out`` by the picture that it draws.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import json
import re
import shlex
import tempfile
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import curves
import defaults
import final_policies
from runs_file import RunsFile

from penstock.bench import cluster
from penstock.cli import main as penstock

ROOT = Path(__file__).parents[1]
HISTORY = ROOT / "bench" / "history"
RUNS_PAGE = ROOT / "docs" / "guides" / "many-runs.md"
BEGIN, END = "<!-- results: python bench/results.py --write -->", "<!-- /results -->"
COMMAND = re.compile(r"<!-- (penstock [^\n]*) -->\n.*?<!-- /penstock -->", re.DOTALL)
IN_README = ("solve-cartpole-appo", "cartpole-sample-factory", "td3-updates-sb3-2", "return-lunarlander-appo")
PLAIN = ("target", "met", "rounds", "seeds", "machine", "commit", "command")
COLUMNS = ("mark", "figure", "spread", "beside", "target", "met", "runs", "machine", "commit", "command")


def table(records: list[dict[str, Any]]) -> str:
    """Return Markdown: a line for each group of records, then a row for each of its records."""
    lines = [_line(COLUMNS), "|---" * len(COLUMNS) + "|"]
    for group, members in groupby(records, lambda record: record["group"]):
        lines.append(_line([f"**{group}**", *[""] * (len(COLUMNS) - 1)]))
        for *cells, command in map(_cells, members):
            lines.append(_line([*cells, f"<details><summary>command</summary>{command}</details>"]))
    return "\n".join(lines)


def as_csv(records: list[dict[str, Any]]) -> str:
    """Return CSV: a row per figure, with plain numbers."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("group", "mark", "what", "value", "unit", "lowest", "highest", "beside", "ratio", *PLAIN))
    for record in records:
        spread, against = record["spread"], record["against"] or {}
        ends = (spread["lowest"], spread["highest"], against.get("what"), against.get("ratio"))
        first = (record[name] for name in ("group", "mark", "what", "value", "unit"))
        writer.writerow((*first, *ends, *(record[name] for name in PLAIN)))
    return file.getvalue()


def short_table(records: list[dict[str, Any]]) -> str:
    """Return Markdown: a row for each of `IN_README`, without target and rounds."""
    by_mark = {record["mark"]: record for record in records}
    lines = [_line(("what", "figure", "beside", "machine", "command")), "|---" * 5 + "|"]
    for record in (by_mark[mark] for mark in IN_README):
        what, figure, spread, beside, *_, machine, _, command = _cells(record)
        lines.append(_line((what, f"{figure}, {spread}" if spread else figure, beside, machine, command)))
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """Return every page that shows stored results, with its up-to-date text."""
    tables = {
        ROOT / "README.md": short_table(read("current")),
        ROOT / "docs" / "benchmarks" / "speed.md": table(read("current")),
        ROOT / "docs" / "benchmarks" / "learning.md": final_policies.table(RunsFile(final_policies.HISTORY).runs),
        ROOT / "docs" / "benchmarks" / "robots.md": curves.table(RunsFile(curves.HISTORY).runs, "mujoco"),
        ROOT / "docs" / "benchmarks" / "defaults.md": defaults.table(RunsFile(defaults.HISTORY).runs),
    }
    measured = [json.loads(file.read_text()) for file in sorted((HISTORY / "scaling").glob("*.json"))]
    tables[ROOT / "docs" / "how-it-works" / "scaling.md"] = "\n\n".join(map(cluster.text, measured))
    texts = {page: with_table(page.read_text(), made) for page, made in tables.items()}
    texts[RUNS_PAGE] = RUNS_PAGE.read_text()
    found = {page: COMMAND.sub(_with_output, text) for page, text in texts.items()}
    return found | {ROOT / "docs" / "benchmarks" / "figures.csv": as_csv(read("current"))}


def pictures() -> dict[Path, bytes]:
    """Return every picture drawn by a command of these pages, up to date."""
    found = {}
    for page in pages():
        for command in (shlex.split(match[1]) for match in COMMAND.finditer(page.read_text())):
            if "--out" in command:
                place = command.index("--out") + 1
                with tempfile.TemporaryDirectory() as folder:
                    drawn = Path(folder) / "drawn.svg"
                    printed((*command[:place], str(drawn), *command[place + 1 :]))
                    found[ROOT / command[place]] = drawn.read_bytes()
    return found


@lru_cache
def printed(command: tuple[str, ...]) -> str:
    """Return the output of a penstock command in the repository's root."""
    out = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        code = penstock(list(command[1:]))
    if code:
        raise ValueError(f"exit code {code}: {shlex.join(command)}")
    return out.getvalue().strip()


def read(name: str) -> list[dict[str, Any]]:
    """Return the records of one file of the history."""
    return [json.loads(line) for line in (HISTORY / f"{name}.jsonl").read_text().splitlines()]


def with_table(text: str, made: str) -> str:
    """Return a page's text with a table between its two comments."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"a page that shows results needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def _with_output(match: re.Match[str]) -> str:
    command = shlex.split(match[1])
    if "--out" in command:
        picture = f"../{command[command.index('--out') + 1]}".replace("docs/", "")
        shown = f"![What this command draws]({picture})"
    else:
        shown = printed(tuple(command))
    return f"<!-- {match[1]} -->\n\n```bash\n{match[1]}\n```\n\n{shown}\n\n<!-- /penstock -->"


def _cells(record: dict[str, Any]) -> list[str]:
    return [
        record["what"],
        f"{_number(record['value'])} {record['unit']}".rstrip(),
        _spread(record["spread"]),
        _beside(record["against"]),
        record["target"] or "",
        {None: "", True: "yes", False: "**no**"}[record["met"]],
        ", ".join(f"{record[kind]} {kind}" for kind in ("rounds", "seeds") if record[kind]),
        record["machine"],
        record["commit"] or f"not kept, up to {record['reported']}",
        f"`{record['command']}`",
    ]


def _spread(spread: dict[str, Any]) -> str:
    """Describe the range of the rounds or seeds, and the interval of their median, as far as they are known."""
    words = (("lowest", "from"), ("highest", "to"))
    shown = " ".join(f"{word} {_number(value)}" for end, word in words if (value := spread[end]) is not None)
    if "interval" not in spread:
        return shown
    low, high = spread["interval"]
    return f"{shown}; median within {_number(low)} to {_number(high)} (95 %)"


def _beside(against: dict[str, Any] | None) -> str:
    """Return the reference of a figure and the ratio to it."""
    if against is None:
        return ""
    ratio = "" if against["ratio"] is None else f"; **{against['ratio']:g} x**"
    return f"{against['what']}: {_number(against['value'])}{ratio}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, or write it into the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="into the pages, between their comments")
    if parser.parse_args().write:
        for page, text in pages().items():
            page.write_text(text)
            print(f"written: {page.relative_to(ROOT)}")
        for picture, drawn in pictures().items():
            picture.write_bytes(drawn)
            print(f"written: {picture.relative_to(ROOT)}")
    else:
        print(table(read("current")))


if __name__ == "__main__":
    main()
