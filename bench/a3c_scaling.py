"""A3C with one rollout worker and with two (and more): steps per second, and seconds until a task is solved.

    python bench/a3c_scaling.py [--env CartPole-v1] [--target 475] [--lanes 8] [--workers 1 2] [--steps N] [--seeds 5]

Steps per second exclude evaluator and start-up; seconds to solve are those of `train`, including both.
"""

from __future__ import annotations

import argparse
import statistics
import time

import penstock
from penstock.runs.machine import describe


def rate(env: str, workers: int, lanes: int, steps: int) -> float:
    """Return the steps learned from per second, after a warm-up."""
    with penstock.A3C(
        env=env, num_workers=workers, num_envs_per_worker=lanes, total_steps=10**9, eval_interval=0, run_dir=None
    ) as algo:
        algo.train(20_000, quiet=True)
        began, before = time.monotonic(), algo.status.steps
        algo.train(steps, quiet=True)
        return (algo.status.steps - before) / (time.monotonic() - began)


def solved(env: str, target: float, workers: int, lanes: int, seed: int) -> tuple[float, int, float]:
    """Return seconds and steps until two evaluations reach the target, and the mean policy lag at the end."""
    with penstock.A3C(
        env=env, num_workers=workers, num_envs_per_worker=lanes, target_return=target, seed=seed, run_dir=None
    ) as algo:
        result = algo.train(quiet=True)
        return result.seconds if result.reached_target else float("nan"), result.steps, algo.status.policy_lag_mean


def main() -> None:
    """Measure and print a line per number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--target", type=float, default=475.0)
    parser.add_argument("--lanes", type=int, default=8, help="per worker; published is 1")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    print(describe())
    print(f"{'workers':>7} {'steps/s':>9}   seconds to solve (median, all)   steps to solve (median)   last policy lag")
    for workers in arguments.workers:
        speed = rate(arguments.env, workers, arguments.lanes, arguments.steps)
        runs = [
            solved(arguments.env, arguments.target, workers, arguments.lanes, seed)
            for seed in range(1, arguments.seeds + 1)
        ]
        seconds, steps, lags = zip(*runs, strict=True)
        each = " ".join(f"{s:.1f}" for s in seconds)
        print(
            f"{workers:>7} {speed:>9,.0f}   {statistics.median(seconds):.1f}   ({each})   "
            f"{statistics.median(steps):>9,.0f}   {statistics.mean(lags):.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
