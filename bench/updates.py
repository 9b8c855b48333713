"""Updates per second of TD3, SAC and DDPG, beside Stable-Baselines3's and SBX's, in one run: only learning.

    python bench/updates.py [--sb3 X/bin/python] [--sbx Y/bin/python] [--bfloat16] [--rounds 5] [--updates 416]
        [--threads 1 2] [--algorithms td3 sac ddpg]

Shapes of HalfCheetah-v5 (17 observed numbers, 6 actions), networks of 256x256, batches of 256, learning rate 3e-4, on
the CPU; a full replay buffer of each library's own, and the batch drawn from it, are part of it. Penstock's learner is
polled as the serial backend does it: it draws in the same thread, publishes its weights and reports after every update.
Each peer lives in an environment of its own (python -m venv X; X/bin/pip install stable-baselines3 or sbx-rl). SBX
makes 1 or 32 updates in a call: the faster is what ratios are to.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from penstock.algorithms import load_algorithm
from penstock.bench.machine import describe
from penstock.config import make_config
from penstock.engine.acting.weights import SharedWeights
from penstock.engine.backends.launcher import KEEP_MEMORY
from penstock.engine.paths.replay import make_replay
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.engine.preparation import run_shape
from penstock.engine.roles.learner import LearnerState, Start
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena

OBSERVATION = ObservationSpec((17,), "float32")
ACTION = ActionSpec((6,), "float32", low=(-1.0,) * 6, high=(1.0,) * 6)
SETTINGS = {"hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4}
LANES = 1000  # that fill the buffer together
WARM_UP = 50  # updates
HOW_TO_GET_PEERS = "peers: --sb3 and --sbx name interpreters that have stable-baselines3 and sbx-rl"


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

    def __init__(self, algorithm: str, rows: int, precision: str = "float32") -> None:
        kind = load_algorithm(algorithm)
        unlimited = {"learning_starts": rows, "ratio_slack": 10**9, "total_steps": 10**9}
        values = {"env": "HalfCheetah-v5", "backend": "serial", "num_workers": 1, "buffer_size": rows}
        settings = {**values, **SETTINGS, **unlimited, "precision": precision}
        learns: Any = kind(make_config(kind.Config, settings), OBSERVATION, ACTION)
        model = learns.build_model()
        replay, _ = make_replay(learns, Start(), None)
        _fill(replay.buffer, rows)
        replay.limiter.insert(rows)
        arena = ExperienceArena.create(run_shape(learns, model))
        arena.control[Control.GOAL] = 10**9
        SharedWeights(model, arena.weights).publish(0, 0)
        gc.collect()
        gc.freeze()  # as the launcher does: what is imported is none of the collector's business
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


class Peer:
    """The same in a process of another Python, which runs a program of bench/peers and answers lines of JSON.

    Parameters
    ----------
    python
        Interpreter that has the library.
    program
        Its name in bench/peers.
    arguments
        What the program is told.
    """

    def __init__(self, python: Path, program: str, *arguments: str) -> None:
        command = [str(python), str(Path(__file__).with_name("peers") / program), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._name = program
        self.versions = self._answer()

    def open(self, algorithm: str, rows: int) -> None:
        """Make the learner and fill its buffer."""
        self._ask({"open": algorithm, "rows": rows, "warm_up": WARM_UP, **SETTINGS})

    def seconds(self, updates: int, threads: int, **more: Any) -> float:
        """As of `Penstock`."""
        return float(self._ask({"updates": updates, "threads": threads, **more}))

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
            sys.exit(f"the process of {self._name} ended with exit status {self._process.wait()}")
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


def compare(name: str, peers: Sequence[Path | None], arguments: argparse.Namespace) -> None:
    """Measure one algorithm in alternating rounds, another library first each time, and print its lines."""
    ours = {"float32": Penstock(name, arguments.rows)}
    if arguments.bfloat16:
        ours["bfloat16"] = Penstock(name, arguments.rows, precision="bfloat16")
    sb3, sbx = peers
    for threads in arguments.threads:
        players: dict[str, Callable[[], float]] = {
            f"penstock {precision}": partial(one.seconds, arguments.updates, threads) for precision, one in ours.items()
        }
        opened = []
        if sb3 is not None:
            opened.append(Peer(sb3, "sb3_updates.py"))
            players["sb3"] = partial(opened[-1].seconds, arguments.updates, threads)
        if sbx is not None:  # its threads are fixed when it starts
            opened.append(Peer(sbx, "sbx_updates.py", str(threads)))
            for per_call in (1, 32):
                players[f"sbx by {per_call}"] = partial(
                    opened[-1].seconds, arguments.updates, threads, per_call=per_call
                )
        for peer in opened:
            peer.open(name, arguments.rows)
        rates: dict[str, list[float]] = {who: [] for who in players}
        for turn in range(arguments.rounds):
            order = list(players)
            for who in order[turn % len(order) :] + order[: turn % len(order)]:
                rates[who].append(arguments.updates / players[who]())
        for peer in opened:
            peer.close()
        medians = {who: statistics.median(found) for who, found in rates.items()}
        fastest = max((rate for who, rate in medians.items() if who.startswith("sbx")), default=None)
        for who, rate in medians.items():
            ratios = [rate / medians["sb3"] if "sb3" in medians else None, rate / fastest if fastest else None]
            cells = "".join(f" {'-' if ratio is None else f'{ratio:.2f}x':>8}" for ratio in ratios)
            spread = f"{min(rates[who]):,.0f}-{max(rates[who]):,.0f}"
            print(f"{name:<5} {threads:>7}  {who:<17} {rate:>9,.0f}{cells}   {spread}")
        sys.stdout.flush()


def main() -> None:
    """Parse the command, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", type=Path)
    parser.add_argument("--sbx", type=Path)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--algorithms", nargs="+", choices=("td3", "sac", "ddpg"), default=["td3", "sac", "ddpg"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=416)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.updates % 32:
        parser.error(f"--updates {arguments.updates} is not legal: a multiple of 32, as SBX makes 32 in a call")
    if not KEEP_MEMORY.items() <= os.environ.items():  # what the processes of a run are started with
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    print(describe())
    print(f"{Penstock.versions}; {HOW_TO_GET_PEERS if not (arguments.sb3 and arguments.sbx) else ''}")
    print(f"updates per second, medians of {arguments.rounds} rounds of {arguments.updates} updates, in turns")
    print(f"{'':<5} {'threads':>7}  {'who':<17} {'updates':>9} {'to sb3':>8} {'to sbx':>8}   slowest and fastest round")
    for name in arguments.algorithms:
        compare(name, (arguments.sb3, arguments.sbx), arguments)


if __name__ == "__main__":
    main()
