"""Algorithms and kinds of replay compared on MinAtar: the same steps, several seeds.

    python bench/on_minatar.py COMPARISON [--methods NAME ...] [--games Breakout Seaquest ...] [--seeds 3] [--steps N]
                            [--write FILE] [--plot FILE]

    replay    IMPALA with half of each batch fresh and half from one source: uniform, attentive, elite by each strategy
    values    DQN, Rainbow, BTR and PQN

Other settings are those of the preset minatar. Output: the return of training episodes in the last tenth of the steps,
and of 100 episodes of the final policy without exploration: the interquartile mean over games and seeds of returns
divided by the mean of the first method in each game, with a 95 % interval of 50,000 bootstraps (Agarwal et al. 2021,
arXiv:2108.13264). FILE of ``--write`` grows by a line of JSON per run: runs in it are not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from runs_file import RunsFile

import penstock
from penstock.runs.machine import describe
from penstock.studies.statistics import interquartile_mean, interval


def _mixed(source: str) -> tuple[str, dict[str, Any]]:
    """Return IMPALA with half of each batch from a source."""
    return "IMPALA", {"replay": ["queue:1/2", source]}


METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": _mixed("uniform:1/2"), "attentive": _mixed("attentive:1/2"),
    **{f"elite {strategy}": _mixed(f"elite:1/2,strategy={strategy}") for strategy in (1, 2, 3, 4)},
    "dqn": ("DQN", {}), "rainbow": ("Rainbow", {}), "btr": ("BTR", {}), "pqn": ("PQN", {}),
}  # fmt: skip
COMPARISONS = {
    "replay": ["uniform", "attentive", "elite 1", "elite 2", "elite 3", "elite 4"],
    "values": ["dqn", "rainbow", "btr", "pqn"],
}


def train(game: str, method: str, seed: int, steps: int) -> dict[str, Any]:
    """Train; return curve, seconds, and the score of the final policy."""
    began = time.monotonic()
    algorithm, settings = METHODS[method]
    with tempfile.TemporaryDirectory() as folder:
        with getattr(penstock, algorithm)(
            f"MinAtar/{game}-v1", preset="minatar", total_steps=steps, seed=seed, eval_interval=0,
            run_dir=f"{folder}/run", **settings,
        ) as algo:  # fmt: skip
            algo.train(quiet=True)
            seconds = time.monotonic() - began
            score = algo.evaluate(episodes=100).mean_return
        lines = map(json.loads, Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        curve = [(line["steps"], line["episode/mean_return"]) for line in lines if "episode/mean_return" in line]
    late = [value for at, value in curve if at >= 0.9 * steps]
    return {
        "game": game, "method": method, "seed": seed, "steps": steps, "seconds": seconds, "curve": curve,
        "final": score, "training": float(np.mean(late)),
    }  # fmt: skip


def table(runs: list[dict[str, Any]], methods: list[str], measure: str) -> None:
    """Print the interquartile mean of each method, and its interval."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        scores[run["method"]][run["game"]].append(run[measure])
    base = {game: np.mean(values) for game, values in scores[methods[0]].items()}
    print(f"{measure}: by method, relative to the mean of {methods[0]}; then each game's returns")
    for method in methods:
        found = [np.array(scores[method][game]) / base[game] for game in base if scores[method][game]]
        if not found:
            continue
        low, high = interval(interquartile_mean, found)
        each = "; ".join(
            f"{game} {', '.join(f'{value:.1f}' for value in scores[method][game])}" for game in base
        )
        print(f"  {method:10} {interquartile_mean(found):.2f} [{low:.2f}, {high:.2f}]  {each}")


def draw(runs: list[dict[str, Any]], methods: list[str], file: Path) -> None:
    """Draw the training return of each method over steps, a panel for each game."""
    import matplotlib.pyplot as plt

    games = list(dict.fromkeys(run["game"] for run in runs))
    figure, panels = plt.subplots(1, len(games), figsize=(5 * len(games), 4), layout="constrained", squeeze=False)
    for game, panel in zip(games, panels[0], strict=True):
        for number, method in enumerate(methods):
            curves = [run["curve"] for run in runs if run["game"] == game and run["method"] == method]
            if not curves:
                continue
            end = max(at for curve in curves for at, _ in curve)
            grid = np.linspace(0, end, 60)
            means = [np.interp(grid, *np.array(curve).T) for curve in curves]
            panel.plot(grid, np.mean(means, 0), label=method, color=f"C{number}", linewidth=2)
            panel.fill_between(grid, np.min(means, 0), np.max(means, 0), color=f"C{number}", alpha=0.1)
        panel.set(title=f"MinAtar {game}", xlabel="steps", ylabel="mean return of 100 training episodes")
    panels[0][0].legend()
    figure.savefig(file)


def main() -> None:
    """Train the missing runs, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("comparison", choices=COMPARISONS)
    flags.add_argument("--methods", nargs="*", choices=METHODS, help="only these of the comparison")
    flags.add_argument("--games", nargs="*", default=["Breakout", "Seaquest"])
    flags.add_argument("--seeds", type=int, default=3)
    flags.add_argument("--steps", type=int, default=1_000_000)
    flags.add_argument("--plot", type=Path, metavar="FILE")
    flags.add_argument("--write", type=Path, metavar="FILE")
    given = flags.parse_args()
    print(describe())
    measured = RunsFile(given.write)
    methods = given.methods or COMPARISONS[given.comparison]
    for seed in range(1, given.seeds + 1):
        for game in given.games:
            for method in methods:
                if measured.find(game=game, method=method, seed=seed, steps=given.steps):
                    continue
                run = train(game, method, seed, given.steps)
                measured.add(run)
                print(f"{game} {method} seed {seed}: {run['training']:.2f}, {run['final']:.2f} final, "
                      f"{run['seconds']:.0f} s", flush=True)  # fmt: skip
    runs = [run for run in measured.runs if run["steps"] == given.steps and run["method"] in methods]
    for measure in ("training", "final"):
        table(runs, methods, measure)
    if given.plot:
        draw(runs, methods, given.plot)


if __name__ == "__main__":
    main()
