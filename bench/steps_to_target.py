"""Steps that PPO and APPO take to a task's target with all defaults, and the returns of the policies that reached it.

    python bench/steps_to_target.py [TASK ...] [--algorithms NAME ...] [--seeds N] [--first N] [--history FILE]
                                    [--table] [--set SETTING=VALUE ...]

    cartpole 475, acrobot -100, pendulum -200, lunarlander 200

Two rollout workers; the budget, over which step sizes fall to 0, is the algorithm's default. A run ends at the first
evaluation of 20 episodes with a mean at the target, or at the task's limit of steps; its weights then play 100 fresh
episodes. Every run is appended to the history with its machine and commit. ``--set`` changes settings, for searches,
which need another history. ``--table`` only prints.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runs_file import RunsFile

from penstock import Trainer
from penstock.algorithms import load_algorithm
from penstock.engine.backends import launcher
from penstock.runs.machine import describe, machine_facts
from penstock.runs.metrics import METRICS

EPISODES = 100
HISTORY = Path(__file__).parent / "history" / "steps_to_target.jsonl"


@dataclass(frozen=True)
class Task:
    """An environment with a return to reach."""

    env: str
    target: float
    limit: int
    """Steps after which a run has failed."""
    interval: int
    """Steps between evaluations."""


TASKS = {
    "cartpole": Task("CartPole-v1", 475.0, 100_000, 1_000),
    "acrobot": Task("Acrobot-v1", -100.0, 100_000, 2_000),
    "pendulum": Task("Pendulum-v1", -200.0, 300_000, 5_000),
    "lunarlander": Task("LunarLander-v3", 200.0, 400_000, 5_000),
}


def train(name: str, algorithm: str, seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train until the target; return the steps (None: not reached), epochs, mean return and mean policy lag."""
    task = TASKS[name]
    with tempfile.TemporaryDirectory() as aside, Trainer(
        load_algorithm(algorithm), env=task.env, seed=seed, num_workers=2, target_return=task.target,
        eval_interval=task.interval, run_dir=f"{aside}/run", **settings,
    ) as trainer:  # fmt: skip
        result = trainer.train(task.limit, quiet=True)
        returns = trainer.evaluate(EPISODES, seed=seed).returns
        lines = [json.loads(line) for line in Path(aside, "run", METRICS).read_text().splitlines()]
        config: Any = trainer.config
    reached = [line["steps"] for line in lines if line.get("evaluation/mean_return", -1e9) >= task.target]
    lags = [line["policy_lag/mean"] for line in lines if "policy_lag/mean" in line]
    return {
        "steps": reached[0] if reached else None, "learned": result.steps, "num_epochs": config.num_epochs,
        "mean": round(statistics.fmean(returns), 2), "lag": round(statistics.fmean(lags), 1) if lags else None,
    }  # fmt: skip


def measure(tasks: list[str], algorithms: list[str], seeds: range, settings: dict[str, Any], history: RunsFile) -> None:
    """Make the runs of this commit that the history lacks."""
    facts = machine_facts()
    with launcher.kept():
        for seed in seeds:
            for task in tasks:
                for algorithm in algorithms:
                    what = {"task": task, "algorithm": algorithm, "seed": seed, "settings": settings}
                    held = [run for run in history.runs if what.items() <= run.items()]
                    if any(run["machine"]["commit"] == facts["commit"] for run in held):
                        continue
                    history.add({**what, **train(task, algorithm, seed, settings), "machine": facts})
                    shown = {key: value for key, value in history.runs[-1].items() if key != "machine"}
                    print(shown, file=sys.stderr, flush=True)


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: a row for each task and algorithm; runs of the same seed count once, the newest."""
    newest = {(r["task"], r["algorithm"], json.dumps(r["settings"]), r["seed"]): r for r in runs}
    lines = [
        "| task | algorithm | epochs | reached | median steps | lowest to highest | final policy, lowest / median |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, algorithm, settings in sorted({key[:3] for key in newest}, key=lambda key: list(TASKS).index(key[0])):
        found = [run for key, run in newest.items() if key[:3] == (task, algorithm, settings)]
        steps = sorted(run["steps"] or TASKS[task].limit for run in found)
        means = [run["mean"] for run in found]
        reached = sum(run["steps"] is not None for run in found)
        given = "" if settings == "{}" else f" {settings}"
        lines.append(
            f"| {TASKS[task].env} | {algorithm}{given} | {found[-1]['num_epochs']} | {reached} of {len(found)} "
            f"| {statistics.median(steps):,.0f} | {steps[0]:,} to {steps[-1]:,} "
            f"| {min(means):.1f} / {statistics.median(means):.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Parse the command, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", choices=[[], *TASKS], nargs="*", metavar="TASK", default=[])
    parser.add_argument("--algorithms", nargs="+", default=["ppo", "appo"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--set", nargs="*", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in arguments.set)}
    history = RunsFile(arguments.history)
    if not arguments.table:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        measure(arguments.tasks or list(TASKS), arguments.algorithms, seeds, settings, history)
    print(describe())
    print(table(history.runs))


if __name__ == "__main__":
    main()
