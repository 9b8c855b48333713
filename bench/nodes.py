"""Cost of a node: a rollout worker at home and on a node, in turns, and the bytes sent.

    python bench/nodes.py [--work cartpole|pong] [--rounds N] [--seconds S] [--pin]

Both runs learn at home. In each round, each run trains for S seconds while the other rests. Output: steps/s of every
round, the median of the rounds' ratios, policy lag of both runs, and for the run on the node bytes sent per step and
per byte of its columns, and bytes of weights per version. The exit code is 3 if a mark is missed, or if a run learns
nothing in a round. ``--pin`` gives one core to the rollout worker at home and all roles of the node, and another core
to the rest. Ray's processes are not pinned.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.algorithms.appo import APPO
from penstock.config import make_config
from penstock.engine.trainer import Trainer
from penstock.runs.machine import describe

ALL = {"num_workers": 1, "total_steps": 10**9, "eval_interval": 0, "checkpoint_interval": 0, "run_dir": None}
RATIO_OF_BYTES = 1.05
RATIO_OF_WEIGHTS = 1.01
MOST_LAG = 1.0  # updates that a node adds


@dataclass(frozen=True)
class Work:
    """Training, and the required share of the local steps/s."""

    env: str
    settings: dict[str, Any]
    preset: str | None
    mark: float


WORK = {
    "cartpole": Work("CartPole-v1", {"num_envs_per_worker": 16}, None, 0.9),
    "pong": Work("ALE/Pong-v5", {"num_envs_per_worker": 16}, "atari", 0.95),
}


def rate(trainer: Trainer, seconds: float) -> float:
    """Train for a number of seconds; return steps/s."""
    began, before = time.monotonic(), trainer.status.steps
    trainer.train(on_update=lambda _: time.monotonic() - began < seconds, quiet=True)
    return (trainer.status.steps - before) / (time.monotonic() - began)


def pin(trainer: Trainer) -> None:
    """Give one core to the roles that step, and another to the other roles."""
    backend = trainer._supervisor.backend
    stepping = [pid for name, pid in backend.pids.items() if name.startswith("rollout")]
    for node in getattr(backend, "_nodes", ()):
        stepping += node.host.pids().values()
    first, second = sorted(os.sched_getaffinity(0))[:2]
    for pid in {*stepping, *backend.pids.values()}:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {second if pid in stepping else first})


def bytes_of_columns(trainer: Trainer) -> float:
    """Return the bytes of a segment's columns per step."""
    shape = trainer._supervisor._arena.shape
    columns = trainer._supervisor._arena.columns.values()
    return sum(column.nbytes for column in columns) / shape.num_slots / shape.segment_length


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=WORK, default="cartpole")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--pin", action="store_true", help="one core for the roles that step, another for the rest")
    asked = parser.parse_args()
    work = WORK[asked.work]
    settings = vars(make_config(APPO.Config, {"env": work.env, **work.settings, **ALL}, work.preset))
    settings = {name: value for name, value in settings.items() if name != "env"}
    print(describe())
    ratios = []
    with (
        Trainer(APPO, work.env, **settings) as local,
        Trainer(APPO, work.env, **{**settings, "backend": "ray"}) as node,
    ):
        for trainer in (local, node):
            rate(trainer, asked.seconds)  # until it is warm
            if asked.pin:
                pin(trainer)
        first = node.status.nodes[0]
        seen: dict[Trainer, list[float]] = {local: [], node: []}
        for number in range(asked.rounds):
            order = (local, node) if number % 2 else (node, local)
            rates = {trainer: rate(trainer, asked.seconds) for trainer in order}
            if idle := [name for name, trainer in (("local", local), ("node", node)) if not rates[trainer]]:
                print(f"no step was learned from within {asked.seconds:g} s ({', '.join(idle)}): raise --seconds")
                return 3
            for trainer in order:
                seen[trainer].append(trainer.status.policy_lag_mean)
            ratios.append(rates[node] / rates[local])
            print(f"local {rates[local]:9,.0f} steps/s   node {rates[node]:9,.0f} steps/s   ratio {ratios[-1]:.3f}")
        lags = {trainer: statistics.median(of_rounds) for trainer, of_rounds in seen.items()}
        status, last = node.status, node.status.nodes[0]
        per_step = (last.nbytes - first.nbytes) / (last.steps - first.steps)
        of_columns = per_step / bytes_of_columns(node)
        of_weights = last.weights_nbytes / status.version / node._policies[0].arena.weights.size
    print(f"median ratio {statistics.median(ratios):.3f} (mark {work.mark})")
    print(f"bytes per step {per_step:.1f}, {of_columns:.3f} of its columns (mark {RATIO_OF_BYTES})")
    print(f"weights: {of_weights:.3f} of one copy per version (mark {RATIO_OF_WEIGHTS})")
    print(f"policy lag of batches, median of rounds: local {lags[local]:.2f}, node {lags[node]:.2f}")
    are_met = (
        statistics.median(ratios) >= work.mark, of_columns <= RATIO_OF_BYTES, of_weights <= RATIO_OF_WEIGHTS,
        lags[node] - lags[local] <= MOST_LAG,
    )  # fmt: skip
    return 0 if all(are_met) else 3


if __name__ == "__main__":
    sys.exit(main())
