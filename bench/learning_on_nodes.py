"""Steps until a target is reached, at home and on two isolated nodes, with the same seeds and number of lanes.

    python bench/learning_on_nodes.py [cartpole] [pendulum] [--seeds 5]

    cartpole    APPO, a return of 475, defaults but for two workers
    pendulum    TD3, a return of -180, preset pendulum

Each node has its own network, process numbers and shared memory (root and Linux namespaces are needed), and half of the
workers. The run at home comes first. Output: steps, seconds and the final policy's return over 100 fresh episodes. The
exit code is 3 if a mark is missed. The marks: all runs reach their target, and the median number of steps on nodes is
at most that of the slowest seed at home.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.engine.isolated_nodes

from penstock.algorithms.appo import APPO
from penstock.algorithms.td3 import TD3
from penstock.config import make_config
from penstock.engine.trainer import Trainer
from penstock.runs.machine import describe
from tests.engine.isolated_nodes import IsolatedCluster

NAMES = ("left", "right")


@dataclass(frozen=True)
class Work:
    """Training to compare."""

    algorithm: Any
    env: str
    workers: int
    settings: dict[str, Any]
    preset: str | None = None


WORK = {
    "cartpole": Work(APPO, "CartPole-v1", 2, {"target_return": 475.0, "total_steps": 500_000}),
    "pendulum": Work(TD3, "Pendulum-v1", 4, {"target_return": -180.0, "eval_episodes": 50}, "pendulum"),
}


def train(work: Work, seed: int, place: dict[str, Any]) -> int | None:
    """Train once and print a line; return the steps until the target, None if it was not reached."""
    asked = {"env": work.env, **work.settings, "seed": seed, "run_dir": None}
    settings = vars(make_config(work.algorithm.Config, asked, work.preset))
    nodes = place.get("nodes", 1)
    with Trainer(work.algorithm, **{**settings, "num_workers": work.workers // nodes, **place}) as trainer:
        result = trainer.train(quiet=True)
        final = trainer.evaluate(100)
    where = "nodes" if place else "home"
    print(
        f"{seed:>4}  {where:<5}  {result.steps:>9,} steps  {result.seconds:>6.1f} s  {result.stop_reason:<6}  "
        f"return {final.mean_return:.1f} over 100 fresh episodes", flush=True,
    )  # fmt: skip
    return result.steps if result.reached_target else None


def main() -> int:
    """Train, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="*", choices=[[], *WORK], metavar="work")
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print(describe())
    are_met = []
    for name in asked.work or WORK:
        work = WORK[name]
        print(f"\n{name}: {work.algorithm.name()}, target {work.settings['target_return']:g}")
        found: dict[str, list[int | None]] = {"home": [], "nodes": []}
        with IsolatedCluster(*NAMES, cores=work.workers // len(NAMES)) as cluster:
            cluster.start()
            on_nodes = {"backend": "ray", "address": cluster.address, "nodes": len(NAMES)}
            for seed in range(1, asked.seeds + 1):
                found["home"].append(train(work, seed, {}))
                found["nodes"].append(train(work, seed, on_nodes))
        reached = {where: [steps for steps in all_steps if steps is not None] for where, all_steps in found.items()}
        for where, steps in reached.items():
            middle = f"median {statistics.median(steps):,.0f}, {min(steps):,} to {max(steps):,}" if steps else "none"
            print(f"{where:<5}  {len(steps)} of {asked.seeds} reach the target: {middle}")
        is_met = all(len(steps) == asked.seeds for steps in reached.values())
        is_met = is_met and statistics.median(reached["nodes"]) <= max(reached["home"])
        words = "all reach the target; the median on nodes is no more than the slowest at home"
        print(f"{'yes' if is_met else 'NO'}  {words}")
        are_met.append(is_met)
    return 0 if all(are_met) else 3


if __name__ == "__main__":
    sys.exit(main())
