"""Real trainings by the real commands, several seeds, judged on fresh episodes; prints a table per task.

    python bench/learning.py TASK [TASK ...] [--seeds N] [--max-seconds S] [--plot FILE] [--plots DIRECTORY]
                             [--runs DIRECTORY]

    cartpole             APPO, seconds from the command to the target, defaults only
    cartpole-ppo, cartpole-impala, cartpole-a2c, cartpole-a3c
                         the same with these algorithms
    cartpole-a3c-alone   A3C with one rollout worker
    cartpole-clear, cartpole-laser, cartpole-impact
                         the same with these algorithms, within 300k steps
    cartpole-impala-SOURCE
                         IMPALA with half of each batch from SOURCE, the same: uniform, attentive, elite1 to elite4
    TASK-fresh, TASK-replayed
                         IMPALA without replay and with 7/8 of each batch replayed, at the same settings; steps to a
                         return of 475, 200, 10 in TASK: cartpole, lunarlander, breakout
    cartpole-dqn         DQN, the same within 100k steps
    cartpole-apex        Ape-X, the same
    cartpole-pqn         PQN, the same within 500k steps
    cartpole-rainbow     Rainbow, the same
    cartpole-btr         BTR, the same
    cartpole-dqn-c51, cartpole-dqn-quantile, cartpole-dqn-iqn, cartpole-dqn-noisy
                         DQN with one of these each, the same
    hidden-r2d2          R2D2 on CartPole without its velocities, final policy after 300k steps
    hidden-dqn           DQN there
    trailless-r2d2       R2D2 on MinAtar's Breakout without the ball's trail, final policy after 300k steps, preset
                         minatar (needs the package minatar)
    trailless-apex       Ape-X there
    lunarlander          APPO, final policy after 2M steps, preset lunarlander
    lunarlander-impala   IMPALA, the same
    lunarlander-pqn      PQN, the same within 2M steps
    lunarlander-dqn      DQN with double, dueling, PER, n-step 3, best policy of 500k steps, preset lunarlander
    lunarlander-rainbow  Rainbow, the same, preset lunarlander
    pendulum             PPO, final policy after 150k steps, preset pendulum
    pendulum-td3         TD3, seconds from the command to a return of -180, preset pendulum
    pendulum-sac         SAC, the same
    pendulum-ddpg        DDPG, the same
    bit-flipping         DQN with hindsight, 15 bits, final policy after 20k steps, preset goals
    bit-flipping-plain   the same without hindsight
    fetchreach-sac       SAC with hindsight on FetchReach, final policy after 20k steps, preset goals (needs the extra
                         robotics)
    pendulum-tqc, pendulum-crossq, pendulum-flashsac, pendulum-fasttd3, pendulum-xqc, pendulum-td3-prioritized,
    pendulum-sac-prioritized
                         TQC, CrossQ, FlashSAC, FastTD3, XQC, and TD3 and SAC with priorities and 3-step returns, final
                         policy after 15k steps
    pendulum-apexdpg     Ape-X DPG, final policy after 30k steps
    pong                 APPO, 20 minutes, preset atari
    pong-18              APPO, seconds from the command to a return of 18, preset atari
    breakout-dqn         DQN on MinAtar's Breakout, four minutes, preset minatar (needs the package minatar)
    breakout-apex        Ape-X, the same
    halfcheetah-td3      TD3 on HalfCheetah-v5, 1M steps, preset mujoco (needs the extra mujoco)
    halfcheetah-sac      SAC, the same
    two-cartpoles        APPO, two CartPoles as agents of one environment, one policy for both, defaults only
    tic-tac-toe          PPO in self-play, one policy for both seats; judged by bench/self_play.py
    connect-four         the same with a larger game
    tic-tac-toe-past, connect-four-past
                         the same, half of the games against past versions of the policy
    tic-tac-toe-two      the same with two policies in shuffled seats, half of their games against past versions of the
                         other policy
    simple-spread        PPO on mpe2's simple_spread_v3, one policy for all three agents (needs the package mpe2)
    simple-spread-own    the same, a policy for each agent, with a third of the batch
    foraging-small, foraging
                         PPO on Foraging-5x5-2p-1f-coop-v3 and Foraging-8x8-2p-2f-coop-v3, one policy for both agents
                         (needs the package lbforaging)

``--plot`` draws mean return over seconds and over steps, per seed a line of evaluations and a dotted one of the last
100 training episodes. ``--plots`` draws such a picture, TASK.svg, for each task.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.runs.formatting import number, spread
from penstock.runs.machine import describe


@dataclass(frozen=True)
class Task:
    """A training and how it is judged."""

    train: str
    checkpoint: str
    episodes: int
    seeds: int
    mark: str
    judge: str | None = None
    """Game of bench/self_play.py that judges the final policy; None: episodes do."""


def _pendulum(algorithm: str, seconds: int) -> Task:
    return Task(
        f"{algorithm} --env Pendulum-v1 --preset pendulum --target-return -180 --eval-episodes 50", "best", 100, 5,
        f"-200 within {seconds} s of the command's start; it ends at -180, judged on 50 episodes twice",
    )  # fmt: skip


def _cartpole(train: str, steps: int = 500_000) -> Task:
    return Task(
        f"{train} --env CartPole-v1 --target-return 475 --total-steps {steps}", "best", 100, 5,
        f"100 episodes >= 475 within {steps // 1000}k steps",
    )  # fmt: skip


def _simple_spread(policies: str) -> Task:
    return Task(
        f"ppo --env mpe2.simple_spread_v3:parallel_env {policies} --total-steps 2000000 {TWO_WORKERS} 16 "
        "--segment-length 50 --num-epochs 8 --hidden-sizes 128 128 --normalize-returns --gamma 0.95 "
        "--learning-rate 1e-3 --entropy-coef 0.01 --entropy-coef-final 0.0 --eval-interval 0",
        "latest", 300, 3, "300 episodes of each agent >= -12",
    )  # fmt: skip


TWO_WORKERS = "--num-workers 2 --num-envs-per-worker"
REPLAYED = "--replay queue:1/8 uniform:7/8,capacity=1000"


def _pays(env: str, settings: str, target: float) -> dict[str, Task]:
    """Return the tasks of IMPALA without replay and with it, at the same settings of the learner."""
    train = f"impala {env} {settings} --target-return {target:g}"
    return {
        kind: Task(f"{train} {replay}", "best", 100, 5, "half as many steps with replay")
        for kind, replay in (("fresh", ""), ("replayed", REPLAYED))
    }


def _breakout(algorithm: str) -> Task:
    return Task(
        f"{algorithm} --env MinAtar/Breakout-v1 --preset minatar --max-seconds 240",
        "best", 100, 3, "none",
    )  # fmt: skip


TASKS = {
    "cartpole": Task(
        "appo --env CartPole-v1 --target-return 475", "best", 100, 5,
        "solved in a median of 10 s and at most 20 s, within 300k steps; 100 episodes >= 475",
    ),
    "cartpole-ppo": _cartpole("ppo"),
    "cartpole-impala": _cartpole("impala"),
    "cartpole-a2c": _cartpole("a2c"),
    "cartpole-a3c": _cartpole("a3c"),
    "cartpole-a3c-alone": _cartpole("a3c --num-workers 1"),
    "cartpole-dqn": _cartpole("dqn", 100_000),
    "cartpole-apex": _cartpole("apex", 100_000),
    "cartpole-pqn": _cartpole("pqn"),
    "cartpole-rainbow": _cartpole("rainbow", 100_000),
    "cartpole-btr": _cartpole("btr", 100_000),
    **{
        f"cartpole-dqn-{kind}": _cartpole(f"dqn --distributional {kind}", 100_000)
        for kind in ("c51", "quantile", "iqn")
    },
    "cartpole-dqn-noisy": _cartpole("dqn --noisy", 100_000),
    **{f"cartpole-{name}": _cartpole(name, 300_000) for name in ("clear", "laser", "impact")},
    **{
        f"cartpole-impala-{source}": _cartpole(f"impala --replay queue:1/2 {drawn}", 300_000)
        for source, drawn in {
            "uniform": "uniform:1/2", "attentive": "attentive:1/2",
            **{f"elite{strategy}": f"elite:1/2,strategy={strategy}" for strategy in (1, 2, 3, 4)},
        }.items()
    },
    **{f"cartpole-{kind}": task for kind, task in _pays(
        "--env CartPole-v1", "--total-steps 300000", 475).items()},
    **{f"lunarlander-{kind}": task for kind, task in _pays(
        "--env LunarLander-v3", "--preset lunarlander --learning-rate 5e-4", 200).items()},
    **{f"breakout-{kind}": task for kind, task in _pays(
        "--env MinAtar/Breakout-v1",
        "--preset minatar --batch-size 640 --learning-rate 5e-4 --total-steps 3000000", 10).items()},
    **{
        f"hidden-{algorithm}": Task(
            f"{algorithm} --env bench/environments/hidden_cartpole.py:HiddenCartPole --total-steps 300000",
            "latest", 100, 3, mark,
        )
        for algorithm, mark in (("r2d2", "100 episodes >= 450"), ("dqn", "below 120"))
    },
    "lunarlander": Task("appo --env LunarLander-v3 --preset lunarlander", "latest", 100, 3, "100 episodes >= 200"),
    "lunarlander-impala": Task(
        "impala --env LunarLander-v3 --preset lunarlander", "latest", 100, 3, "100 episodes >= 200 within 3M steps"
    ),
    "lunarlander-pqn": Task(
        "pqn --env LunarLander-v3 --preset lunarlander", "latest", 100, 3, "100 episodes >= 200 within 2M steps"
    ),
    "lunarlander-dqn": Task("dqn --env LunarLander-v3 --preset lunarlander", "best", 100, 3, "100 episodes >= 200"),
    "lunarlander-rainbow": Task(
        "rainbow --env LunarLander-v3 --preset lunarlander", "best", 100, 3, "100 episodes >= 200 within 500k steps"
    ),
    "pendulum": Task("ppo --env Pendulum-v1 --preset pendulum", "latest", 100, 5, "100 episodes >= -200"),
    "pendulum-td3": _pendulum("td3", 7),
    "pendulum-sac": _pendulum("sac", 45),
    "pendulum-ddpg": _pendulum("ddpg", 45),
    **{
        name: Task(
            f"dqn --env bench/environments/bit_flipping.py:BitFlipping --preset goals{plain}", "latest", 200, 3, mark
        )
        for name, plain, mark in (
            ("bit-flipping", "", "success rate >= 0.95"), ("bit-flipping-plain", " --hindsight None", "below 0.05"),
        )
    },
    "fetchreach-sac": Task(
        "sac --env gymnasium_robotics:FetchReach-v4 --preset goals", "latest", 100, 3,
        "success rate >= 0.95 within 20k steps",
    ),
    **{
        f"pendulum-{name}": Task(
            f"{train} --env Pendulum-v1 --preset pendulum", "latest", 100, 3, "100 episodes >= -200"
        )
        for name, train in {
            "tqc": "tqc", "crossq": "crossq", "flashsac": "flashsac", "fasttd3": "fasttd3", "xqc": "xqc",
            "apexdpg": "apexdpg",
            "td3-prioritized": "td3 --prioritized --n-step 3", "sac-prioritized": "sac --prioritized --n-step 3",
        }.items()
    },
    "pong": Task(
        "appo --env ALE/Pong-v5 --preset atari --max-seconds 1200", "latest", 10, 1, "clearly above -21"
    ),
    "pong-18": Task(
        "appo --env ALE/Pong-v5 --preset atari --target-return 18", "best", 20, 1, "it ends at 18, on 20 episodes twice"
    ),
    **{
        f"trailless-{algorithm}": Task(
            f"{algorithm} --env bench/environments/trailless_breakout.py:TraillessBreakout --preset minatar "
            "--num-workers 1 --total-steps 300000", "latest", 100, 3, "R2D2 beside Ape-X",
        )
        for algorithm in ("r2d2", "apex")
    },
    "breakout-dqn": _breakout("dqn"),
    "breakout-apex": _breakout("apex"),
    "halfcheetah-td3": Task(
        "td3 --env HalfCheetah-v5 --preset mujoco --eval-episodes 10 --eval-interval 20000", "latest", 10, 1,
        "CleanRL has 9,583 on v4",
    ),
    "halfcheetah-sac": Task(
        "sac --env HalfCheetah-v5 --preset mujoco --eval-episodes 10 --eval-interval 20000", "latest", 10, 1,
        "CleanRL has 9,635 on v4",
    ),
    "two-cartpoles": Task(
        "appo --env bench/environments/two_cartpoles.py:TwoCartPoles --target-return 475 --total-steps 1000000",
        "best", 100, 3, "100 episodes of each agent >= 475",
    ),
    "tic-tac-toe": Task(
        f"ppo --env bench/environments/tic_tac_toe.py:TicTacToe --total-steps 400000 {TWO_WORKERS} 32 --gamma 1.0 "
        "--gae-lambda 0.9 --learning-rate 1e-3 --entropy-coef 0.2 --entropy-coef-final 0.1 --eval-interval 0",
        "latest", 0, 3, "a best response scores 0 from either seat", judge="tic-tac-toe",
    ),
    "connect-four": Task(
        "ppo --env bench/environments/connect_four.py:ConnectFour "
        "--encoder bench/environments/connect_four_network.py:Fours "
        f"--total-steps 1000000 {TWO_WORKERS} 32 --segment-length 64 --batch-size 512 --num-epochs 7 "
        "--learning-rate 1e-3 --entropy-coef 0.08 --entropy-coef-final 0.005 --eval-interval 0",
        "latest", 0, 3, "from either seat wins >= 0.95 against random, >= 0.5 against one-ply", judge="connect-four",
    ),
    "simple-spread": _simple_spread("--num-agents 3 --batch-size 600"),
    "simple-spread-own": _simple_spread("--num-policies 3 --batch-size 200"),
    **{
        name: Task(
            f"ppo --env lbforaging:{env} --team-reward sum --total-steps {steps} {TWO_WORKERS} 16 --segment-length 64 "
            "--hidden-sizes 128 128 --num-epochs 4 --gamma 0.97 --learning-rate 1e-3 --entropy-coef 0.03 "
            "--entropy-coef-final 0.005 --eval-interval 0", "latest", 300, 3, "team return >= 0.9",
        )
        for name, env, steps in (
            ("foraging-small", "Foraging-5x5-2p-1f-coop-v3", 1_000_000),
            ("foraging", "Foraging-8x8-2p-2f-coop-v3", 3_000_000),
        )
    },
}  # fmt: skip
TASKS["tic-tac-toe-two"] = replace(
    TASKS["tic-tac-toe"],
    train=TASKS["tic-tac-toe"].train.replace("400000", "800000")
    + " --num-policies 2 --seats shuffled --opponents past",
    mark="a best response scores 0 against each policy from either seat",
)
TASKS |= {
    f"{game}-past": replace(TASKS[game], train=f"{TASKS[game].train} --num-agents 2 --opponents past")
    for game in ("tic-tac-toe", "connect-four")
}


@dataclass(frozen=True)
class Outcome:
    """One training."""

    seed: int
    seconds: float
    steps: int
    exit_code: int
    mean_return: float
    std_return: float
    success_rate: float | None = None
    judgement: str | None = None


def measure(task: Task, seed: int, run_dir: Path) -> Outcome:
    """Train and judge; seconds count from the start of the command to its end."""
    began = time.monotonic()
    train = penstock("train", *task.train.split(), "--seed", str(seed), "--run-dir", str(run_dir))
    seconds = time.monotonic() - began
    steps = re.search(r"after ([\d,]+) steps", train.stdout)
    if task.judge is not None:
        script = Path(__file__).with_name("self_play.py")
        judged = subprocess.run([sys.executable, script, task.judge, run_dir], capture_output=True, text=True)
        if steps is None or judged.returncode:
            sys.exit(f"the commands did not print what was expected:\n{train.stdout}{train.stderr}{judged.stderr}")
        count = int(steps[1].replace(",", ""))
        return Outcome(seed, seconds, count, train.returncode, math.nan, math.nan, None, judged.stdout.strip())
    score = penstock("eval", str(run_dir), "--episodes", str(task.episodes), "--checkpoint", task.checkpoint)
    found = scored(score.stdout)
    success = re.search(r"success rate (\S+)", score.stdout)
    if found is None or steps is None:
        printed = train.stdout + train.stderr + score.stdout + score.stderr
        sys.exit(f"the commands did not print what was expected:\n{printed}")
    return Outcome(
        seed, seconds, int(steps[1].replace(",", "")), train.returncode, *found,
        None if success is None else float(success[1]),
    )  # fmt: skip


def scored(printed: str) -> tuple[float, float] | None:
    """Return mean and deviation of the returns that ``penstock eval`` printed, over all policies; None without any."""
    each = [
        (float(mean.replace(",", "")), float(std.replace(",", "")))
        for mean, std in re.findall(r"mean return (\S+) \+/- (\S+) over", printed)
    ]
    if not each:
        return None
    of_all = statistics.fmean(mean for mean, _ in each)
    return of_all, math.sqrt(statistics.fmean(std**2 + (mean - of_all) ** 2 for mean, std in each))


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the penstock command that belongs to this Python."""
    command = Path(sys.executable).with_name("penstock")
    return subprocess.run([str(command), *arguments], capture_output=True, text=True)


