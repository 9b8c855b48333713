"""Equality of one learner with a group of learners that learn from the same batches.

    python bench/learner_groups.py [RUN ...] [--learners 2] [--updates 100] [--nodes] [--pace]

Each run trains in the serial backend for N updates and records its batches. Then one learner and a group of processes
learn from the same batches and initial weights. Output: the largest difference of any weight, target network or
statistic from the run's own, for one learner (0: equal bits), for one that starts from differently rounded weights, and
for the group; for numbers above 1, such as the variance of returns, the relative difference. The mark is 1e-5. If a
rounding error at the start grows beyond that, there is no mark for the group. The exit code is 1 if a mark is missed.

With ``--nodes`` every learner but the first is on its own node, of a Ray cluster simulated on this machine.

``--pace`` prints instead the updates per second of one learner and of a group, for a small and a large network, in
turns.
"""

from __future__ import annotations

import argparse
import copy
import logging
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import penstock
from penstock.engine.groups.board import Board, GroupSpec
from penstock.engine.groups.meeting import GroupMember
from penstock.engine.groups.rank_learner import rank_learner
from penstock.engine.roles.specs import LearnerRole
from penstock.nn import sharing
from penstock.runs.machine import describe
from penstock.runs.tensors import as_bytes, from_bytes

MARK = 1e-5
FRESH = {"env": "CartPole-v1", "num_envs_per_worker": 4, "segment_length": 16, "batch_size": 64}
REPLAY = {"env": "CartPole-v1", "learning_starts": 64, "buffer_size": 2_000, "num_envs_per_worker": 2, "batch_size": 32}
CONTROL = {**REPLAY, "env": "Pendulum-v1"}
RUDDER = {"rewards": "rudder", "redistributor_interval": 200, "redistributor_size": 8}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "A2C": ("A2C", {"env": "CartPole-v1", "num_envs_per_worker": 4}),
    "PPO": ("PPO", FRESH),
    "PPO, GRU": ("PPO", {**FRESH, "memory": "gru", "memory_size": 16, "burn_in": 4, "batch_size": 32}),
    "PPO, early stops": ("PPO", {**FRESH, "target_kl": 0.0005}),
    "PPO, continuous": ("PPO", {**FRESH, "env": "Pendulum-v1"}),
    "PPO, RUDDER": ("PPO", {**FRESH, **RUDDER}),
    "APPO": ("APPO", FRESH),
    "APPO, V-trace": ("APPO", {**FRESH, "advantage_estimator": "vtrace"}),
    "IMPALA": ("IMPALA", FRESH),
    "IMPALA, LSTM": ("IMPALA", {**FRESH, "memory": "lstm", "memory_size": 16}),
    "IMPACT": ("IMPACT", FRESH),
    "LASER": ("LASER", {**FRESH, "batch_size": 128, "replay": ["queue:1/4", "uniform:3/4,capacity=50,min_size=10"]}),
    "CLEAR": ("CLEAR", {**FRESH, "replay": ["queue:1/2", "reservoir:1/2,capacity=50,min_size=10"]}),
    "PQN": ("PQN", FRESH),
    "PQN, GRU": ("PQN", {**FRESH, "memory": "gru", "memory_size": 16, "batch_size": 32}),
    "DQN": ("DQN", {**REPLAY, "prioritized": True, "n_step": 3, "normalize_observations": True}),
    "DQN, quantiles": ("DQN", {**REPLAY, "distributional": "quantile", "double": True}),
    "DQN, IQN, noisy": ("DQN", {**REPLAY, "distributional": "iqn", "noisy": True}),
    "DQN, RUDDER": ("DQN", {**REPLAY, **RUDDER}),
    "Rainbow": ("Rainbow", REPLAY),
    "BTR": ("BTR", REPLAY),
    "ApeX": ("ApeX", REPLAY),
    "R2D2": ("R2D2", {**REPLAY, "batch_size": 4, "updates_per_step": 0.5}),
    "DDPG": ("DDPG", CONTROL),
    "ApeXDPG": ("ApeXDPG", CONTROL),
    "TD3": ("TD3", {**CONTROL, "normalize_observations": True}),
    "SAC": ("SAC", CONTROL),
    "TQC": ("TQC", CONTROL),
    "CrossQ": ("CrossQ", {**CONTROL, "critic_hidden_sizes": (64, 64)}),
    "FlashSAC": ("FlashSAC", CONTROL),
    "XQC": ("XQC", {**CONTROL, "critic_hidden_sizes": (64, 64)}),
}
SIZES = {"small": (64, 64), "large": (1024, 1024)}  # of PPO's networks, whose pace is measured


