"""Updates per second next to Stable-Baselines3 and SBX, in one run: only learning.

    python bench/updates.py [--sb3 X/bin/python] [--sbx Y/bin/python] [--bfloat16] [--rounds 5] [--updates 416]
        [--threads 1 2] [--algorithms td3 sac ddpg flashsac xqc dqn c51 appo appo-small] [--profile]
    python bench/updates.py --device cuda --threads 8 --algorithms td3 sac flashsac dqn btr [--sb3 ...] [--sbx ...]

TD3, SAC, DDPG and APPO have the shapes of HalfCheetah-v5 (17 observed numbers, 6 actions), DQN and C51 (DQN with
distributional="c51") those of LunarLander-v3 (8 numbers, 4 actions). Networks of 256x256, batches of 256, learning rate
3e-4; sampling from a full replay buffer of each library is included. Penstock's learner is polled as in the
serial backend: it samples in the same thread, publishes its weights and reports after every update. APPO's updates use
one batch in memory, 8 segments of 32 steps, without reading from slots and publishing; appo-small has layers of 64x64.
Each peer has its own environment (python -m venv X; X/bin/pip install stable-baselines3 or sbx-rl). TD3, SAC and DDPG
are compared with both, DQN with Stable-Baselines3. SBX makes 1 or 32 updates per call; ratios are to the faster
variant. btr has the network and batch of its preset "atari", and frames of Atari games.

--profile also prints the parts of an update's time, with one thread (bench/update_parts.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from update_parts import OPTIMISER, SAMPLE, marked, shares_of

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.engine.collecting

from penstock.algorithms import load_algorithm
from penstock.algorithms.bases.segment import SegmentUpdater
from penstock.config import make_config
from penstock.engine.acting.device_inference import LearnerWeights, WeightsExchange
from penstock.engine.acting.inference import SharedWeights, through_block
from penstock.engine.backends.launcher import KEEP_MEMORY
from penstock.engine.contracts import LearnerState, Start
from penstock.engine.paths.replay import make_replay
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.engine.preparation import run_shape
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.arena import Control, ExperienceArena
from penstock.runs.machine import describe
from tests.engine.collecting import Collecting


@dataclass(frozen=True)
class Work:
    """Measurement: an algorithm with settings and shapes, and the peers that have it."""

    algorithm: str
    observation: ObservationSpec
    action: ActionSpec
    settings: tuple[tuple[str, Any], ...] = ()
    peers: tuple[str, ...] = ("sb3", "sbx")
    most_rows: int = 1_000_000


CHEETAH = ObservationSpec((17,), "float32"), ActionSpec((6,), "float32", low=(-1.0,) * 6, high=(1.0,) * 6)
LANDER = ObservationSpec((8,), "float32"), ActionSpec((), "int64", num_actions=4)
ATARI = ObservationSpec((84, 84, 4), "uint8"), ActionSpec((), "int64", num_actions=18)
BTR = (
    ("encoder", "impala_resnet"), ("resnet_width", 2), ("resnet_pool", 6), ("spectral_norm", True),
    ("hidden_sizes", (512,)), ("target_period", 500),
)  # fmt: skip
WORKS = {
    "td3": Work("td3", *CHEETAH),
    "sac": Work("sac", *CHEETAH),
    "ddpg": Work("ddpg", *CHEETAH),
    "flashsac": Work("flashsac", *CHEETAH, settings=(("hidden_sizes", (64, 64)),), peers=()),
    "xqc": Work("xqc", *CHEETAH, peers=()),
    "tqc": Work("tqc", *CHEETAH, settings=(("num_critics", 2),), peers=("sbx",)),
    "crossq": Work("crossq", *CHEETAH, settings=(("critic_hidden_sizes", (256, 256)),), peers=("sbx",)),
    "dqn": Work("dqn", *LANDER),
    "c51": Work("dqn", *LANDER, settings=(("distributional", "c51"),), peers=()),
    "btr": Work("btr", *ATARI, settings=BTR, peers=(), most_rows=10_000),
    "appo": Work("appo", *CHEETAH, peers=()),
    "appo-small": Work("appo", *CHEETAH, settings=(("hidden_sizes", (64, 64)),), peers=()),
}
SETTINGS = {"hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4}
LANES = 1000  # that fill the buffer together
WARM_UP = 50  # updates
HOW_TO_GET_PEERS = "peers: --sb3 and --sbx name interpreters that have stable-baselines3 and sbx-rl"


class Learning:
    """A learner in this process.

    Attributes
    ----------
    update
        Makes one update.
    """

    update: Callable[[], object]

    def seconds(self, updates: int, threads: int) -> float:
        """Return the seconds of a number of updates with a number of torch's threads."""
        torch.set_num_threads(threads)
        began = time.perf_counter()
        for _ in range(updates):
            self.update()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    def cpu_seconds_per_update(self, updates: int = 400) -> float:
        """Return the CPU seconds of an update with one thread."""
        began = time.thread_time()
        self.seconds(updates, threads=1)
        return (time.thread_time() - began) / updates

    def shares(self, updates: int) -> dict[str, float]:
        """Return the parts of an update's time, largest first."""
        torch.set_num_threads(1)
        self.mark()
        return shares_of(self.update, updates)

    def mark(self) -> None:
        """Mark the parts of an update for a profile."""
        raise NotImplementedError


