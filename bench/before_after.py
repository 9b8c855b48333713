"""Draws the learning curves of two states of the code, from run directories: what was made faster must learn the same.

    python bench/before_after.py RUNS --plot FILE

RUNS holds the directories ``before-TASK-SEED`` and ``after-TASK-SEED`` of ``penstock train ... --run-dir``, made with
the same settings by the two states. Drawn is the mean return of the last 100 training episodes over steps, a thin line
for each seed and a thick one for their mean; printed is that return at the end, and over the whole run.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np

COLOURS = {"before": "C0", "after": "C1"}


def curve(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and mean return of the last training episodes, of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    points = [(x["steps"], x["episode/mean_return"]) for x in lines if x.get("episode/mean_return") is not None]
    steps, returns = np.array(sorted(set(points))).T
    return steps, returns


def main() -> None:
    """Read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--plot", type=Path, required=True)
    arguments = parser.parse_args()
    curves: dict[str, dict[str, list[tuple[np.ndarray, np.ndarray]]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(arguments.runs.iterdir()):
        if (found := re.fullmatch(r"(before|after)-(\w+)-\d+", run.name)) and (run / "metrics.jsonl").exists():
            curves[found[2]][found[1]].append(curve(run))
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
            for line in lines:
                axis.plot(grid / 1000, line, color=COLOURS[state], alpha=0.25, linewidth=0.8)
            axis.plot(grid / 1000, lines.mean(0), color=COLOURS[state], linewidth=2, label=state)
            ends, means = lines[:, -1], lines.mean(1)
            print(
                f"| {task} | {state} | {len(runs)} | {ends.mean():.1f} ({' '.join(f'{x:.0f}' for x in ends)}) "
                f"| {means.mean():.1f} ({' '.join(f'{x:.0f}' for x in means)}) |"
            )
        axis.set(title=task, xlabel="thousand steps", ylabel="mean return in training")
        axis.grid(alpha=0.3)
    axes[0][0].legend()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


if __name__ == "__main__":
    main()