@dataclass
class Lessons:
    """Experience that a run has learned from, with the states before and after."""

    algorithm: Any
    before: bytes = b""
    batches: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    after: dict[str, Any] | None = None

    def attend(self, learner: Any, updates: int) -> None:
        """Record what a learner learns from during a number of updates."""

        @contextmanager
        def keeping(batch: Any) -> Iterator[None]:
            if self.after is None and learner.standing()["updates"] >= updates:
                self.after = copy.deepcopy(learner.whole_state())
            if self.after is None:
                self.before = self.before or as_bytes(learner.whole_state())
                self.batches.append((copy.deepcopy(batch), copy.deepcopy(learner.about_batch())))
            yield

        learner.in_group = keeping


InGroup = Callable[[Lessons, int], tuple[dict[str, Any], float]]


def lessons_of(name: str, settings: dict[str, Any], updates: int) -> Lessons:
    """Train for a number of updates, and return the experience learned from."""
    built, kept = LearnerRole.build, list[Lessons]()

    def build(self: LearnerRole, *arguments: Any, **named: Any) -> Any:
        learner = built(self, *arguments, **named)
        kept.append(Lessons(self.algorithm))
        kept[0].attend(learner, updates)
        return learner

    LearnerRole.build = build  # type: ignore[method-assign]
    always = {"backend": "serial", "seed": 7, "run_dir": None, "eval_interval": 0, "num_workers": 1}
    settings = {"hidden_sizes": (32, 32), **always, **settings}
    try:
        with getattr(penstock, name)(total_steps=10_000_000, **settings) as algo:
            while not kept or kept[0].after is None:
                algo.train(256, quiet=True)
    finally:
        LearnerRole.build = built  # type: ignore[method-assign]
    return kept[0]


def learned(
    lessons: Lessons, group: GroupSpec | None = None, rank: int = 0, *, rounded: bool = False
) -> tuple[dict[str, Any], float]:
    """Learn from the lessons, alone or in a group; return the resulting state, and the seconds it took.

    With `rounded`, every weight starts as the next larger float32.
    """
    torch.set_num_threads(1)
    algorithm = copy.deepcopy(lessons.algorithm)
    object.__setattr__(algorithm.config, "num_learners", 2)  # unchecked: the group may have any size
    learner = rank_learner(algorithm)
    learner.take_state(from_bytes(lessons.before))
    if rounded:
        state = learner.whole_state()
        for name, weight in state["weights"].items():
            if weight.is_floating_point() and "moments" not in name:
                state["weights"][name] = torch.nextafter(weight, torch.full_like(weight, torch.inf))
        learner.take_state(copy.deepcopy(state))
    batches = copy.deepcopy(lessons.batches)
    together = None if group is None else GroupMember(group, rank, learner.device).connect(1)
    began = time.perf_counter()
    with nullcontext() if together is None else sharing(together):
        for batch, about in batches:
            learner.learn(batch, about)
    assert together is None or not together.is_broken
    return learner.whole_state(), time.perf_counter() - began


def learned_together(lessons: Lessons, size: int) -> tuple[dict[str, Any], float]:
    """Return the result of `learned` for the first process of a group."""
    board = Board(size)
    fork = multiprocessing.get_context("fork")
    others = [fork.Process(target=learned, args=(lessons, board.spec, rank), daemon=True) for rank in range(1, size)]
    for other in others:
        other.start()
    found = learned(lessons, board.spec)
    for other in others:
        other.join()
        assert other.exitcode == 0
    board.close()
    return found