class Replaying(Learning):
    """Learner from replay, with a full buffer and without writers.

    Parameters
    ----------
    work
        The measurement.
    rows
        Size of the buffer, a multiple of 1,000.
    precision
        Precision of hidden layers.
    device
        Device of the learner, which passes its weights on as in a run.
    """

    def __init__(self, work: Work, rows: int, precision: str = "float32", device: str = "cpu") -> None:
        kind = load_algorithm(work.algorithm)
        rows = min(rows, work.most_rows)
        unlimited = {"learning_starts": rows, "ratio_slack": 10**9, "total_steps": 10**9, "device": device}
        values = {"env": "HalfCheetah-v5", "backend": "serial", "num_workers": 1, "buffer_size": rows}
        settings = {**values, **SETTINGS, **unlimited, **dict(work.settings), "precision": precision}
        learns: Any = kind(make_config(kind.Config, settings), work.observation, work.action)
        model = learns.build_model()
        replay, _ = make_replay(learns, Start(), None)
        _fill(replay.buffer, rows, work)
        replay.limiter.insert(rows)
        arena = ExperienceArena.create(run_shape(learns, model))
        arena.control[Control.GOAL] = 10**9
        SharedWeights(model, arena.weights).publish(0, 0)
        gc.collect()
        gc.freeze()  # as the launcher does, so that the collector ignores imported modules
        weights: Any = through_block if device == "cpu" else partial(LearnerWeights, exchange=WeightsExchange())
        self._learner = ReplayLearner(learns, arena, LearnerState(), None, lambda report: None, replay, weights)
        self._learns, self._buffer = learns, replay.buffer
        self.seconds(WARM_UP, 1)

    def update(self) -> None:
        """Make one update."""
        if not self._learner.poll():
            raise RuntimeError("the rate limiter held an update back, so that more than the update would be measured")

    def mark(self) -> None:
        """As of `Learning`."""
        reader: Any = self._learner._reader
        reader.ask, reader.take = marked(SAMPLE, reader.ask), marked(SAMPLE, reader.take)
        self._buffer.update_priorities = marked(SAMPLE, self._buffer.update_priorities)
        for optimizer in self._learns.optimizers.values():
            optimizer.step = marked(OPTIMISER, optimizer.step)


