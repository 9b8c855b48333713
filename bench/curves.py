"""Curves of groups of trainings by ``penstock multirun``, with the returns of their final policies.

    python bench/curves.py [GROUP ...] [--runs DIRECTORY] [--jobs N] [--seeds N] [--only ENV ...] [--no-train] [--table]

A group is some algorithms on some environments, with a budget and seeds from 1 on. The runs are in DIRECTORY/GROUP
(default: runs), so that repeating the command skips finished runs and resumes the others. The final weights of each
finished run then play fresh episodes, with the most probable actions and with sampled ones. The returns go to
bench/history/curves.jsonl, and evaluations and settings of the run to bench/history/runs/GROUP (see keep_runs.py).
``--no-train`` only scores and keeps the finished runs of DIRECTORY, ``--table`` only prints the file.

    control       SAC beside XQC and FlashSAC on Hopper, Walker2d and HalfCheetah, 300,000 steps
    control-small the same on InvertedDoublePendulum, Reacher and Pusher
    dm-control    the same on four tasks of DeepMind Control (needs the extra dmcontrol)
    mujoco        PPO and APPO on five robots, 1,000,000 steps, preset mujoco (needs the extra mujoco)
    bipedal       PPO on BipedalWalker, 5,000,000 steps
    minatar       value methods and actor-critics on the five games of MinAtar, 1,000,000 steps, preset minatar
    atari         PPO, APPO, IMPALA and PQN on Pong and Breakout, 10,000,000 frames, preset atari
    carracing     PPO with an LSTM on CarRacing
    vizdoom       APPO on VizDoom's basic task, preset vizdoom
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keep_runs
import numpy as np
from runs_file import RunsFile

from penstock.play.scoring import evaluate_run
from penstock.runs.lookup import resolve_checkpoint
from penstock.runs.machine import describe
from penstock.runs.reading import RecordedRun, find_runs
from penstock.studies.statistics import interquartile_mean, interval

HISTORY = Path(__file__).parent / "history" / "curves.jsonl"


@dataclass(frozen=True)
class Group:
    """Trainings that are drawn and tabled together.

    Attributes
    ----------
    requests
        Algorithms with their settings, as ``penstock multirun`` reads them.
    envs
        Ids of the environments.
    steps, seeds
        Budget and number of seeds of each training.
    episodes
        Number of episodes that a final policy plays in each way.
    frames
        Frames of the simulator per step, by environment; 1 where none is given.
    published
        Published results by environment: the text of a table's cell, with its source.
    """

    requests: tuple[str, ...]
    envs: tuple[str, ...]
    steps: int
    seeds: int = 3
    episodes: int = 50
    frames: dict[str, int] = field(default_factory=dict)
    published: dict[str, str] = field(default_factory=dict)


ZOO = "[Zoo](https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md)"
TIANSHOU = "[Tianshou](https://github.com/thu-ml/tianshou/tree/master/examples/mujoco)"
SIMBA = "[2502.15280](https://arxiv.org/abs/2502.15280)"
DREAMER = "[2301.04104](https://arxiv.org/abs/2301.04104)"
CLEANRL = "[CleanRL](https://docs.cleanrl.dev/rl-algorithms/ppo/)"
LOCOMOTION = {"HalfCheetah-v5": 5, "Hopper-v5": 4, "Walker2d-v5": 4, "Ant-v5": 5, "Humanoid-v5": 5}
CONTROL = ("sac --preset mujoco", "xqc --learning-starts 5000", "flashsac --learning-starts 10000")

GROUPS = {
    "control": Group(CONTROL, ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5"), 300_000, frames=LOCOMOTION),
    "control-small": Group(CONTROL, ("InvertedDoublePendulum-v5", "Reacher-v5", "Pusher-v5"), 30_000),
    "dm-control": Group(
        CONTROL, tuple(f"dm_control/{task}-v0" for task in ("cheetah-run", "walker-run", "hopper-hop", "finger-spin")),
        300_000,
        published={
            "dm_control/cheetah-run-v0": f"SAC 805, SimbaV2 920 at 1M ({SIMBA})",
            "dm_control/walker-run-v0": f"SAC 622, SimbaV2 817 at 1M ({SIMBA})",
            "dm_control/hopper-hop-v0": f"SAC 251, SimbaV2 291 at 1M ({SIMBA})",
            "dm_control/finger-spin-v0": f"D4PG 821, DreamerV3 936 at 500k ({DREAMER})",
        },
    ),
    "mujoco": Group(
        ("ppo --preset mujoco", "appo"), tuple(LOCOMOTION), 1_000_000, seeds=5, frames=LOCOMOTION,
        published={
            "HalfCheetah-v5": f"1,443 ± 46 ({CLEANRL}); tuned 5,819 ± 664 ({ZOO}), 5,784 ± 1,244 ({TIANSHOU})",
            "Hopper-v5": f"2,383 ± 272 ({CLEANRL}); tuned 2,410 ± 10 ({ZOO}), 2,609 ± 701 ({TIANSHOU})",
            "Walker2d-v5": f"2,288 ± 572 ({CLEANRL}); tuned 3,479 ± 822 ({ZOO}), 3,589 ± 757 ({TIANSHOU})",
            "Ant-v5": f"tuned 1,327 ± 452 ({ZOO}), 3,258 ± 1,079 ({TIANSHOU})",
            "Humanoid-v5": f"716 ± 49 ({CLEANRL}); tuned 787 ± 194 ({TIANSHOU})",
        },
    ),
    "bipedal": Group(
        ("ppo --preset mujoco",), ("BipedalWalker-v3",), 5_000_000,
        published={"BipedalWalker-v3": f"PPO 288 ± 2 at 5M ({ZOO})"},
    ),
    "minatar": Group(
        ("dqn,rainbow,btr,pqn,impala --preset minatar",),
        tuple(f"MinAtar/{game}-v1" for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")),
        1_000_000,
    ),
    "atari": Group(
        ("ppo,appo,impala,pqn --preset atari",), ("ALE/Pong-v5", "ALE/Breakout-v5"), 2_500_000,
        frames={"ALE/Pong-v5": 4, "ALE/Breakout-v5": 4},
        published={
            "ALE/Pong-v5": f"PPO 12.3 ± 2.8 at 10M frames ({DREAMER})",
            "ALE/Breakout-v5": f"PPO 53 ± 8 at 10M frames ({DREAMER})",
        },
    ),
    "carracing": Group(
        ("ppo --memory lstm --encoder nature_cnn",), ("CarRacing-v3",), 1_000_000,
        published={"CarRacing-v3": f"PPO with LSTM 863 ± 97 at 4M, v0 ({ZOO})"},
    ),
    "vizdoom": Group(("appo --preset vizdoom",), ("VizdoomBasic-v1",), 500_000, frames={"VizdoomBasic-v1": 4}),
}  # fmt: skip


def command(name: str, request: str, seeds: int, jobs: int, only: list[str]) -> list[str]:
    """Return the command of one request of a group."""
    group = GROUPS[name]
    algorithms, *flags = shlex.split(request)
    envs = [env for env in group.envs if not only or env in only]
    return [
        "multirun", algorithms, "--env", ",".join(envs), *flags, "--total-steps", str(group.steps),
        "--seed", ",".join(map(str, range(1, seeds + 1))), "--eval-episodes", "10", "--jobs", str(jobs), "--name", name,
    ]  # fmt: skip


def train(name: str, runs: Path, seeds: int | None, jobs: int, only: list[str]) -> None:
    """Run the commands of a group; a failed run is reported and does not stop the others."""
    runs.mkdir(parents=True, exist_ok=True)
    for request in GROUPS[name].requests:
        words = command(name, request, seeds or GROUPS[name].seeds, jobs, only)
        print(shlex.join(["penstock", *words]), flush=True)
        subprocess.run([sys.executable, "-m", "penstock.cli", *words], cwd=runs.parent, check=False)


def score(name: str, runs: Path, history: RunsFile) -> None:
    """Score and keep the finished runs of a group that the history lacks."""
    for run in find_runs([runs / name]):
        if run.state != "done":
            continue
        config = json.loads((run.directory.path / "config.json").read_text())
        commit = config["run"]["penstock_commit"]
        if history.find(group=name, run=run.name, commit=commit):
            continue
        keep_runs.keep(run, keep_runs.KEPT / name / run.name)
        history.add({"group": name, "run": run.name, "commit": commit, **_outcome(name, run, config)})
        print(f"{name} {run.name}: {history.runs[-1]['deterministic']:g}, sampled {history.runs[-1]['sampled']:g}")


def _outcome(name: str, run: RecordedRun, config: dict[str, Any]) -> dict[str, Any]:
    """Return facts of a finished run, and the mean returns of its final policy."""
    final, episodes = resolve_checkpoint(run.directory.path, "latest"), GROUPS[name].episodes
    returns = {
        way: evaluate_run(final, episodes=episodes, deterministic=way == "deterministic", seed=config["seed"]).returns
        for way in ("deterministic", "sampled")
    }
    return {
        "algorithm": config["algorithm"], "env": config["env"], "seed": config["seed"], "steps": run.status["steps"],
        "seconds": round(run.status["seconds"], 1), "episodes": episodes, "cpu": config["run"]["machine"]["cpu"],
        "best": round(run.status["best_return"], 2),
        **{way: round(statistics.fmean(found), 2) for way, found in returns.items()},
    }  # fmt: skip


def table(records: list[dict[str, Any]], name: str) -> str:
    """Return Markdown: a row per environment and algorithm of a group."""
    newest = {record["run"]: record for record in records if record["group"] == name}
    rows: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for record in newest.values():
        rows[record["env"], record["algorithm"]].append(record)
    lines = [
        "| environment | algorithm | seeds | steps | frames | final, deterministic | each | sampled | best evaluation "
        "| seconds | machine | commit | published |",
        "|---" * 13 + "|",
    ]
    group = GROUPS[name]
    for (env, algorithm), found in sorted(rows.items(), key=lambda item: (group.envs.index(item[0][0]), item[0][1])):
        found.sort(key=lambda record: record["seed"])
        values = np.array([record["deterministic"] for record in found])
        low, high = interval(interquartile_mean, [values])
        sampled = interquartile_mean([np.array([record["sampled"] for record in found])])
        steps = statistics.median(record["steps"] for record in found)
        machine, commit = (", ".join(dict.fromkeys(str(r[fact]) for r in found)) for fact in ("cpu", "commit"))
        lines.append(
            f"| {env} | {algorithm} | {len(found)} | {steps:,.0f} | {steps * group.frames.get(env, 1):,.0f} "
            f"| {interquartile_mean([values]):,.4g} ({low:,.4g} to {high:,.4g}) "
            f"| {', '.join(f'{value:,.4g}' for value in values)} | {sampled:,.4g} "
            f"| {max(record['best'] for record in found):,.4g} "
            f"| {statistics.median(record['seconds'] for record in found):,.0f} | {machine} | {commit} "
            f"| {group.published.get(env, '')} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train, score and keep the groups, print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], metavar="GROUP", help="all of them when left out")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs, named runs")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="number of seeds, instead of the group's")
    parser.add_argument("--only", nargs="+", default=[], metavar="ENV", help="only these environments")
    parser.add_argument("--no-train", action="store_true")
    parser.add_argument("--history", type=Path, default=HISTORY)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    history = RunsFile(given.history)
    print(describe())
    for name in given.groups or GROUPS:
        if not given.table:
            if not given.no_train:
                train(name, given.runs, given.seeds, given.jobs, given.only)
            score(name, given.runs, history)
        print(f"\n{name}\n\n{table(history.runs, name)}")


if __name__ == "__main__":
    main()
