"""Value of stored states: R2D2 in a maze longer than its sequences, with stored states and with zeros.

    python bench/stored_state.py [--length 10] [--steps 40000] [--seeds 3] [--plot FILE] [FLAG=VALUE ...]

The maze is that of examples/memory.py: a sign at the entrance shows the side of the prize at the end. FLAG=VALUE are
settings of R2D2, such as ``sequence_length=6``. "zeros" unrolls every sequence from a state of zeros, with the same
burn-in. Output: the mean return of 200 episodes with the last weights.
"""

from __future__ import annotations

import argparse
import ast
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import penstock
from penstock.algorithms.r2d2 import R2D2
from penstock.runs.machine import describe


class TMaze(gymnasium.Env[np.ndarray, int]):
    """A corridor with a wall at its end; a sign at the entrance shows which way is right at the wall."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length: int = 10) -> None:
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Draw a side, and show the sign."""
        super().reset(seed=seed)
        self._prize, self._place = int(self.np_random.integers(2)), 0
        return np.array([2 * self._prize - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Walk on; at the wall the action decides."""
        is_at_wall = self._place == self._length
        reward = (1.0 if action == self._prize else -1.0) if is_at_wall else 0.0
        self._place += 1
        return np.array([0, self._place == self._length], np.float32), reward, is_at_wall, False, {}


class FromZeros(R2D2):
    """R2D2 that unrolls sequences from zeros instead of the stored states."""

    def memory_before(self, request: Any) -> dict[str, torch.Tensor]:
        return {"memory": torch.zeros_like(request.memory)}


def train(kind: type[R2D2], length: int, steps: int, seed: int, settings: dict[str, Any]) -> tuple[float, list[Any]]:
    """Train; return the score of the last weights, and the evaluations as (steps, mean return)."""
    curve: dict[int, float] = {}

    def look(status: Any) -> None:
        if status.eval_return is not None:
            curve[status.steps] = status.eval_return

    with penstock.Trainer(
        kind, TMaze, env_kwargs={"length": length}, seed=seed, total_steps=steps, run_dir=None, **settings
    ) as trainer:
        trainer.train(quiet=True, on_update=look)
        return trainer.evaluate(200).mean_return, list(curve.items())


def main() -> None:
    """Train and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("settings", nargs="*", metavar="FLAG=VALUE")
    flags.add_argument("--length", type=int, default=10)
    flags.add_argument("--steps", type=int, default=40_000)
    flags.add_argument("--seeds", type=int, default=3)
    flags.add_argument("--plot", type=Path, metavar="FILE")
    given = flags.parse_args()
    settings = {}
    for text in given.settings:
        name, _, value = text.partition("=")
        try:
            settings[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[name] = value
    print(describe(), settings)
    curves: dict[str, list[list[Any]]] = {"stored states": [], "zeros": []}
    for seed in range(1, given.seeds + 1):
        for (name, found), kind in zip(curves.items(), (R2D2, FromZeros), strict=True):
            began = time.monotonic()
            score, curve = train(kind, given.length, given.steps, seed, settings)
            found.append(curve)
            print(f"{name}, seed {seed}: {score:.2f}, {time.monotonic() - began:.0f} s", flush=True)
    if given.plot:
        import matplotlib.pyplot as plt

        figure, panel = plt.subplots(figsize=(7, 4), layout="constrained")
        for number, (name, found) in enumerate(curves.items()):
            for seed, curve in enumerate(found):
                panel.plot(*np.array(curve).T, color=f"C{number}", label=None if seed else name)
        panel.set(xlabel="steps", ylabel=f"mean return, corridor of {given.length}", ylim=(-1.05, 1.05))
        panel.legend()
        figure.savefig(given.plot)


if __name__ == "__main__":
    main()