class Moving(gymnasium.Env):
    """Random numbers in HalfCheetah's shapes."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (17,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.standard_normal(17, np.float32), {}

    def step(self, action: Any) -> Any:
        return self.np_random.standard_normal(17, np.float32), 1.0, False, False, {}


class OfSegments(Learning):
    """An algorithm that learns from segments, and one batch of random ones.

    Parameters
    ----------
    work
        The measurement.
    precision
        Precision of hidden layers.
    """

    def __init__(self, work: Work, precision: str = "float32") -> None:
        one_update = {"num_envs_per_worker": 8, "segment_length": 32, "num_minibatches": 1, "num_epochs": 1}
        settings = {**one_update, **SETTINGS, **dict(work.settings), "precision": precision}
        run = Collecting(load_algorithm(work.algorithm), env=Moving, env_kwargs={}, **settings)
        self._batch, self._learns = run.take(), run.algorithm
        run.close()
        self._updater = SegmentUpdater(self._learns, self._learns.build_model())
        self.seconds(WARM_UP, 1)

    def update(self) -> None:
        """Make one update."""
        fresh = dataclasses.replace(self._batch, targets={})
        self._updater.learn(fresh)

    def mark(self) -> None:
        """As of `Learning`."""
        optimizer = self._updater.optimizer
        optimizer.step = marked(OPTIMISER, optimizer.step)


def learning(work: Work, rows: int, precision: str, device: str) -> Learning:
    """Return the learner of a measurement."""
    return OfSegments(work, precision) if work.algorithm == "appo" else Replaying(work, rows, precision, device)


class Peer:
    """Process of another Python that runs a program of bench/peers and answers lines of JSON.

    Parameters
    ----------
    python
        Interpreter that has the library.
    program
        Name of the program in bench/peers.
    arguments
        Arguments of the program.
    """

    def __init__(self, python: Path, program: str, *arguments: str) -> None:
        command = [str(python), str(Path(__file__).with_name("peers") / program), *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._name = program
        self.versions = self._answer()

    def open(self, algorithm: str, rows: int, device: str) -> None:
        """Make the learner and fill its buffer."""
        self._ask({"open": algorithm, "rows": rows, "device": device, "warm_up": WARM_UP, **SETTINGS})

    def seconds(self, updates: int, threads: int, **more: Any) -> float:
        """As of `Learning`."""
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


def _fill(buffer: Any, rows: int, work: Work) -> None:
    """Fill a buffer with random transitions, one in a thousand the last of its episode."""
    random = np.random.default_rng(0)
    writer = buffer.writer(LANES)
    is_image = work.observation.dtype == "uint8"

    def observed() -> np.ndarray:
        shape = LANES, *work.observation.shape
        return random.integers(0, 256, shape, np.uint8) if is_image else random.standard_normal(shape, np.float32)

    obs = observed()
    num_actions = work.action.num_actions
    for _ in range(rows // LANES):
        next_obs = observed()
        numbers = random.uniform(-1.0, 1.0, (LANES, *work.action.shape)).astype(np.float32)
        writer.add(
            obs=obs,
            action=random.integers(0, num_actions, LANES) if num_actions else numbers,
            reward=random.standard_normal(LANES, np.float32),
            next_obs=next_obs,
            terminated=random.random(LANES) < 1e-3,
            truncated=np.zeros(LANES, bool),
            **({"running_return": obs[:, 0]} if "running_return" in buffer.fields else {}),
        )
        obs = next_obs


def compare(name: str, peers: Sequence[Path | None], arguments: argparse.Namespace) -> None:
    """Measure one algorithm in rounds with rotating order, and print its lines."""
    work = WORKS[name]
    precisions = ["float32", *(["bfloat16"] if arguments.bfloat16 else [])]
    ours = {each: learning(work, arguments.rows, each, arguments.device) for each in precisions}
    sb3, sbx = (python if peer in work.peers else None for peer, python in zip(("sb3", "sbx"), peers, strict=True))
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
            peer.open(name, arguments.rows, arguments.device)
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
    for precision, one in ours.items() if arguments.profile else ():
        parts = ", ".join(f"{part} {share:.0%}" for part, share in one.shares(arguments.updates).items())
        print(f"{name:<5} {1:>7}  penstock {precision}: {parts}", flush=True)


def main() -> None:
    """Parse the command, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sb3", type=Path)
    parser.add_argument("--sbx", type=Path)
    parser.add_argument("--device", default="cpu", help="of Penstock and Stable-Baselines3; JAX takes a GPU it finds")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--algorithms", nargs="+", choices=WORKS, default=["td3", "sac", "ddpg"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=416)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    if arguments.updates % 32:
        parser.error(f"--updates {arguments.updates} is not legal: a multiple of 32, as SBX makes 32 in a call")
    if not KEEP_MEMORY.items() <= os.environ.items():  # variables that processes of a run are started with
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})
    print(describe())
    print(
        f"Penstock with torch {torch.__version__}; {HOW_TO_GET_PEERS if not (arguments.sb3 and arguments.sbx) else ''}"
    )
    print(f"updates per second, medians of {arguments.rounds} rounds of {arguments.updates} updates, in turns")
    print(f"{'':<5} {'threads':>7}  {'who':<17} {'updates':>9} {'to sb3':>8} {'to sbx':>8}   slowest and fastest round")
    for name in arguments.algorithms:
        compare(name, (arguments.sb3, arguments.sbx), arguments)


if __name__ == "__main__":
    main()
