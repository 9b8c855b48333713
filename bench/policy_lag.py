"""Effect of corrections for policy lag: algorithms with delayed weights, with and without a correction.

    python bench/policy_lag.py [--losses V-trace decoupled ...] [--env NAME [--preset NAME]] [--lags 1 10 50]
        [--seeds 3] [--first-seed 1] [--steps N] [--keep FILE] [--plot FILE]

Runs use the serial backend, where the policy lag is exact: actions are chosen by the weights of a given number of
updates ago (0: the newest). Output: the median policy lag that the engine reports, the effective sample size as a share
of the steps, the return of the last weights on 100 episodes without exploration, and the mean return of the last 100
training episodes, averaged over the run. ``--keep`` appends a line of JSON per run. Without a preset the settings are
the defaults at a constant step size. Each run is a process, with one process per core at a time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import penstock
from penstock.algorithms.appo import APPO
from penstock.algorithms.impact import IMPACT
from penstock.algorithms.impala import IMPALA
from penstock.engine.acting import inference
from penstock.engine.acting.inference import SharedWeights
from penstock.experience.batch import Batch
from penstock.ipc import WeightsBlock
from penstock.play.scoring import evaluate_run
from penstock.runs.machine import describe

SERIAL: dict[str, Any] = {"backend": "serial", "num_workers": 1, "eval_interval": 0, "run_dir": None}
ALIKE: dict[str, Any] = {"num_envs_per_worker": 16, "learning_rate_schedule": "constant"}
SLOWER = {"learning_rate": 5e-4}  # a quarter of the default; at 1e-3, V-trace also failed at a lag of 50 updates
TWICE = {"num_epochs": 2}  # more passes at a given lag make it span fewer batches
POINTS = 100  # of a curve


class Uncorrected(IMPALA):
    """IMPALA that treats all experience as on-policy."""

    def log_ratio(self, log_prob: Tensor, batch: Batch) -> Tensor:
        """Zero: every ratio is 1."""
        return torch.zeros_like(log_prob)


DECOUPLED = {"loss": "decoupled"}
LOSSES: dict[str, tuple[Any, dict[str, Any]]] = {
    "V-trace": (IMPALA, {}),
    "ratios of 1": (Uncorrected, {}),
    "clipped": (APPO, {}),
    "decoupled": (APPO, DECOUPLED),
    "decoupled, V-trace": (APPO, {**DECOUPLED, "advantage_estimator": "vtrace"}),
    "IMPACT": (IMPACT, {}),
}


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


def late_weights(model: torch.nn.Module, arena: Any, lag: int) -> SharedWeights:
    """Return the learner's end of the weights block, which shows the weights of `lag` versions ago."""
    return SharedWeights(model, LateBlock(arena.weights, lag))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Run:
    """Training to run."""

    env: str
    preset: str | None
    lag: int
    loss: str
    seed: int
    steps: int

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the algorithm: those of a preset, or its defaults except step size and passes."""
        algorithm, own = LOSSES[self.loss]
        apart = SLOWER if issubclass(algorithm, IMPALA) else TWICE if issubclass(algorithm, APPO) else {}
        usual = {"preset": self.preset} if self.preset else {**ALIKE, **apart}
        return {"env": self.env, **SERIAL, **usual, **own}


@dataclass(frozen=True)
class Outcome:
    """Results; steps, returns, lags and effective sample sizes over the training."""

    run: Run
    steps: list[int]
    returns: list[float]
    lags: list[float]
    effective: list[float]
    final_return: float
    seconds: float


def train(run: Run) -> Outcome:
    """Train in this process, which runs nothing else."""
    inference.through_block = partial(late_weights, lag=run.lag)
    began = time.monotonic()
    steps, returns, lags, effective = [], [], [], []
    with penstock.Trainer(LOSSES[run.loss][0], total_steps=run.steps, seed=run.seed, **run.settings) as algo:
        for _ in range(POINTS):
            algo.train(run.steps // POINTS, quiet=True)
            status = algo.status
            steps.append(status.steps)
            returns.append(status.mean_return or 0.0)
            lags.append(status.policy_lag_mean)
            effective.append(status.losses.get("effective_samples", float("nan")))
        with tempfile.TemporaryDirectory() as aside:
            algo.save(f"{aside}/last")
            final = evaluate_run(f"{aside}/last", episodes=100, seed=run.seed)
    if statistics.median(lags) < run.lag:
        raise RuntimeError(f"weights were not held back: the lag is {statistics.median(lags)}, expected {run.lag}")
    return Outcome(run, steps, returns, lags, effective, final.mean_return, time.monotonic() - began)


def plot(outcomes: list[Outcome], target: Path) -> None:
    """Draw the return of the last 100 training episodes over steps: a panel per lag, a line per run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lags = sorted({o.run.lag for o in outcomes})
    figure, axes = plt.subplots(1, len(lags), figsize=(10, 4), layout="constrained", sharey=True, squeeze=False)
    for axis, lag in zip(axes[0], lags, strict=True):
        for number, loss in enumerate(LOSSES):
            for number_of_run, o in enumerate(o for o in outcomes if (o.run.lag, o.run.loss) == (lag, loss)):
                label = loss if number_of_run == 0 else None
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
    parser.add_argument("--losses", nargs="+", default=["V-trace", "ratios of 1"], choices=LOSSES, metavar="LOSS")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--preset")
    parser.add_argument("--lags", type=int, nargs="+", default=[1, 10, 50])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250_000)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    env, preset, steps = arguments.env, arguments.preset, arguments.steps
    print(describe())
    usual = f"preset={preset}" if preset else f"{ALIKE}, {SLOWER} with IMPALA, else the defaults"
    print(f"{env}, {steps} steps, settings: {usual}")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    runs = [Run(env, preset, *each, steps) for each in product(arguments.lags, arguments.losses, seeds)]
    context = multiprocessing.get_context("spawn")
    outcomes = []
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), context, max_tasks_per_child=1) as pool:
        for outcome in pool.map(train, runs):
            outcomes.append(outcome)
            if arguments.keep:
                with arguments.keep.open("a") as kept:
                    kept.write(json.dumps(asdict(outcome)) + "\n")
    print(f"{'held back':>9} {'loss':<18} {'lag':>5} {'effective':>9} {'training':>9} {'final':>7}  final, each seed")
    for lag, loss in product(arguments.lags, arguments.losses):
        found = [o for o in outcomes if (o.run.lag, o.run.loss) == (lag, loss)]
        lags = statistics.median(lag for o in found for lag in o.lags)
        effective = statistics.median(share for o in found for share in o.effective)
        training = statistics.mean(statistics.mean(o.returns) for o in found)
        finals = [o.final_return for o in found]
        each = " ".join(f"{final:.0f}" for final in finals)
        row = f"{lags:>5.1f} {effective:>9.2f} {training:>9.1f} {statistics.mean(finals):>7.1f}  {each}"
        print(f"{lag:>9} {loss:<18} {row}")
    print(f"seconds per run: at most {max(o.seconds for o in outcomes):.0f}")
    if arguments.plot:
        plot(outcomes, arguments.plot)


if __name__ == "__main__":
    main()
