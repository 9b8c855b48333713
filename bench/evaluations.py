"""Cost of evaluations at their default interval: the same training with and without them, in turns.

    python bench/evaluations.py [--turns 4] [--work cartpole lunarlander pong]

Output: steps per second over the whole budget, the median of each and their ratio, and the evaluator's share of all
cores' time, which the live view shows as "evaluate". The mark is 0.97. The final evaluation follows training and is not
counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import penstock
from penstock.runs.machine import describe

WORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "cartpole": ("APPO", {"env": "CartPole-v1", "total_steps": 1_000_000}),
    "lunarlander": ("PPO", {"env": "LunarLander-v3", "total_steps": 200_000}),
    "pong": ("APPO", {"env": "ALE/Pong-v5", "preset": "atari", "total_steps": 40_000}),
}


def rate(algorithm: str, settings: dict[str, Any]) -> tuple[float, float]:
    """Return steps per second of a training, and the evaluator's mean share of all cores' time."""
    seen: list[tuple[float, int, float]] = []

    def look(status: Any) -> None:
        if status.steps < settings["total_steps"]:
            seen.append((time.monotonic(), status.steps, status.cores.get("evaluate", 0.0)))

    with getattr(penstock, algorithm)(**settings, run_dir=None, seed=1) as trainer:
        trainer.train(quiet=True, on_update=look)
    (began, first, _), (ended, last, _) = seen[0], seen[-1]
    return (last - first) / (ended - began), statistics.fmean(share for *_, share in seen)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    asked = parser.parse_args()
    print(describe())
    for work in asked.work:
        algorithm, settings = WORKS[work]
        found: dict[str, list[float]] = {"default": [], "none": []}
        shares = []
        for turn in range(2 * asked.turns):
            which = "default" if turn % 4 in (0, 3) else "none"
            its_rate, share = rate(algorithm, {**settings, **({"eval_interval": 0} if which == "none" else {})})
            found[which].append(its_rate)
            shares += [share] if which == "default" else []
        one, other = (statistics.median(rates) for rates in found.values())
        spread = ", ".join(f"{which} {min(rates):,.0f} to {max(rates):,.0f}" for which, rates in found.items())
        print(
            f"{work}: {one:,.0f} steps/s with evaluations, {other:,.0f} without, {one / other:.3f} x ({spread}); "
            f"evaluator {statistics.fmean(shares):.1%} of all cores' time",
            flush=True,
        )


if __name__ == "__main__":
    main()
