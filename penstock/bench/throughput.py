"""Steps per second that APPO learns from, next to pure simulation.

Contestants take turns: only one runs at a time, in a rotating order, and medians of the rounds are compared. Start-up
is not counted. ``python bench/throughput.py`` of the source adds other libraries as contestants.

On a GPU the network runs with central inference and in bfloat16, and pure simulation is also measured: the same
environments with random actions, on all cores, and with as many processes as rollout workers.

penstock bench throughput --device cuda --workload pong vizdoom
"""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.bench import BenchUsageError, require_new
from penstock.config import closest
from penstock.flags import parse_flags
from penstock.ipc import available_cores
from penstock.runs.machine import describe, machine_facts

if TYPE_CHECKING:
    from penstock.algorithms.appo import APPOConfig

_FRAMES_ON_GPU = 100_000
_OF_ALL_CORES, _OF_WORKERS_CORES = 0.8, 0.9
"""Required frames per second, and required shares of pure simulation, on a GPU."""
_WIDTHS = {"work": 15, "who": 17, "steps/s": 9, "frames/s": 9, "slowest-fastest": 19, "ratio": 6, "mark": 7, "met": 3}


@dataclass(frozen=True)
class Flags:
    """Measure steps learned from per second with APPO; each workload takes half a minute."""

    workload: tuple[str, ...] = ("cartpole",)
    """Workloads: cartpole, cartpole-vector, pong, pong-bfloat16, lunarlander, halfcheetah, vizdoom."""
    device: str = "cpu"
    """Device of the network; "cuda" implies central inference, bfloat16 and pure simulation."""
    simulation: bool = False
    """Also measure pure simulation: the same environments with random actions, on all cores and with as many processes
    as rollout workers."""
    rounds: int = 3
    """Number of rounds, whose medians are shown."""
    seconds: float = 10.0
    """Seconds of each contestant per round."""
    json: Path | None = None
    """File for all rounds, with machine, versions, settings and commit."""


@dataclass(frozen=True)
class Workload:
    """Environment and settings of APPO."""

    settings: dict[str, Any]
    module: str | None = None
    """Required packages besides Penstock."""
    install: str = ""
    """Command that installs the requirements."""
    frame_skip: int = 1
    """Frames per step."""

    def config(self, device: str) -> APPOConfig:
        """Return the settings for a device."""
        from penstock.algorithms.appo import APPOConfig  # imports torch, which flags do not need

        return APPOConfig(**self.settings | ({} if device == "cpu" else {"device": device, **_ON_GPU}))


_ON_GPU = {"inference": "central", "precision": "bfloat16"}
_ONE_EPOCH = {"segment_length": 32, "num_minibatches": 1, "num_epochs": 1, "shared_encoder": True}
_CARTPOLE = {
    **_ONE_EPOCH, "env": "CartPole-v1", "num_envs_per_worker": 256, "batch_size": 8192, "hidden_sizes": (64, 64),
    "normalize_observations": False,
}  # fmt: skip
_PONG = {
    **_ONE_EPOCH, "env": "ALE/Pong-v5", "num_envs_per_worker": 32, "batch_size": 512, "encoder": "nature_cnn",
}  # fmt: skip
_ATARI = "pip install 'penstock[atari]'"

WORKLOADS = {
    "cartpole": Workload(_CARTPOLE),
    "cartpole-vector": Workload({**_CARTPOLE, "vectorize": "vector", "num_envs_per_worker": 512, "batch_size": 16384}),
    "pong": Workload(_PONG, "ale_py", _ATARI, frame_skip=4),
    "pong-bfloat16": Workload({**_PONG, "precision": "bfloat16"}, "ale_py", _ATARI, frame_skip=4),
    "lunarlander": Workload(
        {**_CARTPOLE, "env": "LunarLander-v3"}, module="Box2D", install="pip install 'gymnasium[box2d]'"
    ),
    "halfcheetah": Workload(
        {**_CARTPOLE, "env": "HalfCheetah-v5", "num_envs_per_worker": 128}, module="mujoco",
        install="pip install 'penstock[mujoco]'",
    ),
    "vizdoom": Workload(
        {
            **_PONG, "env": "VizdoomBasic-v1", "batch_size": 2048,
            "env_kwargs": {"frame_skip": 4, "screen_resolution": "RES_160X120"},
        },
        module="vizdoom", install="pip install 'penstock[vizdoom]'", frame_skip=4,
    ),
}  # fmt: skip
"""Measurable workloads, by their names on the command line."""


@dataclass(frozen=True)
class Contestant:
    """Program that does the same work."""

    name: str
    rate: Callable[[float], tuple[float, str]]
    """Function of the seconds that returns steps per second, and the settings in words."""
    mark: float | None = None
    """Required ratio of Penstock's rate."""


