"""The page of the command line, made from the commands: what each does, its flags, and what they mean.

``python tools/command_page.py`` writes it anew, to ``docs/reference/command-line.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from penstock.bench import BENCHES, autotune
from penstock.cli import COMMANDS
from penstock.commands.exits import EXIT_CODES
from penstock.dashboard import command as dashboard
from penstock.exchange import command as exchange
from penstock.export import command as export
from penstock.flags import DoctorFlags, EvalFlags, InfoFlags, own_documents
from penstock.search import command as search
from penstock.search import population_command as pbt
from penstock.studies import compare, plan, plot, report, table, tag, watch

COMMAND_PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command-line.md"

FLAGS: dict[str, type | argparse.ArgumentParser | None] = {
    "train": None, "eval": EvalFlags, "info": InfoFlags, "resume": None, "runs": table.Flags,
    "multirun": plan.own_flags(), "plot": plot.Flags, "compare": compare.Flags,
    "tag": tag.Flags, "watch": watch.Flags, "report": report.Flags, "dashboard": dashboard.Flags,
    "export": export.Flags, "doctor": DoctorFlags, "autotune": autotune._own_flags(), "search": search._own_flags(),
    "pbt": pbt.own_flags(),
    "hub": None, "import-sb3": exchange.ImportFlags,
}  # fmt: skip
"""A command's own flags, as a dataclass or a parser; None: it has none."""

(_BY_PLACE,) = tyro.conf.Positional[str].__metadata__
_EVERY_SETTING = "Every flag of `penstock train` is a flag."
ALSO = {
    "train": "`penstock train ALGORITHM --env ENV [flags]`. Every [setting](settings.md) is a flag.",
    "resume": "`penstock resume RUN [flags]`. Every setting that can change within a run is a flag. `penstock resume "
    "RUN --help` lists them with their present values.",
    "runs": "`penstock runs diff A B` shows the differences between two runs.",
    "multirun": "`penstock multirun ALGORITHM[,ALGORITHM...] [flags]`. Every flag of `penstock train` is a flag, with "
    "several values separated by commas.",
    "autotune": _EVERY_SETTING,
    "search": _EVERY_SETTING,
    "pbt": f"{_EVERY_SETTING} `--space FILE` names the settings that may change.",
    "bench ideal": _EVERY_SETTING,
    "bench cluster": _EVERY_SETTING,
}

_HEAD = """<!-- Written by `python tools/command_page.py` from the commands; edit those. -->

# Command line

`penstock COMMAND --help` shows a command's flags, `penstock --version` the version and the commit. A flag that switches
something off begins with `--no-`: `--no-normalize-observations`.
"""


def command_page() -> str:
    """Return the page: a section per command with its flags, and the exit codes."""
    assert {*FLAGS, "bench"} == {*COMMANDS}, "a command has no section"
    sections = [_section(name, inspect.getdoc(COMMANDS[name]) or "", flags) for name, flags in FLAGS.items()]
    for name, module in BENCHES.items():
        bench = importlib.import_module(module)
        flags = bench.Flags if hasattr(bench, "Flags") else bench._own_flags()
        sections.append(_section(f"bench {name}", inspect.getdoc(bench) or "", flags))
    for name, flags in (("hub push", exchange.PushFlags), ("hub pull", exchange.PullFlags)):
        sections.append(_section(name, inspect.getdoc(flags) or "", flags))
    codes = EXIT_CODES.partition(": ")[2]
    return "\n".join([_HEAD, *sections, f"## Exit codes\n\n{codes[0].upper()}{codes[1:]}.\n"])


def _section(name: str, document: str, flags: type | argparse.ArgumentParser | None) -> str:
    parts = [f"## penstock {name}\n", document.partition("\n")[0] + "\n"]
    parts += [f"{ALSO[name]}\n"] if name in ALSO else []
    if flags is None:
        return "\n".join(parts)
    rows = _of_parser(flags) if isinstance(flags, argparse.ArgumentParser) else _of_class(flags)
    table = [("flag", "default", "meaning"), ("---",) * 3, *rows]
    return "\n".join([*parts, *(f"| {' | '.join(cells)} |" for cells in table), ""])


def _of_class(flags: type) -> Iterable[tuple[str, ...]]:
    """Rows of the fields of a dataclass; positional ones have the names of their help."""
    documents, types = own_documents(flags), get_type_hints(flags, include_extras=True)
    return [
        (_name(field.name, types[field.name]), _default(field), _cell(documents[field.name]))
        for field in dataclasses.fields(flags)
    ]


def _name(name: str, kind: Any) -> str:
    marks = getattr(kind, "__metadata__", ())
    if _BY_PLACE not in marks:
        return f"`--{name.replace('_', '-')}`"
    return f"`{next((mark.metavar for mark in marks if hasattr(mark, 'metavar')), name.upper())}`"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING:
        return "required" if field.default_factory is dataclasses.MISSING else ""
    value = field.default
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(f"`{each}`" for each in value)
    return "" if value in (None, "") else f"`{value}`"


def _of_parser(parser: argparse.ArgumentParser) -> Iterable[tuple[str, ...]]:
    """Rows of a parser's flags, without its help."""
    return [
        (f"`{action.option_strings[-1]}`", _given(action), _cell((action.help or "").replace("%%", "%")))
        for action in parser._actions
        if action.option_strings and action.help != argparse.SUPPRESS and "--help" not in action.option_strings
    ]


def _given(action: argparse.Action) -> str:
    value = action.default
    return "" if value in (None, False, argparse.SUPPRESS) else f"`{value}`"


def _cell(text: str) -> str:
    """Text on one line in which Markdown sees no cell's end and no tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    COMMAND_PAGE.write_text(command_page())
    print(f"written: {COMMAND_PAGE}")
