"""Draws the learning curves of two states of the code, from run directories: what was made faster must learn the same.

    python bench/before_after.py RUNS --plot FILE [--keep DIRECTORY]

RUNS holds the directories ``before-TASK-SEED`` and ``after-TASK-SEED`` of ``penstock train ... --run-dir``, made with
the same settings by the two states. Drawn is the mean return of the last 100 training episodes over steps, a thin line
for each seed and a thick one for their mean as far as all have come; printed is that return there, and up to there.

Two serial runs of one seed (``--backend serial``, and the same ``--inference`` and ``--num-groups``) live through the
same steps until a rounding makes one of them act otherwise. Printed of such is for how many updates they learned the
same.

``--keep`` writes the curves, and no more, to a directory that can stand for RUNS: seeds can be added another day.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {"before": "C0", "after": "C1"}
COMPARED = ("loss/value_loss", "loss/entropy", "loss/grad_norm")
SAME = 0.01  # relative: what differs by less is the same


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """What a run wrote down, line by line."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def curve(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and mean return of the last training episodes, of a run."""
    returns_at = {x["steps"]: x.get("episode/mean_return") for x in metrics_of(run)}
    points = [(steps, mean) for steps, mean in returns_at.items() if mean is not None]
    steps, returns = np.array(sorted(points)).T
    return steps, returns


def keep(run: Path, target: Path) -> None:
    """Write some 200 points of a run's curve, as a run that has nothing else."""
    steps, returns = curve(run)
    chosen = np.unique(np.linspace(0, len(steps) - 1, 200).astype(int))
    lines = [
        {"steps": int(at), "episode/mean_return": round(float(mean), 3)}
        for at, mean in zip(steps[chosen], returns[chosen], strict=True)
    ]
    target.mkdir(parents=True, exist_ok=True)
    (target / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (target / "config.json").write_text('{"backend": "local"}\n')


def same_updates(one: Path, other: Path) -> int:
    """Updates after which two runs still reported the same losses and gradients, batch for batch."""
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
    """Whether a run was one of the serial backend."""
    return bool(json.loads((run / "config.json").read_text())["backend"] == "serial")


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--plot", type=Path, required=True)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    curves: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(arguments.runs.iterdir()):
        found = re.fullmatch(r"(before|after)-(\w+)-(\d+)", run.name)
        if not found or not (run / "metrics.jsonl").exists():
            continue
        if not is_serial(run):
            curves[found[2]][found[1]].append(curve(run))
            if arguments.keep:
                keep(run, arguments.keep / run.name)
        elif found[1] == "before":
            count = same_updates(run, arguments.runs / f"after-{found[2]}-{found[3]}")
            print(f"{found[2]}, seed {found[3]}, serial: the same to {SAME:.0%} for {count} updates")
    draw(curves, arguments.plot)


def draw(curves: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]], target: Path) -> None:
    """A panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(5 * len(curves), 4), layout="constrained", squeeze=False)
    print("| task | code | seeds | return at the end | return over the run |\n|---|---|---|---|---|")
    for axis, (task, states) in zip(axes[0], sorted(curves.items()), strict=True):
        last = min(steps[-1] for runs in states.values() for steps, _ in runs)
        grid = np.linspace(0.02 * last, last, 300)
        for state in ("before", "after"):
            if not (runs := states.get(state)):
                continue
            lines = np.array([np.interp(grid, steps, returns) for steps, returns in runs])
            for steps, returns in runs:
                axis.plot(steps / 1000, returns, color=COLOURS[state], alpha=0.25, linewidth=0.8)
            axis.plot(grid / 1000, lines.mean(0), color=COLOURS[state], linewidth=2, label=state)
            ends, means = lines[:, -1], lines.mean(1)
            print(
                f"| {task} | {state} | {len(runs)} | {ends.mean():.3g} ({' '.join(f'{x:.3g}' for x in ends)}) "
                f"| {means.mean():.3g} ({' '.join(f'{x:.3g}' for x in means)}) |"
            )
        axis.set(title=task, xlabel="thousand steps", ylabel="mean return in training")
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


if __name__ == "__main__":
    main()
