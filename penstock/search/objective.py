"""Score of a training: the mean return of its evaluations over the last third of the run.

A single evaluation plays few episodes: the highest of many trials is largely luck, and so is the best moment of a
training. The last third has seven evaluations by default; their mean is high only for settings that learn early and
stay good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from penstock.config import Config
from penstock.runs.episodes import EPISODES
from penstock.runs.series import records_in

LAST = 1 / 3
"""Share of a run, in steps learned from, whose evaluations count."""
RUNGS = 20
"""Number of moments at which a training may be pruned: the first evaluation of each twentieth of its budget."""


@dataclass(frozen=True)
class Evaluated:
    """An evaluation of a run.

    Attributes
    ----------
    steps
        Steps that its weights have learned from.
    seconds
        Seconds of training before it.
    mean_return
        Mean return of its episodes; an episode that was cut short counts with its return up to then.
    """

    steps: int
    seconds: float
    mean_return: float


def read_evaluations(run_dir: Path) -> list[Evaluated]:
    """Return the evaluations of a run, finished or running; [] before the first.

    A run that was resumed from a checkpoint has evaluated later steps twice: the second evaluation counts. With several
    opponents, games against the first count.
    """
    returns: dict[tuple[int, float], list[float]] = {}
    opponents: dict[tuple[int, float], str | None] = {}
    for episode in records_in(run_dir / EPISODES):
        moment = episode["steps"], episode["seconds"]
        if moment not in returns:
            returns = {earlier: kept for earlier, kept in returns.items() if earlier[0] < moment[0]}
        is_first = opponents.setdefault(moment, episode.get("opponent")) == episode.get("opponent")
        if episode["return"] is not None and is_first:
            returns.setdefault(moment, []).append(episode["return"])
    return [Evaluated(steps, seconds, fmean(each)) for (steps, seconds), each in returns.items()]


def score(evaluations: Sequence[Evaluated]) -> float:
    """Return the mean of the mean returns of evaluations in the last third of the steps learned from.

    With t_i the steps of evaluation i and t the steps of the last one: the mean over all i with t_i > (1 - 1/3) t. The
    last evaluation always counts.

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
    """Return how many twentieths of its budget a run had spent at an evaluation; of two budgets, the one spent more."""
    of_steps = RUNGS * evaluation.steps / config.total_steps
    of_seconds = RUNGS * evaluation.seconds / config.max_seconds if config.max_seconds else 0.0
    return int(min(RUNGS, max(of_steps, of_seconds)))
