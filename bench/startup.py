"""Seconds from the command to the end of the first training step, and memory of a rollout worker.

    python bench/startup.py [--repeats 5]

The command has a budget of one step, so that it ends after its first batch: its wall time, with start-up and shutdown,
is an upper bound of the time to the first training step. Memory is USS, which excludes shared memory such as the arena.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

import penstock
from penstock.runs.machine import describe


def first_step() -> float:
    """Wall time of a run that ends after its first batch."""
    command = Path(sys.executable).with_name("penstock")
    flags = "train appo --env CartPole-v1 --total-steps 1 --eval-interval 0 --run-dir None"
    began = time.monotonic()
    subprocess.run([str(command), *flags.split()], check=True, capture_output=True)
    return time.monotonic() - began


def worker_memory(inference: str) -> float:
    """Largest USS of a rollout worker, in MB."""
    me = psutil.Process()
    with penstock.APPO(env="CartPole-v1", inference=inference, run_dir=None, eval_interval=0) as algo:
        algo.train(20_000, quiet=True)
        workers = [p for p in me.children(recursive=True) if p.cmdline()[:1] and "penstock-rollout" in p.cmdline()[0]]
        return max(worker.memory_full_info().uss for worker in workers) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(describe())
    seconds = [first_step() for _ in range(arguments.repeats)]
    print(f"first training step: median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s (mark: 4 s)")
    for inference in ("central", "local"):
        print(f"rollout worker, {inference} inference: {worker_memory(inference):.0f} MB (mark: 120 MB, central)")


if __name__ == "__main__":
    main()