def learned_on_nodes(lessons: Lessons, size: int) -> tuple[dict[str, Any], float]:
    """As `learned_together`, with every other learner on its own node of the cluster that this process has joined."""
    import ray

    board = Board(size, ray.util.get_node_ip_address())
    there = ray.remote(learned).options(num_cpus=1, max_retries=0)  # type: ignore[attr-defined]
    others = [there.remote(lessons, board.spec, rank) for rank in range(1, size)]
    found = learned(lessons, board.spec)
    ray.get(others)
    board.close()
    return found


def largest_difference(one: Any, other: Any) -> float:
    """Return the largest difference of weights, targets and statistics of two states, relative for numbers above 1."""
    if isinstance(one, Tensor):
        difference = (one.double() - other.double()).abs() / one.double().abs().clamp(min=1.0)
        return float(difference.max()) if one.numel() else 0.0
    if isinstance(one, dict):
        names = [name for name in one if name not in ("generator", "replay", "standing", "optimizer", "optimizers")]
        return max((largest_difference(one[name], other[name]) for name in names), default=0.0)
    return 0.0


@contextmanager
def connected_to_nodes(count: int) -> Iterator[None]:
    """Start a cluster of nodes with one core each for the block."""
    import ray

    from penstock.engine.nodes.cluster import simulated

    with simulated(count, 1) as address:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()


def compare(names: list[str], size: int, updates: int, in_group: InGroup) -> bool:
    """Print a row for each run; return whether all are within the mark."""
    print(f"{'':<18} {'updates':>8} {'batches':>8} {'one learner':>12} {'rounded':>12} {f'{size} learners':>12}")
    is_met = True
    for name in names:
        lessons = lessons_of(*RUNS[name], updates)
        assert lessons.after is not None
        alone, rounded, together = (
            largest_difference(lessons.after, found)
            for found in (learned(lessons)[0], learned(lessons, rounded=True)[0], in_group(lessons, size)[0])
        )
        is_met &= together <= max(MARK, rounded)
        missed = "" if together <= MARK else "  no mark" if rounded > MARK else "  MISSED"
        made = lessons.after["standing"]["updates"]
        found = "".join(f" {difference:>12.1e}" for difference in (alone, rounded, together))
        print(f"{name:<18} {made:>8} {len(lessons.batches):>8}{found}{missed}", flush=True)
    return is_met


def pace(size: int, turns: int) -> None:
    """Print updates per second of one learner and of a group."""
    for name, sizes in SIZES.items():
        settings = {**FRESH, "num_envs_per_worker": 32, "batch_size": 512, "hidden_sizes": sizes}
        lessons = lessons_of("PPO", settings, 20)
        assert lessons.after is not None
        made, rates = lessons.after["standing"]["updates"], {1: list[float](), size: list[float]()}
        for _ in range(turns):
            rates[1].append(made / learned(lessons)[1])
            rates[size].append(made / learned_together(lessons, size)[1])
        one, several = (statistics.median(rate) for rate in rates.values())
        print(f"PPO, {name} network {sizes}: one learner {one:,.1f} updates/s, {size} learners {several:,.1f}, "
              f"ratio {several / one:.2f}")  # fmt: skip


def main() -> None:
    """Parse the command, and compare."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("runs", nargs="*", metavar="RUN", help="all of them when left out")
    flags.add_argument("--learners", type=int, default=2)
    flags.add_argument("--updates", type=int, default=100)
    flags.add_argument("--nodes", action="store_true")
    flags.add_argument("--pace", action="store_true")
    flags.add_argument("--turns", type=int, default=3, help="of --pace")
    given = flags.parse_args()
    if unknown := set(given.runs) - RUNS.keys():
        flags.error(f"no such run: {', '.join(sorted(unknown))} (legal: {', '.join(RUNS)})")
    print(describe())
    if given.pace:
        pace(given.learners, given.turns)
        return
    with connected_to_nodes(given.learners - 1) if given.nodes else nullcontext():
        in_group = learned_on_nodes if given.nodes else learned_together
        if not compare(given.runs or list(RUNS), given.learners, given.updates, in_group):
            sys.exit(1)


if __name__ == "__main__":
    main()
