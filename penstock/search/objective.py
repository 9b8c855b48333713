"""Score of a training: the mean return of its evaluations over the last third of the run.

A single evaluation plays few episodes: the highest one of many trials is above all a lucky one. Policies come and go
during a training: its best moment proves nothing. The last third has seven evaluations by default, and their mean is
high only for settings that arrive early and stay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from penstock.config import Config
from penstock.runs.episodes import EPISODES

LAST = 1 / 3
"""The share of a run, in steps learned from, whose evaluations count."""
RUNGS = 20
"""Moments of a training at which it may be given up: the first evaluation of each twentieth of its budget."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of a run.

    Attributes
    ----------
    steps
        That its weights had learned from.
    seconds
        Trained so far.
    mean_return
        Of its episodes; what one that was given up had returned by then counts.
    """

    steps: int
    seconds: float
    mean_return: float


def read_evaluations(run_dir: Path) -> list[Evaluated]:
    """Read the evaluations of a run, also of one that is under way; [] where there is none yet.

    A run that went on from a checkpoint has evaluated the steps behind it twice: the second time counts. Of games
    against several opponents those against the first count, as they do in the run.
    """
    try:
        text = (run_dir / EPISODES).read_text()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1]  # a last line may be half written
    returns: dict[tuple[int, float], list[float]] = {}
    opponents: dict[tuple[int, float], str | None] = {}
    for line in whole.splitlines():
        try:
            episode = json.loads(line)
        except ValueError:  # left half written by a process that was killed
            continue
        moment = episode["steps"], episode["seconds"]
        if moment not in returns:
            returns = {earlier: kept for earlier, kept in returns.items() if earlier[0] < moment[0]}
        is_first = opponents.setdefault(moment, episode.get("opponent")) == episode.get("opponent")
        if episode["return"] is not None and is_first:
            returns.setdefault(moment, []).append(episode["return"])
    return [Evaluated(steps, seconds, fmean(each)) for (steps, seconds), each in returns.items()]


def score(evaluations: Sequence[Evaluated]) -> float:
    """Mean of the mean returns of the evaluations in the last third of the steps that were learned from.

    With t_i the steps of evaluation i and t the steps of the last one, it is the mean over all i with
    t_i > (1 - 1/3) t. The last evaluation is always among them.

    Raises
    ------
    ValueError
        There is no evaluation.
    """
    if not evaluations:
        raise ValueError("a run without evaluations has no score")
    end = evaluations[-1].steps
    return fmean(one.mean_return for one in evaluations if one.steps > (1 - LAST) * end or one.steps == end)


def rung(evaluation: Evaluated, config: Config) -> int:
    """Twentieths of its budget that a run had spent at an evaluation: of two budgets, of the one nearer its end."""
    of_steps = RUNGS * evaluation.steps / config.total_steps
    of_seconds = RUNGS * evaluation.seconds / config.max_seconds if config.max_seconds else 0.0
    return int(min(RUNGS, max(of_steps, of_seconds)))
