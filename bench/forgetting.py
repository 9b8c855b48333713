"""Forgetting of CLEAR and IMPALA: two tasks are trained in turn, and the return on the untrained one is measured.

    python bench/forgetting.py [--seeds 5] [--phase-steps 300000] [--plot FILE] [--write FILE]

The tasks are those of bench/environments/catch_tasks.py, which share observations and have opposite goals. Both
algorithms have the same settings, except for those that CLEAR adds. After each tenth of a phase, 200 episodes of both
tasks are played without exploration. Output: the fall of the return on the untrained task in each phase but the first,
the return on the trained task at the end of each phase, and the share of IMPALA's drop that CLEAR avoids.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import penstock
from penstock.engine.trainer import Trainer
from penstock.envs.spec import EnvSpec
from penstock.play.scoring import evaluate_models
from penstock.runs.machine import describe

PLACE = f"{Path(__file__).parent / 'environments' / 'catch_tasks.py'}:CatchTasks"
PHASES, LOOKS, EPISODES = 4, 10, 200
SETTINGS: dict[str, Any] = {
    "num_workers": 2, "num_envs_per_worker": 16, "segment_length": 11, "batch_size": 704, "learning_rate": 1e-3,
    "learning_rate_schedule": "constant", "normalize_observations": False, "eval_interval": 0, "entropy_coef": 0.02,
}  # fmt: skip
KINDS = {
    "impala": (penstock.IMPALA, {"batch_size": SETTINGS["batch_size"] // 2}),
    "clear": (penstock.CLEAR, {"replay": ["queue:1/2", "reservoir:1/2,capacity=5000"], "save_replay": True}),
}


def looked_at(trainer: Trainer) -> list[float]:
    """Return the mean return on each task with the current weights."""
    trainer.get_parameters()  # loads them into the model
    model = trainer._policies[0].model
    return [
        evaluate_models([model], EnvSpec.resolve(PLACE, {"task": task}, "make"), episodes=EPISODES)[0].mean_return
        for task in (0, 1)
    ]


def train(kind: str, seed: int, phase_steps: int, run_dir: Path) -> list[list[float]]:
    """Train on the tasks in turn; return (step, return on task 0, return on task 1) after each look."""
    algorithm, own = KINDS[kind]
    found: list[list[float]] = []
    for phase in range(PHASES):
        env = {"env_kwargs": {"task": phase % 2}}
        budget = {"seed": seed, "run_dir": str(run_dir), "total_steps": 2 * PHASES * phase_steps}
        settings = {**SETTINGS, **own, **env, **budget}
        with Trainer.resume(run_dir, **env) if phase else algorithm(PLACE, **settings) as trainer:
            for look in range(LOOKS):
                goal = phase_steps * phase + phase_steps * (look + 1) // LOOKS
                trainer.train(max(1, goal - trainer.status.steps), quiet=True)
                found.append([trainer.status.steps, *looked_at(trainer)])
    return found


def drops(looks: list[list[float]]) -> list[float]:
    """Return the fall of the return on the untrained task, in each phase but the first."""
    return [
        looks[phase * LOOKS - 1][1 + (phase - 1) % 2] - looks[(phase + 1) * LOOKS - 1][1 + (phase - 1) % 2]
        for phase in range(1, PHASES)
    ]


def ends(looks: list[list[float]]) -> list[float]:
    """Return the returns on the trained task at the end of each phase."""
    return [looks[(phase + 1) * LOOKS - 1][1 + phase % 2] for phase in range(PHASES)]


def main() -> None:
    """Train and print."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--seeds", type=int, default=5)
    flags.add_argument("--phase-steps", type=int, default=300_000)
    flags.add_argument("--plot", type=Path, metavar="FILE")
    flags.add_argument("--write", type=Path, metavar="FILE", help="write every look as a line of JSON")
    given = flags.parse_args()
    print(describe())
    curves: dict[str, list[list[list[float]]]] = {kind: [] for kind in KINDS}
    for seed in range(1, given.seeds + 1):
        for kind, found in curves.items():
            with tempfile.TemporaryDirectory() as folder:
                found.append(train(kind, seed, given.phase_steps, Path(folder) / "run"))
            fallen, learned = (", ".join(f"{x:.2f}" for x in each) for each in (drops(found[-1]), ends(found[-1])))
            print(f"{kind} seed {seed}: drops {fallen}; returns on the trained task {learned}", flush=True)
    if given.write:
        given.write.write_text("".join(json.dumps({"kind": kind, "looks": c}) + "\n" for kind, c in curves.items()))
    means = {kind: statistics.mean(drop for looks in found for drop in drops(looks)) for kind, found in curves.items()}
    avoided = 1.0 - means["clear"] / means["impala"]
    print(f"mean drop: IMPALA {means['impala']:.2f}, CLEAR {means['clear']:.2f}; CLEAR avoids {avoided:.0%}")
    if given.plot:
        draw(curves, given.phase_steps, given.plot)


def draw(curves: dict[str, list[list[list[float]]]], phase_steps: int, file: Path) -> None:
    """Draw the return on each task over steps, one panel for each task."""
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panels = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
    for task, panel in enumerate(panels):
        for phase in range(PHASES):
            if phase % 2 == task:
                panel.axvspan(phase * phase_steps, (phase + 1) * phase_steps, color="#eef3f7")
        for (kind, found), colour in zip(curves.items(), ("#c2552d", "#2f6f9f"), strict=True):
            looks = np.array(found)
            for seed in looks:
                panel.plot(seed[:, 0], seed[:, 1 + task], color=colour, alpha=0.25, linewidth=1)
            means = looks.mean(0)
            panel.plot(means[:, 0], means[:, 1 + task], color=colour, label=kind.upper(), linewidth=2)
        panel.set_ylabel(f"return, task {task + 1}")
        panel.set_ylim(-1.05, 1.05)
    panels[0].legend(loc="lower right")
    panels[1].set_xlabel("steps (shaded: the task is trained)")
    figure.savefig(file)


if __name__ == "__main__":
    main()
