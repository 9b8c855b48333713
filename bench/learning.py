"""Real trainings by the real commands, several seeds, judged on fresh episodes; prints a table per task.

    python bench/learning.py cartpole [--seeds 5]      seconds from the command to the target, defaults only
    python bench/learning.py lunarlander [--seeds 3]   final policy after 2M steps, preset lunarlander
    python bench/learning.py pendulum [--seeds 5]      final policy after 150k steps, preset pendulum
    python bench/learning.py pong [--seeds 1]          20 minutes, preset atari; --plot FILE draws the curve
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.machine import describe


@dataclass(frozen=True)
class Task:
    """A training and how it is judged."""

    train: str
    checkpoint: str
    episodes: int
    seeds: int
    mark: str


TASKS = {
    "cartpole": Task(
        "appo --env CartPole-v1 --target-return 475", "best", 100, 5,
        "solved in a median of 10 s and at most 20 s, within 300k steps; 100 episodes >= 475",
    ),
    "lunarlander": Task("appo --env LunarLander-v3 --preset lunarlander", "latest", 100, 3, "100 episodes >= 200"),
    "pendulum": Task("ppo --env Pendulum-v1 --preset pendulum", "latest", 100, 5, "100 episodes >= -200"),
    "pong": Task(
        "appo --env ALE/Pong-v5 --preset atari --max-seconds 1200", "latest", 10, 1, "clearly above -21"
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """One training."""

    seed: int
    seconds: float
    steps: int
    exit_code: int
    mean_return: float
    std_return: float


def measure(task: Task, seed: int, run_dir: Path) -> Outcome:
    """Train and judge; the seconds are those from starting the command to its end."""
    began = time.monotonic()
    train = penstock("train", *task.train.split(), "--seed", str(seed), "--run-dir", str(run_dir))
    seconds = time.monotonic() - began
    score = penstock("eval", str(run_dir), "--episodes", str(task.episodes), "--checkpoint", task.checkpoint)
    found = re.search(r"mean return (\S+) \+/- (\S+) over", score.stdout)
    steps = re.search(r"after ([\d,]+) steps", train.stdout)
    if found is None or steps is None:
        printed = train.stdout + train.stderr + score.stdout + score.stderr
        sys.exit(f"the commands did not print what was expected:\n{printed}")
    return Outcome(
        seed, seconds, int(steps[1].replace(",", "")), train.returncode, float(found[1]), float(found[2])
    )


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of the penstock that is installed beside this Python."""
    command = Path(sys.executable).with_name("penstock")
    return subprocess.run([str(command), *arguments], capture_output=True, text=True)


def plot(run_dir: Path, title: str, target: Path) -> None:
    """Draw return over minutes and steps, of training and evaluation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    curves = {"episode/mean_return": "training, last 100 episodes", "evaluation/mean_return": "evaluation"}
    for key, label in curves.items():
        points = [(line["steps"] / 1e6, line[key]) for line in lines if line.get(key) is not None]
        axes.plot(*zip(*points, strict=True), label=label, marker="o" if key.startswith("eval") else None, markersize=3)
    minutes = lines[-1]["seconds"] / 60
    axes.set(title=f"{title}: {minutes:.0f} minutes", xlabel="million steps", ylabel="return")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(target)


def main() -> None:
    """Parse the command, run the trainings, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    task = TASKS[arguments.task]
    print(describe())
    print(f"penstock train {task.train}  (mark: {task.mark})")
    print(f"{'seed':>4} {'seconds':>8} {'steps':>10} {'exit':>4}  return over {task.episodes} fresh episodes")
    outcomes = []
    with tempfile.TemporaryDirectory() as directory:
        for seed in range(1, (arguments.seeds or task.seeds) + 1):
            run_dir = Path(directory) / str(seed)
            o = measure(task, seed, run_dir)
            outcomes.append(o)
            score = f"{o.mean_return:.1f} +/- {o.std_return:.1f}"
            print(f"{o.seed:>4} {o.seconds:>8.1f} {o.steps:>10,} {o.exit_code:>4}  {score}", flush=True)
            if arguments.plot:
                plot(run_dir, task.train, arguments.plot)
    seconds = [o.seconds for o in outcomes]
    print(
        f"seconds: median {statistics.median(seconds):.1f}, worst {max(seconds):.1f}; "
        f"return: lowest {min(o.mean_return for o in outcomes):.1f}"
    )


if __name__ == "__main__":
    main()
