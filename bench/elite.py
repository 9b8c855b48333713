"""Do attentive and elite replay learn faster than uniform replay? MinAtar, the same steps, several seeds.

    python bench/elite.py [--games Breakout Seaquest] [--seeds 3] [--steps 1000000] [--plot FILE] [--write FILE]

IMPALA with half of each batch fresh and half from one source: uniform, attentive, or elite with each strategy. Other
settings are those of the preset minatar. Judged is the return of training episodes, over the last tenth of the steps,
and of 100 episodes that the final policy plays without exploration. Printed is the interquartile mean over games and
seeds, returns divided by uniform replay's mean in each game, with a 95 % interval of 2,000 bootstraps (Agarwal
et al. 2021, arXiv:2108.13264). FILE of ``--write`` grows by a line of JSON for each run: runs found there are not made
again.
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

import penstock
from penstock.bench.machine import describe

SOURCES = {
    "uniform": "uniform:1/2", "attentive": "attentive:1/2",
    **{f"elite {strategy}": f"elite:1/2,strategy={strategy}" for strategy in (1, 2, 3, 4)},
}  # fmt: skip


def train(game: str, source: str, seed: int, steps: int) -> dict[str, Any]:
    """Train; return curve, seconds, and what the final policy scores."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        with penstock.IMPALA(
            f"MinAtar/{game}-v1", preset="minatar", replay=["queue:1/2", SOURCES[source]], total_steps=steps, seed=seed,
            eval_interval=0, run_dir=f"{folder}/run",
        ) as algo:  # fmt: skip
            algo.train(quiet=True)
            seconds = time.monotonic() - began
            score = algo.evaluate(episodes=100).mean_return
        lines = map(json.loads, Path(folder, "run", "metrics.jsonl").read_text().splitlines())
        curve = [(line["steps"], line["episode/mean_return"]) for line in lines if "episode/mean_return" in line]
    late = [value for at, value in curve if at >= 0.9 * steps]
    return {
        "game": game, "source": source, "seed": seed, "steps": steps, "seconds": seconds, "curve": curve,
        "final": score, "training": float(np.mean(late)),
    }  # fmt: skip


def interquartile_mean(values: np.ndarray) -> float:
    """Mean of the middle half."""
    ordered = np.sort(values.ravel())
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def table(runs: list[dict[str, Any]], measure: str) -> None:
    """Print the interquartile mean of each source, and its interval."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        scores[run["source"]][run["game"]].append(run[measure])
    base = {game: np.mean(values) for game, values in scores["uniform"].items()}
    random = np.random.default_rng(0)
    print(f"{measure}: by source, relative to uniform's mean; then each game's returns")
    for source in SOURCES:
        found = [np.array(scores[source][game]) / base[game] for game in base if scores[source][game]]
        if not found:
            continue
        bootstraps = [
            interquartile_mean(np.concatenate([random.choice(each, len(each)) for each in found])) for _ in range(2_000)
        ]
        low, high = np.quantile(bootstraps, [0.025, 0.975])
        each = "; ".join(
            f"{game} {', '.join(f'{value:.1f}' for value in scores[source][game])}" for game in base
        )
        print(f"  {source:10} {interquartile_mean(np.concatenate(found)):.2f} [{low:.2f}, {high:.2f}]  {each}")


def draw(runs: list[dict[str, Any]], file: Path) -> None:
    """Draw the training return of each source over steps, a panel for each game."""
    import matplotlib.pyplot as plt

    games = list(dict.fromkeys(run["game"] for run in runs))
    figure, panels = plt.subplots(1, len(games), figsize=(5 * len(games), 4), layout="constrained", squeeze=False)
    for game, panel in zip(games, panels[0], strict=True):
        for number, source in enumerate(SOURCES):
            curves = [run["curve"] for run in runs if run["game"] == game and run["source"] == source]
            if not curves:
                continue
            end = max(at for curve in curves for at, _ in curve)
            grid = np.linspace(0, end, 60)
            means = [np.interp(grid, *np.array(curve).T) for curve in curves]
            panel.plot(grid, np.mean(means, 0), label=source, color=f"C{number}", linewidth=2)
            panel.fill_between(grid, np.min(means, 0), np.max(means, 0), color=f"C{number}", alpha=0.1)
        panel.set(title=f"MinAtar {game}", xlabel="steps", ylabel="mean return of 100 training episodes")
    panels[0][0].legend()
    figure.savefig(file)


def main() -> None:
    """Train what is not there yet, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--games", nargs="*", default=["Breakout", "Seaquest"])
    flags.add_argument("--seeds", type=int, default=3)
    flags.add_argument("--steps", type=int, default=1_000_000)
    flags.add_argument("--plot", type=Path, metavar="FILE")
    flags.add_argument("--write", type=Path, metavar="FILE")
    given = flags.parse_args()
    print(describe())
    runs: list[dict[str, Any]] = []
    if given.write and given.write.exists():
        runs = [json.loads(line) for line in given.write.read_text().splitlines()]
    there = {(run["game"], run["source"], run["seed"], run["steps"]) for run in runs}
    for seed in range(1, given.seeds + 1):
        for game in given.games:
            for source in SOURCES:
                if (game, source, seed, given.steps) in there:
                    continue
                runs.append(train(game, source, seed, given.steps))
                run = runs[-1]
                print(f"{game} {source} seed {seed}: {run['training']:.2f}, {run['final']:.2f} final, "
                      f"{run['seconds']:.0f} s", flush=True)  # fmt: skip
                if given.write:
                    with given.write.open("a") as file:
                        file.write(json.dumps(run) + "\n")
    for measure in ("training", "final"):
        table(runs, measure)
    if given.plot:
        draw(runs, given.plot)


if __name__ == "__main__":
    main()
