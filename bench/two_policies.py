"""Cost of a second policy: two CartPoles as agents of one environment, with one policy for both or one for each.

    python bench/two_policies.py [--turns 5] [--seconds 10] [--num-workers N]

Output: agent steps learned from per second, measured in turns: the median of each, and the ratio. The mark is 0.9.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import penstock
from penstock.runs.machine import describe

ENVIRONMENT = f"{Path(__file__).parent / 'environments' / 'two_cartpoles.py'}:TwoCartPoles"


def rate(num_policies: int, seconds: float, num_workers: int | None) -> float:
    """Return the agent steps per second of a run after its first seconds."""
    with penstock.APPO(
        ENVIRONMENT, num_policies=num_policies, num_workers=num_workers, num_envs_per_worker=32, batch_size=2048,
        num_minibatches=1, total_steps=10**9, eval_interval=0, run_dir=None,
    ) as algo:  # fmt: skip
        algo.train(20_000, quiet=True)
        began, before = time.monotonic(), algo.status.steps
        algo.train(quiet=True, on_update=lambda _: time.monotonic() < began + seconds)
        return (algo.status.steps - before) / (time.monotonic() - began)


def main() -> None:
    """Measure in turns, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--turns", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=10.0)
    flags.add_argument("--num-workers", type=int)
    given = flags.parse_args()
    print(describe())
    rates: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(given.turns):
        for num_policies, found in rates.items():
            found.append(rate(num_policies, given.seconds, given.num_workers))
    for num_policies, found in rates.items():
        each = ", ".join(f"{value:,.0f}" for value in found)
        print(f"{num_policies} {'policy  ' if num_policies == 1 else 'policies'} {statistics.median(found):>9,.0f} "
              f"agent steps/s ({each})")  # fmt: skip
    print(f"ratio {statistics.median(rates[2]) / statistics.median(rates[1]):.2f} (mark: >= 0.9)")


if __name__ == "__main__":
    main()
