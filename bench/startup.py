"""Seconds from the command to the end of the first training step, and memory of rollout workers and lanes.

    python bench/startup.py [--repeats 5] [--lanes 1000 4096] [--only seconds memory lanes]

The command has a budget of one step, so that it ends after its first batch: its wall time, with start-up and shutdown,
is an upper bound of the time to the first training step. Memory is USS, which excludes shared memory such as the arena.
Shared memory is the sum of the shared blocks that a worker has mapped. The memory of a lane is the growth beyond 16
lanes, with CartPole, two workers and APPO's segments of 32 steps.
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
    """Return the wall time of a run that ends after its first batch."""
    command = Path(sys.executable).with_name("penstock")
    flags = "train appo --env CartPole-v1 --total-steps 1 --eval-interval 0 --run-dir None"
    began = time.monotonic()
    subprocess.run([str(command), *flags.split()], check=True, capture_output=True)
    return time.monotonic() - began


def worker_memory(inference: str) -> float:
    """Return the largest USS of a rollout worker, in MB."""
    me = psutil.Process()
    with penstock.APPO(env="CartPole-v1", inference=inference, run_dir=None, eval_interval=0) as algo:
        algo.train(20_000, quiet=True)
        workers = [p for p in me.children(recursive=True) if p.cmdline()[:1] and "penstock-rollout" in p.cmdline()[0]]
        return max(worker.memory_full_info().uss for worker in workers) / 1e6


def lane_memory(lanes: int) -> tuple[float, float]:
    """Return USS of a rollout worker of two, and the shared memory of the run, in bytes."""
    me = psutil.Process()
    settings = {"num_workers": 2, "num_envs_per_worker": lanes // 2, "batch_size": 32 * lanes, "num_epochs": 2}
    with penstock.APPO(env="CartPole-v1", run_dir=None, eval_interval=0, **settings) as algo:
        algo.train(8 * 32 * lanes, quiet=True)
        worker = next(p for p in me.children(recursive=True) if "penstock-rollout" in "".join(p.cmdline()[:1]))
        blocks = {}
        for line in Path(f"/proc/{worker.pid}/maps").read_text().splitlines():
            span, _, _, _, inode, *name = line.split(maxsplit=5)
            if name and name[0].startswith("/memfd:"):
                begin, end = (int(word, 16) for word in span.split("-"))
                blocks[inode] = max(blocks.get(inode, 0), end - begin)
        return worker.memory_full_info().uss, sum(blocks.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lanes", type=int, nargs="*", default=[1000, 4096])
    parser.add_argument("--only", nargs="+", default=["seconds", "memory", "lanes"])
    arguments = parser.parse_args()
    print(describe())
    if "seconds" in arguments.only:
        seconds = [first_step() for _ in range(arguments.repeats)]
        print(f"first training step: median {statistics.median(seconds):.1f} s, worst {max(seconds):.1f} s (mark: 4 s)")
    for inference in ("central", "local") if "memory" in arguments.only else ():
        print(f"rollout worker, {inference} inference: {worker_memory(inference):.0f} MB (mark: 12 MB, central)")
    if "lanes" in arguments.only:
        own, shared = lane_memory(16)
        print(f"16 lanes: {own / 1e6:.1f} MB in each of two workers, {shared / 1e6:.1f} MB shared")
        for lanes in arguments.lanes:
            more_own, more_shared = lane_memory(lanes)
            of_lane = 2 * (more_own - own) / (lanes - 16), (more_shared - shared) / (lanes - 16)
            print(
                f"{lanes:,} lanes: {more_own / 1e6:.1f} MB in each of two workers, {more_shared / 1e6:.1f} MB shared; "
                f"per lane {of_lane[0]:,.0f} bytes in a worker, {of_lane[1]:,.0f} shared"
            )


if __name__ == "__main__":
    main()
