"""Gain from asynchrony: TD3 with steps that cost as much as its updates, in processes and in the serial backend.

    python bench/asynchrony.py [--steps 2000] [--repeats 3]

HalfCheetah-v5 at one update per step on two cores, one torch thread: one rollout worker with one lane, networks of
256x256, batches of 256. An update is timed first, and every step of the environment then takes the same CPU time.
Running two equal halves in parallel is at best twice as fast; choosing actions and writing transitions are additional
work. Filling the buffer is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import dataclass
from typing import Any

import gymnasium
from updates import WORKS, learning

import penstock
from penstock.runs.machine import describe

MARK = 1.7
SETTINGS: dict[str, Any] = {
    "num_workers": 1,
    "hidden_sizes": (256, 256),
    "batch_size": 256,
    "learning_rate": 3e-4,
    "learning_starts": 500,
    "buffer_size": 100_000,
    "total_steps": 10**9,
    "eval_interval": 0,
    "run_dir": None,
}
WARM_UP = 200  # steps beyond those that fill the buffer


class SlowHalfCheetah(gymnasium.Wrapper):
    """HalfCheetah-v5 whose steps take at least `seconds` of CPU time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(gymnasium.make("HalfCheetah-v5"))
        self._seconds = seconds

    def step(self, action: Any) -> tuple:
        """Step, and compute for the rest of the CPU time."""
        end = time.thread_time() + self._seconds
        answer = self.env.step(action)
        while time.thread_time() < end:
            pass
        return answer


@dataclass(frozen=True)
class Rates:
    """Rates of a backend."""

    steps: float
    updates: float


def measure(backend: str, steps: int, seconds_per_step: float) -> Rates:
    """Train for `steps` after a warm-up; print the roles' use of the last part of that time."""
    env: dict[str, Any] = {"env": SlowHalfCheetah, "env_kwargs": {"seconds": seconds_per_step}}
    with penstock.TD3(**env, **SETTINGS, backend=backend) as algo:
        algo.train(SETTINGS["learning_starts"] + WARM_UP, quiet=True)
        began, before = time.monotonic(), algo.status
        algo.train(steps, quiet=True)
        seconds, after = time.monotonic() - began, algo.status
    rates = Rates((after.steps - before.steps) / seconds, (after.updates - before.updates) / seconds)
    load = os.getloadavg()[0]
    print(f"{backend:<6} {rates.steps:>6,.0f} steps/s {rates.updates:>6,.0f} updates/s   load {load:.1f}", flush=True)
    if backend == "local":  # in the serial backend a role's clock also runs while others work
        for role in after.roles:
            print("      ", role.name, ", ".join(f"{name} {share:.0%}" for name, share in role.activities.items()))
    return rates


def main() -> None:
    """Time an update, measure both backends in turn, print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    print(describe())
    seconds = learning(WORKS["td3"], SETTINGS["buffer_size"]).cpu_seconds_per_update()
    print(f"an update takes {1e3 * seconds:.2f} ms of CPU time, and so does a step", flush=True)
    found: dict[str, list[Rates]] = {"serial": [], "local": []}
    for _ in range(arguments.repeats):
        for backend, rates in found.items():
            rates.append(measure(backend, arguments.steps, seconds))
    for name in ("steps", "updates"):
        serial, local = (statistics.median(getattr(r, name) for r in found[backend]) for backend in ("serial", "local"))
        print(f"median {name}/s: serial {serial:,.0f}, local {local:,.0f}: {local / serial:.2f}x (mark: {MARK}x)")


if __name__ == "__main__":
    main()
