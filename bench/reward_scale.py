"""Algorithms with default settings on a task with rewards of 0.001, 1, and 10,000.

    python bench/reward_scale.py [ALGORITHM ...] [--seeds 3] [--history FILE] [--table]

The task is bench/environments/matching.py: sixteen steps, four actions, one of which is rewarded. Algorithms that learn
from replay have 10,000 steps, the others 50,000; NAME-normalized is the algorithm NAME with ``normalize_returns``. The
final policy then plays 100 fresh episodes with its most probable actions. The table shows the share of rewarded steps,
0.25 by chance and 1 at best: the lowest of the seeds.
``--history`` keeps every run, and runs of this commit in it are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from runs_file import RunsFile

from penstock import Trainer
from penstock.algorithms import load_algorithm
from penstock.play.scoring import evaluate_run
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.machine import describe, machine_facts

PLACE = f"{Path(__file__).parent / 'environments' / 'matching.py'}:Matching"
SCALES = (0.001, 1.0, 10_000.0)
EPISODES, STEPS = 100, 16  # steps per episode
REPLAY = dict.fromkeys(("dqn", "rainbow", "apex", "r2d2"), 10_000)
SEGMENTS = dict.fromkeys(("ppo", "appo", "impala", "a2c", "a3c", "impact", "clear", "laser", "pqn"), 50_000)
NORMALIZED = {f"{name}-normalized": (REPLAY | SEGMENTS)[name] for name in ("apex", "r2d2", "pqn")}
BUDGETS = REPLAY | SEGMENTS | NORMALIZED


def share_of(algorithm: str, scale: float, seed: int, folder: Path) -> float:
    """Train, and return the share of rewarded steps of the final policy."""
    name, *normalized = algorithm.split("-")
    settings: dict[str, Any] = {"total_steps": BUDGETS[algorithm], "backend": "serial", "eval_interval": 0}
    of_run: dict[str, Any] = {"env_kwargs": {"scale": scale}, "run_dir": str(folder), "seed": seed}
    if normalized:
        settings["normalize_returns"] = True
    with Trainer(load_algorithm(name), env=PLACE, **settings, **of_run) as trainer:
        trainer.train(quiet=True)
    score = evaluate_run(resolve_checkpoint(folder, "latest"), episodes=EPISODES, deterministic=True, seed=seed)
    return statistics.fmean(score.returns) / (scale * STEPS)


def measure(algorithms: Iterable[str], seeds: int, history: RunsFile) -> None:
    """Make the runs of this commit that the history lacks."""
    facts = machine_facts()
    for algorithm in algorithms:
        for scale in SCALES:
            for seed in range(1, seeds + 1):
                run: dict[str, Any] = {"algorithm": algorithm, "scale": scale, "seed": seed, "commit": facts["commit"]}
                if history.find(**run) is None:
                    with tempfile.TemporaryDirectory() as folder:
                        share = share_of(algorithm, scale, seed, Path(folder) / "run")
                    history.add({**run, "machine": facts["cpu"], "share": round(share, 3)})
                    print(history.runs[-1], file=sys.stderr, flush=True)


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: a row per algorithm, a column per scale, the lowest of the seeds."""
    newest = {(run["algorithm"], run["scale"], run["seed"]): run for run in runs}  # the last one written
    heads = " | ".join(f"{scale:g}" for scale in SCALES)
    lines = [f"| algorithm | {heads} | seeds | commit |", "|---" * (len(SCALES) + 3) + "|"]
    for algorithm in BUDGETS:
        if not (of_it := [run for run in newest.values() if run["algorithm"] == algorithm]):
            continue
        cells = [min((run["share"] for run in of_it if run["scale"] == scale), default=None) for scale in SCALES]
        shown = " | ".join("" if cell is None else f"{cell:.2f}" for cell in cells)
        commits = ", ".join(dict.fromkeys(run["commit"] for run in of_it))
        lines.append(f"| {algorithm} | {shown} | {len({run['seed'] for run in of_it})} | {commits} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", choices=[*BUDGETS, []], nargs="*", metavar="ALGORITHM", help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--table", action="store_true", help="print the history, run nothing")
    given = parser.parse_args()
    names, history = given.algorithms or list(BUDGETS), RunsFile(given.history)
    if not given.table:
        measure(names, given.seeds, history)
    print(describe())
    print(table([run for run in history.runs if run["algorithm"] in names]))


if __name__ == "__main__":
    main()
