"""Distance of trained policies from the best action of a one-step task, over boxes of several ranges and seeds.

    python bench/bounded_actions.py [ALGORITHM ...] [--boxes BOX ...] [--seeds N] [--first-seed N] [--steps N]
                                    [--actions squashed | clipped] [--log-std-lr-scale X] [--sb3 X/bin/python]
                                    [--history FILE] [--table]

The reward is minus the squared distance from the best action (bench/environments/one_step.py). Distances are in units
of half the range; over several dimensions they are root mean squares. After training the policy plays its most
probable action. A policy at the bound nearest to the best action has a distance of 0.25 in the box "unit".

Runs are serial, with two workers and otherwise default settings. Every run is appended to the history with its machine
and commit; runs of this commit in it are not repeated, so that an interrupted bench continues. ``--sb3`` also
trains PPO and A2C of Stable-Baselines3, with its defaults (python -m venv X; X/bin/pip install stable-baselines3).
``--table`` only prints the history.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from environments.one_step import OneStep
from runs_file import RunsFile

from penstock import Trainer
from penstock.algorithms import load_algorithm
from penstock.runs.machine import describe, machine_facts

ALGORITHMS = ("ppo", "appo", "impala", "a2c", "a3c")
BOXES: dict[str, dict[str, list[float]]] = {
    "unit": {"low": [-1.0], "high": [1.0], "best": [0.75]},
    "shifted": {"low": [-1.0], "high": [3.0], "best": [-0.75]},
    "large": {"low": [0.0], "high": [100.0], "best": [0.9]},
    "small": {"low": [-0.001], "high": [0.002], "best": [0.5]},
    "four": {"low": [-1.0, -1.0, 0.0, -0.001], "high": [1.0, 3.0, 100.0, 0.002], "best": [0.75, -0.75, 0.5, 0.0]},
}
PEER = Path(__file__).parent / "peers" / "sb3_one_step.py"
PEER_ALGORITHMS = ("ppo", "a2c")
HISTORY = Path(__file__).parent / "history" / "bounded_actions.jsonl"


def train(algorithm: str, box: str, seed: int, steps: int, settings: dict[str, Any]) -> dict[str, float]:
    """Train with Penstock; return the distance of the most probable action, and seconds."""
    began = time.monotonic()
    with Trainer(
        load_algorithm(algorithm), env=OneStep, env_kwargs=BOXES[box], seed=seed, total_steps=steps, run_dir=None,
        backend="serial", num_workers=2, eval_interval=0, **settings,
    ) as trainer:  # fmt: skip
        trainer.train(quiet=True)
        distance = math.sqrt(-trainer.evaluate(1).mean_return)
    return {"distance": round(distance, 5), "seconds": round(time.monotonic() - began, 1)}


def train_peer(python: Path, algorithm: str, box: str, seed: int, steps: int) -> dict[str, float]:
    """Train with Stable-Baselines3; return the same."""
    ran = subprocess.run(
        [python, PEER, algorithm, json.dumps(BOXES[box]), str(seed), str(steps)], capture_output=True, text=True
    )
    if ran.returncode:
        sys.exit(f"Stable-Baselines3 failed:\n{ran.stderr}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def measure(arguments: argparse.Namespace, history: RunsFile) -> None:
    """Make the runs of this commit that the history lacks."""
    facts = machine_facts()
    asked = {"continuous_actions": arguments.actions, "log_std_lr_scale": arguments.log_std_lr_scale}
    settings = {name: value for name, value in asked.items() if value is not None}
    for algorithm in arguments.algorithms or ALGORITHMS:
        for box in arguments.boxes:
            for library in ("penstock", "sb3"):
                if library == "sb3" and (arguments.sb3 is None or algorithm not in PEER_ALGORITHMS):
                    continue
                for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                    own = settings if library == "penstock" else {}
                    what = {"library": library, "algorithm": algorithm, "box": box, "seed": seed,
                            "steps": arguments.steps, "settings": own}  # fmt: skip
                    known = history.find(**what)
                    if known and (library == "sb3" or known["machine"]["commit"] == facts["commit"]):
                        continue
                    if library == "sb3":
                        found = train_peer(arguments.sb3, algorithm, box, seed, arguments.steps)
                    else:
                        found = train(algorithm, box, seed, arguments.steps, settings)
                    history.add({**what, **found, "machine": facts})
                    print(f"{library} {algorithm} {box} seed {seed}: {found}", file=sys.stderr, flush=True)


def table(runs: Iterable[dict[str, Any]]) -> str:
    """Return Markdown: a row per library, algorithm and settings; median and largest distance of the seeds by box."""
    newest = {
        (run["library"], run["algorithm"], json.dumps(run["settings"]), run["steps"], run["box"], run["seed"]): run
        for run in runs
    }
    cells: dict[tuple[Any, ...], dict[str, list[float]]] = {}
    for (*row, box, _), run in newest.items():
        cells.setdefault(tuple(row), {}).setdefault(box, []).append(run["distance"])
    header = f"| library | algorithm | settings | steps | seeds | {' | '.join(BOXES)} |"
    lines = [header, "|---" * (5 + len(BOXES)) + "|"]
    for (library, algorithm, settings, steps), found in cells.items():
        shown = [
            f"{statistics.median(found[box]):.3f} / {max(found[box]):.3f}" if box in found else "" for box in BOXES
        ]
        seeds = max(map(len, found.values()))
        lines.append(f"| {library} | {algorithm} | {settings} | {steps} | {seeds} | {' | '.join(shown)} |")
    return "\n".join(lines)


def main() -> None:
    """Parse the command, run what is missing, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithms", nargs="*", metavar="ALGORITHM", help=f"default: {', '.join(ALGORITHMS)}")
    parser.add_argument("--boxes", nargs="+", choices=BOXES, default=list(BOXES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=51_200)
    parser.add_argument("--actions", choices=("squashed", "clipped"), help="continuous_actions, if not the default")
    parser.add_argument("--log-std-lr-scale", type=float, help="learning rate of the deviation relative to others")
    parser.add_argument("--sb3", type=Path, help="the Python of an environment that has Stable-Baselines3")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    history = RunsFile(arguments.history)
    if not arguments.table:
        measure(arguments, history)
    print(describe())
    print("Median / largest distance of the seeds from the best action, in units of half the range.")
    print(table(history.runs))


if __name__ == "__main__":
    main()