@dataclass(frozen=True)
class Result:
    """Measurements of one workload."""

    work: str
    rounds: dict[str, list[float]]
    """Steps per second of each round, by contestant: "penstock" and the names of rivals."""
    marks: dict[str, float]
    """Required ratio to a rival; for "penstock", required frames per second."""
    limits: list[str] = field(default_factory=list)
    """Limiting role of Penstock in each round."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of each contestant."""
    frame_skip: int = 1
    """Frames per step."""

    def median(self, who: str) -> float:
        """Return the median of the rounds."""
        return statistics.median(self.rounds[who])

    def frames(self, who: str) -> float:
        """Frames per second."""
        return self.frame_skip * self.median(who)

    def ratio(self, rival: str) -> float:
        """Return the ratio of Penstock's rate to a rival's."""
        return self.median("penstock") / self.median(rival)

    def met(self, who: str) -> bool | None:
        """Return whether the mark is met; None without a mark."""
        if who not in self.marks:
            return None
        return (self.frames(who) if who == "penstock" else self.ratio(who)) >= self.marks[who]

    @property
    def rivals(self) -> list[str]:
        """Contestants other than Penstock."""
        return [who for who in self.rounds if who != "penstock"]

    def facts(self) -> dict:
        """Return all results, for a JSON file."""
        compared = {who: {"ratio": self.ratio(who), "met": self.met(who)} for who in self.rivals}
        medians = {who: self.median(who) for who in self.rounds}
        return {**asdict(self), "medians": medians, "frames": self.frames("penstock"), "compared": compared}


def command(args: list[str]) -> bool:
    """Run with flags from a command line; return whether all marks are met."""
    return run(parse_flags(Flags, args, prog="penstock bench throughput"))


def run(flags: Flags, contestants: Mapping[str, Sequence[Contestant]] | None = None) -> bool:
    """Measure, print a table, and return whether all comparable marks are met.

    Parameters
    ----------
    flags
        Flags of the command.
    contestants
        Further contestants by workload; None: no comparison with other libraries.

    Raises
    ------
    BenchUsageError
        A flag is not legal, or an environment is not installed.
    BenchError, TrainingFailed, EnvironmentFailure
        A contestant cannot be run, or a training fails.
    ConfigError
        The device is not available.
    """
    check(flags)
    from penstock.engine.backends.launcher import kept

    machine = machine_facts()
    print(describe(machine))
    print(f"steps learned from per second, medians of {flags.rounds} rounds of {flags.seconds:g} s each, taking turns")
    print(_header(), flush=True)
    results = []
    with kept():
        for name in flags.workload:
            results.append(_measure(name, flags, (contestants or {}).get(name, ())))
            print("\n".join(_lines(results[-1])), flush=True)
    for result in results:
        print(f"{result.work}: {result.limits[-1]}")
        for who in result.rivals:
            print(f"{result.work}, {who}: {result.settings[who]}")
    _conclude(results, is_compared=contestants is not None)
    if flags.json is not None:
        document = {
            "machine": machine, "rounds": flags.rounds, "seconds": flags.seconds,
            "settings": {result.work: result.settings for result in results},
            "measured": [result.facts() for result in results],
        }  # fmt: skip
        flags.json.write_text(json.dumps(document, indent=1) + "\n")
    return all(result.met(who) is not False for result in results for who in result.rounds)


def check(flags: Flags) -> None:
    """Raise `BenchUsageError` or `ConfigError` if the flags cannot be measured here."""
    if not flags.workload:
        raise BenchUsageError(f"--workload names nothing to measure (legal: {', '.join(WORKLOADS)})")
    for name in flags.workload:
        if name not in WORKLOADS:
            hint = f"{closest(name, list(WORKLOADS))} (legal: {', '.join(WORKLOADS)})"
            raise BenchUsageError(f"--workload {name} is unknown{hint}")
        work = WORKLOADS[name]
        if work.module is not None and importlib.util.find_spec(work.module) is None:
            raise BenchUsageError(f"--workload {name} needs more than Penstock itself: {work.install}")
    if flags.device != "cpu":
        from penstock.engine.preparation import require_device

        require_device(WORKLOADS[flags.workload[0]].config(flags.device).device)
    if flags.rounds < 1:
        raise BenchUsageError(f"--rounds {flags.rounds} is not legal: measure 1 or more")
    if not flags.seconds > 0:
        raise BenchUsageError(f"--seconds {flags.seconds:g} is not legal: more than 0")
    require_new(flags.json)


