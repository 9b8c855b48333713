"""Slow simulators: overlap of all other work with stepping, and delay of other lanes by one slow lane.

    python bench/slow_env.py [--workers 2 4 8] [--ways central central-1 local] [--seconds 10] [--rounds 3]

APPO with a small network trains on 64 lanes, in which a step sleeps 1 ms +- 50 %. A rollout worker steps its lanes one
after the other, so the rate is at most rollout workers / mean step time; this time is measured in the same run, in
equally many processes that only step, because sleeping takes longer than requested. Then one lane sleeps 100 ms per
step: the rate of the other lanes is compared with a run without it. The environments count steps. Inference is central
with two groups of lanes per worker, central with one, or local with one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import penstock
from penstock.algorithms.appo import APPO, APPOConfig
from penstock.bench.engine_run import run_engine
from penstock.engine.backends.launcher import kept
from penstock.envs.making import lane_seed
from penstock.runs.machine import describe

MARK = 0.9
LANES = 64
SLEEP, STRAGGLER_SLEEP = (0.5e-3, 1.5e-3), 0.1  # seconds
EPISODE = 200  # steps
WAYS: dict[str, dict[str, Any]] = {
    "central": {"inference": "central", "num_groups": 2},
    "central-1": {"inference": "central", "num_groups": 1},
    "local": {"inference": "local", "num_groups": 1},
}
LANE_OF = {lane_seed(0, lane, 0): lane for lane in range(LANES)}  # by the seed of its first reset


class SlowSimulator(gymnasium.Env):
    """Sleeps instead of simulating.

    Parameters
    ----------
    counts
        File of int64 ``[LANES]`` in which each lane counts its steps; None: it does not.
    straggler
        Lane that sleeps longer.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, counts: str | None = None, straggler: int | None = None) -> None:
        self._counts = np.zeros(LANES, np.int64) if counts is None else np.memmap(counts, np.int64, "r+")
        self._straggler = straggler
        self._lane = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode; its first seed tells a lane which it is."""
        super().reset(seed=seed)
        if seed is not None:
            self._lane = LANE_OF.get(seed, 0)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Sleep."""
        is_straggler = self._lane == self._straggler
        time.sleep(STRAGGLER_SLEEP if is_straggler else self.np_random.uniform(*SLEEP))
        self._steps += 1
        self._counts[self._lane] += 1
        return self._observe(), float(action), False, self._steps >= EPISODE, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


def settings(workers: int, way: str, **env_kwargs: Any) -> dict[str, Any]:
    """Settings of APPO: all defaults but these."""
    lanes = {"num_workers": workers, "num_envs_per_worker": LANES // workers, **WAYS[way]}
    return {"env": SlowSimulator, "env_kwargs": env_kwargs, **lanes, "total_steps": 10**9, "eval_interval": 0}


def step_time(seconds: float) -> float:
    """Return the mean seconds of a step without other work."""
    env = SlowSimulator()
    env.reset()
    steps, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        env.step(0)
        steps += 1
    return elapsed / steps


def hidden(workers: int, way: str, arguments: argparse.Namespace) -> float:
    """Print the largest possible and the measured steps per second, and return the latter."""
    rates, times, limits = [], [], ""
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for _ in range(arguments.rounds):
            times.append(statistics.mean(pool.map(step_time, [min(2.0, arguments.seconds)] * workers, chunksize=1)))
            run = run_engine(APPO, APPOConfig(**settings(workers, way)), seconds=arguments.seconds)
            rates.append(run.rate)
            limits = f"{run.limiting_role}, {run.limiting_reason}"
    rate, mean_time = statistics.median(rates), statistics.median(times)
    share = rate * mean_time / workers
    figures = f"{1e3 * mean_time:>8.3f} {workers / mean_time:>9,.0f} {rate:>9,.0f} {share:>6.3f}"
    print(f"{workers:>7} {way:<9} {figures}   {_met(share)} {limits}", flush=True)
    return rate


def counted(workers: int, way: str, straggler: int | None, steps: int) -> np.ndarray:
    """Return the steps per second of each lane in a training, after a warm-up."""
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside) / "counts"
        counts = np.memmap(file, np.int64, "w+", shape=(LANES,))
        values = settings(workers, way, counts=str(file), straggler=straggler)
        with penstock.APPO(**values, run_dir=None) as algo:
            algo.train(steps // 5, quiet=True)
            before, began = counts.copy(), time.monotonic()
            algo.train(steps, quiet=True)
            rates = (counts - before) / (time.monotonic() - began)
    if not rates.all():
        raise RuntimeError(f"lanes {np.flatnonzero(rates == 0)} were never stepped, or not told which they are")
    return rates


def straggling(workers: int, way: str, steps: int) -> None:
    """Print the rates of lanes beside a straggler, as shares of their rates without one."""
    groups = (workers, WAYS[way]["num_groups"], -1)
    rates = [counted(workers, way, straggler, steps).reshape(groups) for straggler in (None, 0)]
    shares = rates[1].mean(-1) / rates[0].mean(-1)  # [workers, groups]
    mates, others = shares[0, 1:], shares[1:]
    figures = f"{shares[0, 0]:>9.3f} {f'{mates.mean():.3f}' if mates.size else '-':>22} {others.mean():>24.3f}"
    slowest = shares.flatten()[1:].min()  # of all groups but the straggler's own
    print(f"{workers:>7} {way:<9} {figures} {slowest:>8.3f}   {_met(slowest)}", flush=True)


def _met(share: float) -> str:
    return f"{'yes' if share >= MARK else 'NO':<3}"


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(describe())
    print(f"{LANES} lanes, a step sleeps {SLEEP[0] * 1e3:g} to {SLEEP[1] * 1e3:g} ms; APPO with its defaults")
    print("workers way        step, ms   at best  measured  share   >= 0.9, and what limits")
    ways = list(product(arguments.workers, arguments.ways))
    with kept():
        rates = {way: hidden(*way, arguments) for way in ways}
        print(f"\none lane sleeps {STRAGGLER_SLEEP * 1e3:g} ms: steps/s as a share of those without it")
        print("workers way       own group  groups of its worker  groups of other workers  slowest   >= 0.9")
        for way in ways:
            straggling(*way, steps=int(rates[way] * arguments.seconds))


if __name__ == "__main__":
    main()
