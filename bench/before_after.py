"""Learning curves of two states of the code, from run directories: faster code must learn the same.

    python bench/before_after.py [RUNS] --plot FILE [--keep DIRECTORY]

RUNS holds directories ``STATE-TASK-SEED`` of ``penstock train ... --run-dir``, such as ``before-Catch-1`` and
``after-Catch-1``, made with the same settings by two states of the code, or by one state with a setting to compare. The
default is bench/curves/before-after, which has curves of earlier runs. The plot shows the mean return of the last 100
training episodes over steps: a thin line per seed, and a thick one for their mean over the common steps. Output: this
return at the last common step, its mean up to there, the return at the end of each run, and the policy lag.

Two serial runs of one seed, before and after (``--backend serial``, and the same ``--inference`` and ``--num-groups``),
make the same steps until a rounding error changes an action. For such runs the number of equal updates is printed.

``--keep`` writes only curves, settings and versions to a directory that can replace RUNS, to add seeds later.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KEPT = Path(__file__).parent / "curves" / "before-after"
COMPARED = ("loss/value_loss", "loss/entropy", "loss/grad_norm")
RETURN, LAG = "episode/mean_return", "policy_lag/mean"
FIRST = ("before", "after")  # in this order; other states come after them
SAME = 0.01  # relative difference below which values count as equal


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@dataclass(frozen=True)
class Curve:
    """Learning curve of a run."""

    steps: np.ndarray
    """int64 ``[N]``, growing."""
    returns: np.ndarray
    """float64 ``[N]``: mean return of the last training episodes there."""
    lags: np.ndarray
    """float64 ``[N]``: mean policy lag in updates; nan if it was not kept."""

    @classmethod
    def of(cls, run: Path) -> Curve:
        """Read the curve of a run."""
        rows = {x["steps"]: x for x in metrics_of(run) if x.get(RETURN) is not None}
        points = [(steps, row[RETURN], row.get(LAG, math.nan)) for steps, row in sorted(rows.items())]
        steps, returns, lags = np.array(points).T
        return cls(steps.astype(int), returns, lags)


def keep(run: Path, target: Path) -> None:
    """Write about 200 points of a run's curve, with its settings without paths of this machine."""
    found = Curve.of(run)
    chosen = np.unique(np.linspace(0, len(found.steps) - 1, 200).astype(int))
    lines = [
        {"steps": int(found.steps[at]), RETURN: round(float(found.returns[at]), 3)}
        | ({} if math.isnan(found.lags[at]) else {LAG: round(float(found.lags[at]), 2)})
        for at in chosen
    ]
    target.mkdir(parents=True, exist_ok=True)
    (target / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = json.loads((run / "config.json").read_text())
    kept = {name: value for name, value in config.items() if name not in ("env", "run_dir")}
    (target / "config.json").write_text(json.dumps(kept) + "\n")


def same_updates(one: Path, other: Path) -> int:
    """Return the number of updates for which two runs reported equal losses and gradients."""
    mine, theirs = (
        {x["steps"]: [x["updates"], *(x[name] for name in COMPARED)] for x in metrics_of(run) if x.get(COMPARED[0])}
        for run in (one, other)
    )
    count = 0
    for steps in sorted(mine.keys() & theirs.keys()):
        if not np.allclose(mine[steps], theirs[steps], rtol=SAME, atol=0.0):
            break
        count = int(mine[steps][0])
    return count


def is_serial(run: Path) -> bool:
    """Return whether a run used the serial backend."""
    return bool(json.loads((run / "config.json").read_text())["backend"] == "serial")


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=KEPT)
    parser.add_argument("--plot", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    curves: dict[str, dict[str, list[Curve]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(arguments.runs.iterdir()):
        found = re.fullmatch(r"(\w+)-(\w+)-(\d+)", run.name)
        if not found or not (run / "metrics.jsonl").exists():
            continue
        if not is_serial(run):
            curves[found[2]][found[1]].append(Curve.of(run))
            if arguments.keep:
                keep(run, arguments.keep / run.name)
        elif found[1] == "before" and (other := arguments.runs / f"after-{found[2]}-{found[3]}").exists():
            count = same_updates(run, other)
            print(f"{found[2]}, seed {found[3]}, serial: the same to {SAME:.0%} for {count} updates")
    if curves:
        draw(curves, arguments.plot)


def draw(curves: dict[str, dict[str, list[Curve]]], target: Path) -> None:
    """Draw a panel per task, and print a line per state of the code."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4), layout="constrained", squeeze=False)
    print("| task | code | seeds | steps | return there | return up to there | each run's end | policy lag |")
    print("|---|---|---|---|---|---|---|---|")
    for axis, (task, states) in zip(axes[0], sorted(curves.items()), strict=True):
        last = min(run.steps[-1] for runs in states.values() for run in runs)
        grid = np.linspace(0.02 * last, last, 300)
        ordered = [state for state in FIRST if state in states] + sorted(states.keys() - set(FIRST))
        for colour, state in enumerate(ordered):
            runs = states[state]
            lines = np.array([np.interp(grid, run.steps, run.returns) for run in runs])
            for run in runs:
                axis.plot(run.steps / 1000, run.returns, color=f"C{colour}", alpha=0.25, linewidth=0.8)
            axis.plot(grid / 1000, lines.mean(0), color=f"C{colour}", linewidth=2, label=state)
            lag = np.concatenate([run.lags for run in runs]).mean()
            ends = " ".join(f"{run.returns[-1]:.3g}" for run in runs)
            print(
                f"| {task} | {state} | {len(runs)} | {last:,} | {_mean(lines[:, -1])} | {_mean(lines.mean(1))} "
                f"| {ends} | {'' if math.isnan(lag) else f'{lag:.1f}'} |"
            )
        axis.set(title=task, xlabel="thousand steps", ylabel="mean return in training")
        axis.grid(alpha=0.3)
        axis.legend()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


def _mean(values: np.ndarray) -> str:
    return f"{values.mean():.3g} ({' '.join(f'{value:.3g}' for value in values)})"


if __name__ == "__main__":
    main()
