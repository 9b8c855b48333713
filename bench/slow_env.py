"""Slow simulators: overlap of all other work with stepping, and delay of other lanes by one slow lane.

    python bench/slow_env.py [--workers 2 4 8] [--ways central central-1 local] [--lanes 64] [--milliseconds 1] [--tail]
        [--seconds 10] [--rounds 3] [--only hidden straggling ppo]

APPO with a small network trains on lanes in which a step sleeps 1 ms +- 50 %, or as long as --milliseconds sets. With
--tail one step in a hundred sleeps 20 times as long. A rollout worker steps its lanes one after the other, so the rate
is at most rollout workers / mean step time; this time is measured in the same run, in equally many processes that only
step, because sleeping takes longer than requested. Then one lane sleeps 100 ms per step: the rate of the other lanes is
compared with a run without it. The environments count steps. Inference is central with two groups of lanes per worker,
central with one, or local with one.

ppo is PPO on the same lanes: once all wait for the last lane, and once a batch closes 50 ms after its first segment
(batch_timeout).
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
from penstock.algorithms.appo import APPO
from penstock.algorithms.ppo import PPO
from penstock.bench.engine_run import run_engine
from penstock.config import make_config
from penstock.engine.backends.launcher import kept
from penstock.envs.making import lane_seed
from penstock.runs.machine import describe

MARK = 0.95
MOST_LANES = 64
STRAGGLER_SLEEP = 0.1  # seconds
TAIL, OF_TAIL = 0.01, 20.0  # share of the steps, and how many times as long they are
BATCH_WAIT = 0.05  # seconds
EPISODE = 200  # steps
WAYS: dict[str, dict[str, Any]] = {
    "central": {"inference": "central", "num_groups": 2},
    "central-1": {"inference": "central", "num_groups": 1},
    "local": {"inference": "local", "num_groups": 1},
}
LANE_OF = {lane_seed(0, lane, 0): lane for lane in range(MOST_LANES)}  # by the seed of its first reset


class SlowSimulator(gymnasium.Env):
    """Sleeps instead of simulating.

    Parameters
    ----------
    seconds
        Mean duration of a step without tail.
    has_tail
        Whether one step in a hundred takes 20 times as long.
    counts
        File of int64 ``[MOST_LANES]`` in which each lane counts its steps; None: it does not.
    straggler
        Lane that sleeps longer.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(
        self, seconds: float, has_tail: bool, counts: str | None = None, straggler: int | None = None
    ) -> None:
        self._seconds, self._tail = seconds, TAIL if has_tail else 0.0
        self._counts = np.zeros(MOST_LANES, np.int64) if counts is None else np.memmap(counts, np.int64, "r+")
        self._straggler = straggler
        self._lane = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode; the first seed identifies the lane."""
        super().reset(seed=seed)
        if seed is not None:
            self._lane = LANE_OF.get(seed, 0)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Sleep."""
        seconds = self._seconds * self.np_random.uniform(0.5, 1.5)
        if self.np_random.random() < self._tail:
            seconds *= OF_TAIL
        time.sleep(STRAGGLER_SLEEP if self._lane == self._straggler else seconds)
        self._steps += 1
        self._counts[self._lane] += 1
        return self._observe(), float(action), False, self._steps >= EPISODE, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1.0, 1.0, 4).astype(np.float32)