def table(name: str, task: Task, seeds: int, runs: Path) -> None:
    """Run a task's trainings, and print the outcome of each."""
    print(f"\n{name}: penstock train {task.train}  (mark: {task.mark})")
    judged_by = f"return over {task.episodes} fresh episodes" if task.judge is None else "bench/self_play.py"
    print(f"{'seed':>4} {'seconds':>8} {'steps':>10} {'exit':>4}  {judged_by}")
    outcomes = []
    for seed in range(1, seeds + 1):
        o = measure(task, seed, runs / f"{name}-{seed}")
        outcomes.append(o)
        score = spread(o.mean_return, o.std_return)
        score += "" if o.success_rate is None else f", success rate {o.success_rate:.3f}"
        print(f"{o.seed:>4} {o.seconds:>8.1f} {o.steps:>10,} {o.exit_code:>4}  {o.judgement or score}", flush=True)
    seconds = [o.seconds for o in outcomes]
    lowest = "" if task.judge is not None else f"; return: lowest {number(min(o.mean_return for o in outcomes))}"
    print(f"seconds: median {statistics.median(seconds):.1f}, worst {max(seconds):.1f}{lowest}")


def plot(runs: Path, names: list[str], target: Path) -> None:
    """Draw mean return over seconds and over steps, per run a line of evaluations and a dotted one of training."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    for color, name in enumerate(names):
        for run in sorted(runs.glob(f"{name}-[0-9]*")):
            lines = logged_in(run)
            for kind, style in (("evaluation", "-"), ("episode", ":")):
                points = [line for line in lines if line.get(f"{kind}/mean_return") is not None]
                returns = [line[f"{kind}/mean_return"] for line in points]
                label = name if style == "-" and run.name.endswith("-1") else None
                for axis, key in zip(axes, ("seconds", "steps"), strict=True):
                    at = [line[key] for line in points]
                    axis.plot(at, returns, style, color=f"C{color}", alpha=0.8, label=label)
    axes[0].set(xlabel="seconds", ylabel="mean return")
    axes[1].set(xlabel="steps")
    axes[0].legend()
    for axis in axes:
        axis.grid(alpha=0.3)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


def logged_in(run: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's metrics."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def plot_panels(runs: Path, names: list[str], target: Path) -> None:
    """Draw a panel per task, a line per run: mean training returns, or ratings in self-play, over steps."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(names), figsize=(3.2 * len(names), 3), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for run in sorted(runs.glob(f"{name}-[0-9]*")):
            lines = logged_in(run)
            key = "opponents/rating" if "opponents/rating" in lines[-1] else "episode/mean_return"
            points = [(line["steps"] / 1e6, line[key]) for line in lines if line.get(key) is not None]
            axis.plot(*zip(*points, strict=True), alpha=0.8)
            axis.set(title=name, xlabel="million steps", ylabel=key.rpartition("/")[2].replace("_", " "))
        axis.grid(alpha=0.3)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    print(f"plot: {target}")


def main() -> None:
    """Parse the command, run the trainings, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", choices=TASKS, nargs="+", metavar="TASK")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--max-seconds", type=float, help="limit of each training, for a quick look")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--plots", type=Path)
    parser.add_argument("--panels", type=Path, help="draw all tasks into this file, a panel for each")
    parser.add_argument("--runs", type=Path, help="keep the run directories here")
    arguments = parser.parse_args()
    print(describe())
    limit = "" if arguments.max_seconds is None else f" --max-seconds {arguments.max_seconds:g}"
    with tempfile.TemporaryDirectory() as aside:
        runs = arguments.runs or Path(aside)
        for name in arguments.tasks:
            task = replace(TASKS[name], train=TASKS[name].train + limit)
            table(name, task, arguments.seeds or task.seeds, runs)
        if arguments.plot:
            plot(runs, arguments.tasks, arguments.plot)
        if arguments.panels:
            plot_panels(runs, arguments.tasks, arguments.panels)
        for name in arguments.tasks if arguments.plots else []:
            plot(runs, [name], arguments.plots / f"{name}.svg")


if __name__ == "__main__":
    main()
