"""Returns of Ape-X DPG and DDPG after equal time, in turns, over several seeds.

    python bench/equal_time.py [--tasks pendulum cartpole-swingup] [--seconds N] [--seeds 3] [--write FILE]

Each trains for N seconds of wall-clock time, including start-up, with the same networks and the same number of rollout
workers. Output: the mean return of 20 episodes of the final policy without exploration. ``cartpole-swingup`` is
DeepMind Control's, through shimmy (the extra ``dmcontrol``); 1,000 is its best return. FILE of ``--write`` grows by a
line of JSON per run: runs in it are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from runs_file import RunsFile

import penstock
from penstock.runs.machine import describe

DM_CONTROL: dict[str, Any] = {
    "hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 5e-4, "learning_rate_schedule": "constant",
    "learning_starts": 2_000, "num_workers": 2,
}  # fmt: skip
TASKS: dict[str, tuple[str, dict[str, Any], float]] = {
    "pendulum": ("Pendulum-v1", {"preset": "pendulum"}, 8.0),
    "cartpole-swingup": ("shimmy:dm_control/cartpole-swingup-v0", DM_CONTROL, 240.0),
}
ALGORITHMS = {"Ape-X DPG": "ApeXDPG", "DDPG": "DDPG"}


def train(task: str, algorithm: str, seconds: float, seed: int) -> dict[str, Any]:
    """Train for some seconds; return the progress and the score of the final policy."""
    env, settings, _ = TASKS[task]
    face = getattr(penstock, ALGORITHMS[algorithm])
    with face(
        env, **settings, seed=seed, max_seconds=seconds, total_steps=10**9, eval_interval=0, run_dir=None
    ) as algo:
        result = algo.train(quiet=True)
        score = algo.evaluate(episodes=20).mean_return
        return {
            "task": task, "algorithm": algorithm, "seconds": seconds, "seed": seed, "steps": result.steps,
            "updates": algo.status.updates, "return": score,
        }  # fmt: skip


def main() -> None:
    """Train the missing runs, in turns, and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    flags.add_argument("--seconds", type=float, help="instead of the task's own")
    flags.add_argument("--seeds", type=int, default=3)
    flags.add_argument("--write", type=Path, metavar="FILE")
    given = flags.parse_args()
    print(describe())
    measured = RunsFile(given.write)
    for task in given.tasks:
        seconds = given.seconds or TASKS[task][2]
        for seed in range(1, given.seeds + 1):
            for algorithm in ALGORITHMS:
                if measured.find(task=task, algorithm=algorithm, seconds=seconds, seed=seed):
                    continue
                run = train(task, algorithm, seconds, seed)
                measured.add(run)
                print(f"{task} {algorithm} seed {seed}: {run['return']:.1f} after {run['steps']:,} steps and "
                      f"{run['updates']:,} updates", flush=True)  # fmt: skip
        for algorithm in ALGORITHMS:
            key = (task, algorithm, seconds)
            found = [r["return"] for r in measured.runs if (r["task"], r["algorithm"], r["seconds"]) == key]
            print(f"{task}, {seconds:g} s, {algorithm}: median {statistics.median(found):.1f} "
                  f"({min(found):.1f} to {max(found):.1f})")  # fmt: skip


if __name__ == "__main__":
    main()
