"""Final policies of every algorithm with all defaults on small tasks that it can play, next to Stable-Baselines3.

    python bench/defaults.py [--tasks TASK ...] [--algorithms NAME ...] [--seeds N] [--sb3 X/bin/python] [--table]

Each task has a budget of steps for algorithms over fresh segments, and a smaller one for those over replay, whose
updates cost more. Nothing else is set. The final weights then play fresh episodes, 100 or more, with the most probable
actions, and as many with sampled ones. ``--sb3`` also trains with Stable-Baselines3, with its defaults and the same
budget, where it has the algorithm (python -m venv X; X/bin/pip install stable-baselines3
gymnasium[mujoco,box2d,toy-text]).

Every run is appended to bench/history/defaults.jsonl. Runs of this commit in the file are not repeated, so that an
interrupted bench continues, and several commands with different tasks can write at the same time. ``--table`` only
prints the file: one row per task and algorithm, the lowest and the median of the seeds' mean returns.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium as gym
from final_policies import Training, measure
from runs_file import RunsFile

from penstock.algorithms import load_algorithm
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.registry import ALGORITHMS
from penstock.runs.machine import describe

HISTORY = Path(__file__).parent / "history" / "defaults.jsonl"
PEERS = ("ppo", "a2c", "dqn", "ddpg", "td3", "sac")
"""Algorithms of Stable-Baselines3."""


@dataclass(frozen=True)
class Task:
    """Environment with the budgets of its trainings.

    Attributes
    ----------
    fresh, replayed
        Steps of algorithms over fresh segments, and of those over replay.
    best
        Largest possible mean return, or the one from which the task counts as solved.
    env_kwargs
        Arguments of the environment.
    episodes
        Fresh episodes that each policy plays in each way: many where returns are mostly chance.
    """

    fresh: int
    replayed: int
    best: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    episodes: int = 100


TASKS = {
    "FrozenLake-v1": Task(100_000, 50_000, "0.74, optimal", episodes=1_000),
    "Taxi-v4": Task(300_000, 100_000, "7.9, optimal"),
    "CliffWalking-v1": Task(100_000, 50_000, "-13, optimal", {"max_episode_steps": 200}),
    "Blackjack-v1": Task(100_000, 50_000, "-0.05, optimal", episodes=10_000),
    "Acrobot-v1": Task(150_000, 50_000, "-100, threshold"),
    "MountainCar-v0": Task(300_000, 100_000, "-110, threshold"),
    "MountainCarContinuous-v0": Task(150_000, 20_000, "90, threshold"),
    "InvertedPendulum-v5": Task(150_000, 15_000, "1000, largest"),
    "Reacher-v5": Task(300_000, 20_000, "-3.75, threshold"),
    "BipedalWalker-v3": Task(1_000_000, 50_000, "300, threshold"),
}


def spaces_of(task: str) -> tuple[str, bool]:
    """Return the kind of a task's actions, "discrete" or "continuous", and whether the peer reads its observations."""
    env = gym.make(task)
    try:
        kind = "discrete" if isinstance(env.action_space, gym.spaces.Discrete) else "continuous"
        return kind, not isinstance(env.observation_space, gym.spaces.Tuple)
    finally:
        env.close()


def trainings(tasks: list[str], algorithms: list[str]) -> dict[str, Training]:
    """Return the trainings of all algorithms that can play each task, by "TASK NAME"."""
    found = {}
    for task in tasks:
        kind, is_for_peer = spaces_of(task)
        for name in algorithms:
            algorithm = load_algorithm(name)
            if kind not in algorithm.actions:
                continue
            settings = {
                "total_steps": TASKS[task].replayed if issubclass(algorithm, ReplayAlgorithm) else TASKS[task].fresh,
                "env_kwargs": TASKS[task].env_kwargs,
            }
            peer = name if is_for_peer and name in PEERS else None
            found[f"{task} {name}"] = Training(name, task, 3, settings, peer, episodes=TASKS[task].episodes)
    return found


def table(records: list[dict[str, Any]]) -> str:
    """Return Markdown: a row per task and algorithm with the lowest and the median return, ours and the peer's."""
    newest = {(r["training"], r["library"], r["seed"]): r for r in records}
    rows: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for (training, library, _), record in newest.items():
        rows[training][library].append(record)
    lines = [
        "| task | algorithm | steps | seeds | deterministic | sampled | Stable-Baselines3, deterministic | sampled |",
        "|---|---|---|---|---|---|---|---|",
    ]
    order = [f"{task} {name}" for task in TASKS for name in ALGORITHMS]
    for training in (each for each in order if each in rows):
        task, name = training.split()
        own = rows[training].get("penstock", [])
        cells = [_scores(rows[training].get(library, []), actions)
                 for library in ("penstock", "sb3") for actions in ("deterministic", "sampled")]  # fmt: skip
        steps = f"{(own or rows[training]['sb3'])[0]['steps']:,}"
        lines.append(f"| {task} | {name} | {steps} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _scores(found: list[dict[str, Any]], actions: str) -> str:
    means = [record["final"][actions]["mean"] for record in found]
    return f"{min(means):.4g} / {statistics.median(means):.4g}" if means else ""


def main() -> None:
    """Train the missing runs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sb3", type=Path, help="the Python of an environment that has Stable-Baselines3")
    parser.add_argument("--peer-only", action="store_true", help="run nothing but Stable-Baselines3")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    history = RunsFile(given.history)
    if not given.table:
        measure(trainings(given.tasks, given.algorithms), given.seeds, given.sb3, history, peer_only=given.peer_only)
    print(describe())
    best = "; ".join(f"{task} {TASKS[task].best}" for task in given.tasks)
    print(f"Lowest / median of the seeds' mean returns; best: {best}.")
    chosen = {f"{task} {name}" for task in given.tasks for name in given.algorithms}
    print(table([record for record in history.runs if record["training"] in chosen]))


if __name__ == "__main__":
    main()
