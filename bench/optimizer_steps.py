"""Time of an optimiser's step: Adam, and torch's Muon (matrices orthogonalised by five Newton-Schulz iterations).

    python bench/optimizer_steps.py [--width 64] [--steps 100]

The matrices are those of PPO's default networks, policy and value, for 8 observed numbers. Output: CPU time per step of
each optimiser, the median of five turns, in one thread. Muon needs torch 2.9.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch

from penstock.algorithms.arithmetic.optimizers import Eager, fused_adam, plain
from penstock.runs.machine import describe

TURNS = 5


class Muon(Eager, torch.optim.Muon):
    """Muon without torch's wrappers for ``torch.compile``."""

    step = plain(torch.optim.Muon.step)


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    width = arguments.width
    matrices = [torch.nn.Parameter(torch.randn(width, n)) for n in (8, width, 8, width)]
    for matrix in matrices:
        matrix.grad = torch.randn_like(matrix)
    optimizers = {"Adam": fused_adam(matrices), "Muon": Muon(matrices, weight_decay=0.0)}
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for _ in range(TURNS):
        for name, optimizer in optimizers.items():
            began = time.process_time()
            for _ in range(arguments.steps):
                optimizer.step()
            times[name].append(1e3 * (time.process_time() - began) / arguments.steps)
    print(describe())
    for name, turns in times.items():
        print(f"{name}: {statistics.median(turns):.2f} ms per step, from {min(turns):.2f} to {max(turns):.2f}")


if __name__ == "__main__":
    main()
