"""Results of a search: a table of the best trials, and the command that trains with the best settings."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from penstock.bench.arguments import as_flags
from penstock.redaction import joined, masked_arguments
from penstock.runs.formatting import number
from penstock.search.directory import SearchDirectory
from penstock.search.space import shown

if TYPE_CHECKING:
    from penstock.search.study import Tried

ROWS = 10
"""Trials in the table: the best ones, besides the trial with the settings as given."""


def best_of(tried: Sequence[Tried]) -> list[Tried]:
    """Return the completed trials, the best first."""
    return sorted((trial for trial in tried if trial.score is not None), key=lambda trial: -(trial.score or 0.0))


def command_of(directory: SearchDirectory, trial: Tried) -> str:
    """Return the command that trains with the settings of a trial."""
    facts = directory.facts
    shared = [*facts["flags"], *directory.shared_flags]
    return joined(masked_arguments(["penstock", "train", facts["algorithm"], *shared, *as_flags(trial.settings)]))


def table_of(tried: Sequence[Tried], names: Sequence[str], seeds: int) -> Table:
    """Draw the best trials.

    Parameters
    ----------
    tried
        All trials.
    names
        Names of the searched settings.
    seeds
        Seeds of each trial; with several, the lowest and highest scores are shown.
    """
    table = Table(box=box.SIMPLE_HEAD)
    columns = ["trial", "score", *(["over seeds"] if seeds > 1 else []), *names]
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("")
    best = best_of(tried)
    for place, trial in enumerate(best):
        if place < ROWS or trial.is_as_given:
            assert trial.score is not None
            spread = [f"{number(min(trial.scores))} to {number(max(trial.scores))}"] if seeds > 1 else []
            cells = [str(trial.number), number(trial.score), *spread, *(shown(trial.settings[name]) for name in names)]
            note = "the settings as given" if trial.is_as_given else ""
            table.add_row(*cells, Text(note, "dim"), style="bold" if place == 0 else "")
    return table


def summary_of(directory: SearchDirectory, tried: Sequence[Tried]) -> str:
    """Return the text below the table: outcomes of the trials, the best one, and the command to train with it."""
    if not tried:
        return "no trial has begun"
    counts = Counter(trial.state for trial in tried)
    ended = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    lines = [f"{len(tried)} {'trial' if len(tried) == 1 else 'trials'}: {ended}"]
    failed = [trial for trial in tried if trial.state == "failed"]
    lines += [f"failed: trial {trial.number}: {trial.error}" for trial in failed[-3:]]
    best = best_of(tried)
    if best:
        given = next((trial for trial in best if trial.is_as_given), None)
        beside = "" if given is None or given is best[0] else f"; the settings as given: {number(given.score or 0.0)}"
        first, seeds = directory.facts["config"]["seed"], directory.facts["seeds"]
        run = directory.run(best[0].number, first)
        lines.append(f"best: trial {best[0].number}, score {number(best[0].score or 0.0)}{beside}")
        lines.append(
            "The best of many scores is partly luck: confirm it with seeds other than "
            f"{first if seeds == 1 else f'{first} to {first + seeds - 1}'}."
        )
        lines += ["", f"penstock eval {shlex.quote(str(run))}", command_of(directory, best[0])]
    return "\n".join(lines)


def to_json(directory: SearchDirectory, tried: Sequence[Tried]) -> dict[str, Any]:
    """Return the search with all its trials, as JSON values."""
    best = best_of(tried)
    first, seeds = directory.facts["config"]["seed"], directory.facts["seeds"]
    return {
        **directory.facts,
        "trials": [
            {**asdict(trial), "runs": [str(directory.run(trial.number, first + i)) for i in range(seeds)]}
            for trial in tried
        ],
        "best": best[0].number if best else None,
        "command": command_of(directory, best[0]) if best else None,
    }
