"""Updates per second of TD3, SAC and DDPG, beside Stable-Baselines3's, in one run: no environment, only learning.

    python bench/updates.py --sb3 X/bin/python [--rounds 5] [--updates 400] [--threads 1 2] [--algorithms td3 sac ddpg]

Shapes of HalfCheetah-v5 (17 observed numbers, 6 actions), networks of 256x256, batches of 256, learning rate 3e-4, on
the CPU; a full replay buffer of each library's own, and the batch drawn from it, are part of it. Penstock's learner is
polled as the serial backend does it: it draws in the same thread, publishes its weights and reports after every update.
Stable-Baselines3 lives in an environment of its own (python -m venv X; X/bin/pip install stable-baselines3).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.algorithms import load_algorithm
from penstock.bench.machine import describe
from penstock.config import make_config
from penstock.engine.acting.weights import SharedWeights
from penstock.engine.paths.replay import make_replay
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.engine.preparation import run_shape
from penstock.engine.roles.learner import LearnerState, Start
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena

MARKS = {"td3": 1.5}
OBSERVATION = ObservationSpec((17,), "float32")
ACTION = ActionSpec((6,), "float32", low=(-1.0,) * 6, high=(1.0,) * 6)
SETTINGS = {"hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4}
LANES = 1000  # that fill the buffer together
WARM_UP = 50  # updates
HOW_TO_GET_SB3 = "no comparison: give --sb3 X/bin/python, after python -m venv X; X/bin/pip install stable-baselines3"


class Penstock:
    """The learner in this process, with a full buffer and nobody who writes to it.

    Parameters
    ----------
    algorithm
        Its name.
    rows
        Size of the buffer, a multiple of 1,000.
    """

    versions = f"Penstock with torch {torch.__version__}"

    def __init__(self, algorithm: str, rows: int) -> None:
        kind = load_algorithm(algorithm)
        unlimited = {"learning_starts": rows, "ratio_slack": 10**9, "total_steps": 10**9}
        values = {"env": "HalfCheetah-v5", "backend": "serial", "num_workers": 1, "buffer_size": rows}
        learns: Any = kind(make_config(kind.Config, {**values, **SETTINGS, **unlimited}), OBSERVATION, ACTION)
        model = learns.build_model()
        replay, _ = make_replay(learns, Start(), None)
        _fill(replay.buffer, rows)
        replay.limiter.insert(rows)
        arena = ExperienceArena.create(run_shape(learns, model))
        arena.control[Control.GOAL] = 10**9
        SharedWeights(model, arena.weights).publish(0, 0)
        self._learner = ReplayLearner(learns, arena, LearnerState(), None, lambda report: None, replay)
        self.seconds(WARM_UP, 1)

    def seconds(self, updates: int, threads: int) -> float:
        """How long so many updates take with so many threads of torch."""
        torch.set_num_threads(threads)
        began = time.perf_counter()
        for _ in range(updates):
            if not self._learner.poll():
                raise RuntimeError("the rate limiter held an update back: what is measured is not the update")
        return time.perf_counter() - began

    def cpu_seconds_per_update(self, updates: int = 400) -> float:
        """What an update costs one thread; what others take from its core does not count."""
        began = time.thread_time()
        self.seconds(updates, threads=1)
        return (time.thread_time() - began) / updates


class StableBaselines3:
    """The same in a process of another Python.

    Parameters
    ----------
    python
        Interpreter that has stable-baselines3.
    """

    def __init__(self, python: Path) -> None:
        peer = Path(__file__).with_name("peers") / "sb3_updates.py"
        self._process = subprocess.Popen(
            [str(python), str(peer)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.versions = self._answer()

    def open(self, algorithm: str, rows: int) -> None:
        """Make the learner and fill its buffer."""
        self._ask({"open": algorithm, "rows": rows, "warm_up": WARM_UP, **SETTINGS})

    def seconds(self, updates: int, threads: int) -> float:
        """As of `Penstock`."""
        return float(self._ask({"updates": updates, "threads": threads}))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the process of stable-baselines3 ended with exit status {self._process.wait()}")
        return json.loads(line)


def _fill(buffer: Any, rows: int) -> None:
    """Random transitions, one in a thousand the last of its episode."""
    random = np.random.default_rng(0)
    writer = buffer.writer(LANES)
    obs = random.standard_normal((LANES, *OBSERVATION.shape), np.float32)
    for _ in range(rows // LANES):
        next_obs = random.standard_normal(obs.shape, np.float32)
        writer.add(
            obs=obs,
            action=random.uniform(-1.0, 1.0, (LANES, *ACTION.shape)).astype(np.float32),
            reward=random.standard_normal(LANES, np.float32),
            next_obs=next_obs,
            terminated=random.random(LANES) < 1e-3,
            truncated=np.zeros(LANES, bool),
        )
        obs = next_obs


def compare(name: str, sb3: StableBaselines3 | None, arguments: argparse.Namespace) -> None:
    """Measure one algorithm in alternating rounds, another library first each time, and print its lines."""
    players: dict[str, Any] = {"penstock": Penstock(name, arguments.rows)}
    if sb3 is not None:
        sb3.open(name, arguments.rows)
        players["sb3"] = sb3
    for threads in arguments.threads:
        rates: dict[str, list[float]] = {who: [] for who in players}
        for turn in range(arguments.rounds):
            for who in sorted(players, reverse=turn % 2 == 1):
                rates[who].append(arguments.updates / players[who].seconds(arguments.updates, threads))
        medians = {who: statistics.median(found) for who, found in rates.items()}
        ours, theirs, mark = medians["penstock"], medians.get("sb3"), MARKS.get(name)
        spread = ", ".join(f"{who} {min(found):,.0f}-{max(found):,.0f}" for who, found in rates.items())
        print(
            f"{name:<9} {threads:>7} {ours:>9,.0f}"
            + (f" {theirs:>9,.0f} {ours / theirs:>5.2f}x" if theirs else f" {'-':>9} {'-':>6}")
            + f" {f'{mark:g}x' if mark else '-':>5}   {spread}",
            flush=True,
        )


def main() -> None:
    """Parse the command, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", type=Path)
    parser.add_argument("--algorithms", nargs="+", choices=("td3", "sac", "ddpg"), default=["td3", "sac", "ddpg"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    print(describe())
    sb3 = StableBaselines3(arguments.sb3) if arguments.sb3 else None
    print(f"{Penstock.versions}; {sb3.versions if sb3 else HOW_TO_GET_SB3}")
    print(f"updates per second, medians of {arguments.rounds} rounds of {arguments.updates} updates, alternating")
    print(f"{'':<9} {'threads':>7} {'penstock':>9} {'sb3':>9} {'ratio':>6} {'mark':>5}   slowest and fastest round")
    for name in arguments.algorithms:
        compare(name, sb3, arguments)
    if sb3 is not None:
        sb3.close()


if __name__ == "__main__":
    main()
