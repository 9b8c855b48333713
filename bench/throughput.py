"""Steps per second learned from on CartPole-v1: one `gymnasium.make` per lane, MLP 64x64, one epoch, on the CPU.

    python bench/throughput.py [--steps 1500000] [--repeats 3]

The same work as the bare loop and the peers of the design are measured by. Start-up is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time

import penstock
from penstock.bench.machine import describe

SETTINGS = {
    "env": "CartPole-v1",
    "num_envs_per_worker": 256,
    "segment_length": 32,
    "batch_size": 8192,
    "num_minibatches": 1,
    "num_epochs": 1,
    "eval_interval": 0,
    "run_dir": None,
}


def measure(steps: int) -> float:
    """Train for `steps` after a warm-up and return the rate."""
    with penstock.APPO(**SETTINGS, total_steps=10**9) as algo:
        algo.train(200_000, quiet=True)
        began, before = time.monotonic(), algo.status.steps
        algo.train(steps, quiet=True)
        seconds = time.monotonic() - began
        status = algo.status
        for role in status.roles:
            print("   ", role.name, ", ".join(f"{name} {share:.0%}" for name, share in role.activities.items()))
        return (status.steps - before) / seconds


def main() -> None:
    """Measure a few times and print the median."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_500_000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(describe())
    rates = []
    for _ in range(arguments.repeats):
        rates.append(measure(arguments.steps))
        print(f"{rates[-1]:,.0f} steps/s", flush=True)
    print(f"median {statistics.median(rates):,.0f} steps/s (mark: 100,000)")


if __name__ == "__main__":
    main()
