"""Effect of V-trace: IMPALA with delayed weights, beside the same loss with all ratios 1.

    python bench/policy_lag.py [--lags 1 10 50] [--seeds 3] [--steps N] [--plot FILE]

CartPole-v1 in the serial backend, where the policy lag is exact: each update uses one segment of each lane, and actions
are chosen by the weights of a given number of updates before. Output: the median policy lag that the engine reports,
the return of the last weights on 100 episodes without exploration, and the mean return of the last 100 training
episodes, averaged over the run. Each run is a process, with one process per core at a time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import penstock
from penstock.algorithms.impala import IMPALA
from penstock.engine.acting.inference import SharedWeights
from penstock.engine.roles import learner
from penstock.experience.batch import Batch
from penstock.ipc import WeightsBlock
from penstock.play.scoring import evaluate_run
from penstock.runs.machine import describe

SETTINGS: dict[str, Any] = {
    "env": "CartPole-v1",
    "backend": "serial",
    "num_workers": 1,
    "num_envs_per_worker": 16,
    "segment_length": 20,
    "batch_size": 320,
    "learning_rate": 5e-4,  # a quarter of the default; at 1e-3 50 updates were too many for V-trace too
    "learning_rate_schedule": "constant",
    "eval_interval": 0,
    "run_dir": None,
}
POINTS = 100  # of a curve


class Uncorrected(IMPALA):
    """IMPALA that treats all experience as on-policy."""

    def log_ratio(self, log_prob: Tensor, batch: Batch) -> Tensor:
        """Zero: every ratio is 1."""
        return torch.zeros_like(log_prob)


LOSSES = {"V-trace": IMPALA, "ratios of 1": Uncorrected}


class LateBlock:
    """Weights block that returns the weights published `lag` versions before."""

    def __init__(self, block: WeightsBlock, lag: int) -> None:
        self._block = block
        self._published: deque[tuple[np.ndarray, int]] = deque(maxlen=lag + 1)

    @property
    def version(self) -> int:
        """Version shown."""
        return self._block.version

    def publish(self, payload: np.ndarray, version: int) -> None:
        """Keep the newest weights, and show the oldest ones kept."""
        self._published.append((payload.copy(), version))
        self._block.publish(*self._published[0])

    def read_into(self, payload: np.ndarray) -> int:
        """Read the weights shown."""
        return self._block.read_into(payload)


@dataclass(frozen=True)
class Run:
    """Training to run."""

    lag: int
    loss: str
    seed: int
    steps: int


@dataclass(frozen=True)
class Outcome:
    """Results; steps, returns and lags over the training."""

    run: Run
    steps: list[int]
    returns: list[float]
    lags: list[float]
    final_return: float
    seconds: float


def train(run: Run) -> Outcome:
    """Train in this process, which runs nothing else."""
    learner.SharedWeights = lambda model, block: SharedWeights(model, LateBlock(block, run.lag))  # type: ignore
    began = time.monotonic()
    steps, returns, lags = [], [], []
    with penstock.Trainer(LOSSES[run.loss], total_steps=run.steps, seed=run.seed, **SETTINGS) as algo:
        for _ in range(POINTS):
            algo.train(run.steps // POINTS, quiet=True)
            status = algo.status
            steps.append(status.steps)
            returns.append(status.mean_return or 0.0)
            lags.append(status.policy_lag_mean)
        with tempfile.TemporaryDirectory() as aside:
            algo.save(f"{aside}/last")
            final = evaluate_run(f"{aside}/last", episodes=100, seed=run.seed)
    return Outcome(run, steps, returns, lags, final.mean_return, time.monotonic() - began)


def plot(outcomes: list[Outcome], target: Path) -> None:
    """Draw the return of the last 100 training episodes over steps: a panel per lag, a line per run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lags = sorted({o.run.lag for o in outcomes})
    figure, axes = plt.subplots(1, len(lags), figsize=(10, 4), layout="constrained", sharey=True, squeeze=False)
    for axis, lag in zip(axes[0], lags, strict=True):
        for number, loss in enumerate(LOSSES):
            for o in outcomes:
                if (o.run.lag, o.run.loss) == (lag, loss):
                    label = loss if o.run.seed == 1 else None
                    axis.plot(np.array(o.steps) / 1000, o.returns, color=f"C{number}", alpha=0.8, label=label)
        axis.set(xlabel="thousand steps", title=f"weights held back by {lag} update{'s' * (lag > 1)}")
        axis.grid(alpha=0.3)
    axes[0, 0].set(ylabel="mean return of 100 training episodes")
    axes[0, 0].legend()
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


def main() -> None:
    """Make the runs, print a line for each lag and loss, draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lags", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=250_000)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    print(describe())
    print("settings:", ", ".join(f"{name}={value}" for name, value in SETTINGS.items()), f"steps={arguments.steps}")
    seeds = range(1, arguments.seeds + 1)
    runs = [Run(lag, loss, seed, arguments.steps) for lag, loss, seed in product(arguments.lags, LOSSES, seeds)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), context, max_tasks_per_child=1) as pool:
        outcomes = list(pool.map(train, runs))
    print(f"{'held back':>9} {'loss':<12} {'lag measured':>12} {'training':>9} {'final':>7}  final, each seed")
    for lag, loss in product(arguments.lags, LOSSES):
        found = [o for o in outcomes if (o.run.lag, o.run.loss) == (lag, loss)]
        lags = statistics.median(lag for o in found for lag in o.lags)
        training = statistics.mean(statistics.mean(o.returns) for o in found)
        finals = [o.final_return for o in found]
        each = " ".join(f"{final:.0f}" for final in finals)
        print(f"{lag:>9} {loss:<12} {lags:>12.1f} {training:>9.1f} {statistics.mean(finals):>7.1f}  {each}")
    print(f"seconds per run: at most {max(o.seconds for o in outcomes):.0f}")
    if arguments.plot:
        plot(outcomes, arguments.plot)


if __name__ == "__main__":
    main()
