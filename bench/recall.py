"""Recall beyond the end of a segment, by the number of updates: PPO, APPO, IMPALA and A2C with a GRU.

    python bench/recall.py [CELL ...] [--seeds N] [--first N] [--history FILE] [--table]

An episode shows a sign, and asks for it three steps later. Segments are two steps long, so that no gradient reaches
from the answer to the sign; only the memory state does. Chance is 0.5. All other settings are defaults. A row shows the
share of right answers over 200 episodes, for each seed. Runs are serial, hence repeatable.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from runs_file import RunsFile

from penstock import Trainer
from penstock.algorithms import load_algorithm
from penstock.runs.machine import describe, machine_facts
from penstock.runs.status import Status

LENGTH = 4
HISTORY = Path(__file__).parent / "history" / "recall.jsonl"
STEPS = 8_192
CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo": ("ppo", {"num_envs_per_worker": 32, "batch_size": 64}),
    "ppo, one epoch": ("ppo", {"num_envs_per_worker": 32, "batch_size": 64, "num_epochs": 1}),
    "appo": ("appo", {"batch_size": 64}),
    "appo, two epochs": ("appo", {"batch_size": 64, "num_epochs": 2}),
    "impala, batches of 128": ("impala", {"batch_size": 128}),
    "impala, batches of 32": ("impala", {"batch_size": 32, "num_envs_per_worker": 8}),
    "impala, batches of 128, four times the steps": ("impala", {"batch_size": 128, "total_steps": 4 * STEPS}),
    "a2c, 32 lanes": ("a2c", {"num_envs_per_worker": 32}),
    "a2c, 8 lanes": ("a2c", {"num_envs_per_worker": 8}),
    "a2c, 32 lanes, four times the steps": ("a2c", {"num_envs_per_worker": 32, "total_steps": 4 * STEPS}),
}


class Recall(gymnasium.Env[Any, Any]):
    """A sign, -1 or 1, at the first step; the last action is worth 1 if it is that of the sign."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Show a sign."""
        super().reset(seed=seed)
        self._sign, self._time = int(self.np_random.integers(2)), 0
        return np.array([2 * self._sign - 1, 0], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Show nothing, and at the last step that an answer is due."""
        is_over = self._time == LENGTH - 1
        reward = float(is_over and action == self._sign)
        self._time += 1
        return np.array([0, self._time == LENGTH - 1], np.float32), reward, is_over, False, {}


def train(cell: str, seed: int) -> dict[str, Any]:
    """Train; return the share of right answers, and the updates made."""
    algorithm, settings = CELLS[cell]
    common = {"segment_length": 2, "memory": "gru", "memory_size": 32, "hidden_sizes": (32,), "total_steps": STEPS}
    with Trainer(
        load_algorithm(algorithm), env=Recall, backend="serial", num_workers=1, seed=seed, eval_interval=0,
        run_dir=None, **{**common, **settings},
    ) as trainer:  # fmt: skip
        seen: list[Status] = []
        trainer.train(quiet=True, on_update=seen.append)
        return {"steps": seen[-1].steps, "updates": seen[-1].updates, "right": trainer.evaluate(200).mean_return}


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: a row for each cell, with the newest run of each seed."""
    newest = {(run["cell"], run["seed"]): run for run in runs}
    lines = ["| algorithm | steps | updates | right answers, by seed |", "|---|---|---|---|"]
    for cell in CELLS:
        found = [run for (name, _), run in sorted(newest.items()) if name == cell]
        if found:
            right = ", ".join(f"{run['right']:.2f}" for run in found)
            lines.append(f"| {cell} | {found[0]['steps']:,} | {found[0]['updates']:,} | {right} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help=", ".join(CELLS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    history, facts = RunsFile(arguments.history), machine_facts()
    wanted = [] if arguments.table else arguments.cells or list(CELLS)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        for cell in wanted:
            if history.find(cell=cell, seed=seed) is None:
                history.add({"cell": cell, "seed": seed, **train(cell, seed), "machine": facts})
                print({key: value for key, value in history.runs[-1].items() if key != "machine"}, file=sys.stderr)
    print(describe())
    print(table(history.runs))


if __name__ == "__main__":
    main()