def _measure(name: str, flags: Flags, contestants: Sequence[Contestant]) -> Result:
    """Measure rounds in which every contestant has a turn."""
    work = WORKLOADS[name]
    config, seconds = work.config(flags.device), flags.seconds
    result = Result(name, {}, {}, settings={"penstock": config.to_json()}, frame_skip=work.frame_skip)
    players: dict[str, Callable[[], float]] = {"penstock": partial(_penstock, config, seconds, result.limits)}
    for contestant in contestants:
        players[contestant.name] = partial(_contestant, contestant, seconds, result.settings)
        if contestant.mark is not None:
            result.marks[contestant.name] = contestant.mark
    if flags.simulation or flags.device != "cpu":
        cores = math.ceil(available_cores())  # enough to keep all busy
        for processes, mark in ((cores, _OF_ALL_CORES), (config.workers, _OF_WORKERS_CORES)):
            who = f"simulation x{processes}"
            players[who] = partial(_simulation, config, processes, seconds)
            result.settings[who] = f"random actions, {processes} processes on {cores} cores"
            if flags.device != "cpu":
                result.marks[who] = mark  # if both numbers of processes are equal, the higher mark
    if flags.device != "cpu" and work.frame_skip > 1:
        result.marks["penstock"] = _FRAMES_ON_GPU
    result.rounds.update({who: [] for who in players})
    for turn in range(flags.rounds):
        for who in sorted(players, key=lambda who: ([*players].index(who) - turn) % len(players)):
            rate = players[who]()
            result.rounds[who].append(rate)
            said = f"{name}, round {turn + 1} of {flags.rounds}: {who} {rate:,.0f} steps/s"
            print(said, file=sys.stderr, flush=True)
    return result


def _penstock(config: APPOConfig, seconds: float, limits: list[str]) -> float:
    from penstock.algorithms.appo import APPO
    from penstock.bench.engine_run import run_engine

    seen = run_engine(APPO, config, seconds=seconds)
    limits.append(f"limited by {seen.limiting_role}, {seen.limiting_reason}")
    return seen.rate


def _simulation(config: APPOConfig, processes: int, seconds: float) -> float:
    from penstock.algorithms.appo import APPO
    from penstock.bench.costs import simulation_rate

    return simulation_rate(APPO, config, processes, seconds=seconds)


def _contestant(contestant: Contestant, seconds: float, settings: dict[str, Any]) -> float:
    rate, settings[contestant.name] = contestant.rate(seconds)
    return rate


def _header() -> str:
    rule = "|".join("-" * (width + 1) + ("-" if name in ("work", "who") else ":") for name, width in _WIDTHS.items())
    return f"{_line(*_WIDTHS)}\n|{rule}|"


def _lines(result: Result) -> list[str]:
    """Return lines of the table: Penstock, and rivals with the ratio of Penstock's rate to theirs."""
    lines = []
    for who, rounds in result.rounds.items():
        ratio = "-" if who == "penstock" else f"{result.ratio(who):.2f}x"
        met = {None: "-", True: "yes", False: "NO"}[result.met(who)]
        frames = f"{result.frames(who):,.0f}" if result.frame_skip > 1 else "-"
        spread = f"{min(rounds):,.0f}-{max(rounds):,.0f}"
        lines.append(
            _line(result.work, who, f"{result.median(who):,.0f}", frames, spread, ratio, _mark(result, who), met)
        )
    return lines


def _mark(result: Result, who: str) -> str:
    if who not in result.marks:
        return "-"
    return f"{result.marks[who]:,.0f}" if who == "penstock" else f"{result.marks[who]:g}x"


def _line(*cells: str) -> str:
    aligned = [
        f"{cell:<{width}}" if name in ("work", "who") else f"{cell:>{width}}"
        for cell, (name, width) in zip(cells, _WIDTHS.items(), strict=True)
    ]
    return f"| {' | '.join(aligned)} |"


def _conclude(results: list[Result], is_compared: bool) -> None:
    """Print the number of marks met, the missed ones, and how to compare."""
    judged = [(result, who) for result in results for who in result.rounds if who in result.marks]
    missed = [(result, who) for result, who in judged if not result.met(who)]
    if judged:
        print(f"{len(judged) - len(missed)} of {len(judged)} marks hold")
    for result, who in missed:
        reached = f"{result.frames(who):,.0f}" if who == "penstock" else f"{result.ratio(who):.2f}x"
        of = "frames/s" if who == "penstock" else who
        print(f"  missed: {result.work}, {reached} of {_mark(result, who)} {of}")
    if not is_compared and not any(result.rivals for result in results):
        print("no comparison: --simulation adds pure simulation, bench/throughput.py of the source other libraries")