def settings(workers: int, way: str, arguments: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """Return the settings of an algorithm that are not defaults."""
    env_kwargs = {"seconds": 1e-3 * arguments.milliseconds, "has_tail": arguments.tail, **more}
    lanes = {"num_workers": workers, "num_envs_per_worker": arguments.lanes // workers, **WAYS[way]}
    return {"env": SlowSimulator, "env_kwargs": env_kwargs, **lanes, "total_steps": 10**9, "eval_interval": 0}


def step_time(asked: tuple[float, float, bool]) -> float:
    """Return the mean seconds of a step without other work; `asked` has the seconds to measure and the environment."""
    seconds, *step = asked
    env = SlowSimulator(*step)
    env.reset()
    steps, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        env.step(0)
        steps += 1
    return elapsed / steps


def hidden(
    workers: int, way: str, arguments: argparse.Namespace, algorithm: Any = APPO, name: str = "", **more: Any
) -> float:
    """Print the largest possible and the measured steps per second, and return the latter."""
    rates, times, limits = [], [], ""
    one = min(2.0, arguments.seconds) if arguments.milliseconds <= 1 else arguments.seconds
    asked = one, 1e-3 * arguments.milliseconds, arguments.tail
    config = make_config(algorithm.Config, {**settings(workers, way, arguments), **more})
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for _ in range(arguments.rounds):
            times.append(statistics.mean(pool.map(step_time, [asked] * workers, chunksize=1)))
            run = run_engine(algorithm, config, seconds=arguments.seconds)
            rates.append(run.rate)
            limits = f"{run.limiting_role}, {run.limiting_reason}"
    rate, mean_time = statistics.median(rates), statistics.median(times)
    share = rate * mean_time / workers
    figures = f"{1e3 * mean_time:>8.3f} {workers / mean_time:>9,.0f} {rate:>9,.0f} {share:>6.3f}"
    print(f"{workers:>7} {name or way:<15} {figures}   {_met(share)} {limits}", flush=True)
    return rate


def counted(
    workers: int, way: str, arguments: argparse.Namespace, straggler: int | None, steps: int
) -> np.ndarray:
    """Return the steps per second of each lane, over at least the seconds to measure, after a warm-up of some steps."""
    with tempfile.TemporaryDirectory() as aside:
        file = Path(aside) / "counts"
        whole = np.memmap(file, np.int64, "w+", shape=(MOST_LANES,))
        counts = whole[: arguments.lanes]
        values = settings(workers, way, arguments, counts=str(file), straggler=straggler)
        with penstock.APPO(**values, run_dir=None) as algo:
            algo.train(steps, quiet=True)
            before, began = counts.copy(), time.monotonic()
            while time.monotonic() < began + arguments.seconds:
                algo.train(steps, quiet=True)
            rates = (counts - before) / (time.monotonic() - began)
    if not rates.all():
        raise RuntimeError(f"lanes {np.flatnonzero(rates == 0)} were never stepped, or not identified by their seed")
    return rates


def straggling(workers: int, way: str, arguments: argparse.Namespace, steps: int) -> None:
    """Print the rates of lanes with a straggler among them, as shares of their rates without one."""
    groups = (workers, WAYS[way]["num_groups"], -1)
    rates = [counted(workers, way, arguments, straggler, steps).reshape(groups) for straggler in (None, 0)]
    shares = rates[1].mean(-1) / rates[0].mean(-1)  # [workers, groups]
    mates, others = shares[0, 1:], shares[1:]
    figures = f"{shares[0, 0]:>9.3f} {f'{mates.mean():.3f}' if mates.size else '-':>22} {others.mean():>24.3f}"
    slowest = shares.flatten()[1:].min()  # of all groups but the straggler's own
    print(f"{workers:>7} {way:<15} {figures} {slowest:>8.3f}   {_met(slowest)}", flush=True)


def _met(share: float) -> str:
    return f"{'yes' if share >= MARK else 'NO':<3}"


def main() -> None:
    """Measure and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--milliseconds", type=float, default=1.0)
    parser.add_argument("--tail", action="store_true")
    parser.add_argument("--only", nargs="+", choices=["hidden", "straggling", "ppo"], default=["hidden", "straggling"])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if not 0 < arguments.lanes <= MOST_LANES or any(arguments.lanes % workers for workers in arguments.workers):
        parser.error(f"--lanes {arguments.lanes} is not legal: a multiple of all --workers, at most {MOST_LANES}")
    print(describe())
    tail = f", one in {1 / TAIL:g} of them {OF_TAIL:g} times as long" if arguments.tail else ""
    print(f"{arguments.lanes} lanes, a step sleeps {arguments.milliseconds:g} ms +- 50 %{tail}")
    print(f"workers way              step, ms   at best  measured  share   >= {MARK}, and what limits")
    ways = list(product(arguments.workers, arguments.ways))
    with kept():
        if "ppo" in arguments.only:
            for workers, way in ways:
                hidden(workers, way, arguments, PPO, f"{way} PPO")
                hidden(workers, way, arguments, PPO, f"{way} PPO wait", batch_timeout=BATCH_WAIT)
        if {"hidden", "straggling"} & {*arguments.only}:
            rates = {way: hidden(*way, arguments) for way in ways}
        if "straggling" in arguments.only:
            print(f"\none lane sleeps {STRAGGLER_SLEEP * 1e3:g} ms: steps/s as a share of those without it")
            print("workers way             own group  groups of its worker  groups of other workers  slowest")
            for way in ways:
                straggling(*way, arguments, steps=int(rates[way] * arguments.seconds / 5))


if __name__ == "__main__":
    main()
