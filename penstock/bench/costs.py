"""Costs of a step's real work on this machine, each kind measured alone with all cores busy; and pure simulation."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.bench import BenchError
from penstock.bench.data_paths import Rehearsal, measured_path
from penstock.bench.work import Choosing, Stepping, fill
from penstock.config import Config, ConfigError
from penstock.engine.backends.launcher import LauncherDied
from penstock.engine.backends.local import LocalBackend
from penstock.engine.backends.restarts import Restarts, RoleDied
from penstock.engine.contracts import LeavesNothing
from penstock.engine.messages import Died, Failed
from penstock.engine.paths import data_path
from penstock.engine.preparation import resolve, run_shape, settled_precision
from penstock.engine.roster import infers_centrally, share_threads
from penstock.envs.making import PROBED_LANE
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.ipc import available_cores
from penstock.runs.status import REAL_WORK

ROUND_SECONDS = 0.1
WARM_UP_SECONDS = 0.3
PATIENCE = 120.0  # seconds for start-up, and for a piece of work beyond its planned time


@dataclass(frozen=True)
class Costs:
    """Costs of one step.

    Attributes
    ----------
    env, infer, learn
        CPU seconds, each measured alone with all cores busy.
    env_wait
        Seconds in which the environment sleeps.
    device
        Seconds of the GPU for choosing and learning; 0 without one. Actions are chosen operation by operation here,
        while the engine replays CUDA graphs: a run may exceed the resulting bound.
    """

    env: float
    infer: float
    learn: float
    env_wait: float = 0.0
    device: float = 0.0

    @property
    def env_waits(self) -> bool:
        """Whether environments wait so long that the other measurements are unreliable."""
        return self.env_wait > 0.1 * self.env

    @property
    def all(self) -> float:
        """Sum of the CPU seconds."""
        return self.env + self.infer + self.learn


@dataclass(frozen=True)
class Capacity:
    """Roles available for the work of a run, by its settings.

    Attributes
    ----------
    cores
        Cores' worth of time that the run may use.
    workers
        Rollout workers.
    policy_threads
        Threads of the policy worker; 0: rollout workers choose the actions themselves.
    learner_threads
        Threads of the learner; 0: rollout workers learn themselves.
    takes_turns
        Whether stepping pauses while the learner learns.
    precision
        Precision of the network's body.
    """

    cores: float
    workers: int
    policy_threads: int
    learner_threads: int
    takes_turns: bool
    precision: str


@dataclass(frozen=True)
class Round:
    """One stretch of work: its steps, CPU seconds, wall-clock seconds, and seconds asleep."""

    steps: float
    cpu: float
    wall: float
    asleep: float


def measure_costs(algorithm_class: type[Algorithm], config: Config, *, seconds: float) -> tuple[Costs, Capacity]:
    """Measure the costs of a run's step, and return them with the roles available.

    Parameters
    ----------
    algorithm_class, config
        The run.
    seconds
        Duration of all measurements, without start-up.

    Raises
    ------
    BenchError
        Some work failed.
    """
    env, algorithm, shape = laid_out(algorithm_class, config)
    capacity = capacity_of(algorithm)
    arena = ExperienceArena.create(shape)
    fill(arena, algorithm, env, PROBED_LANE)
    is_on_device = torch.device(config.device).type != "cpu"
    chooses_on_device = is_on_device and capacity.policy_threads > 0
    with WorkPool(arena) as pool:
        cores = math.ceil(available_cores())  # enough to keep all busy
        choosing = functools.partial(
            Choosing,
            algorithm=algorithm,
            num_lanes=shape.group_size * (shape.num_workers if capacity.policy_threads else 1),
            device=config.device if chooses_on_device else "cpu",
        )
        learning = functools.partial(measured_path(algorithm).rehearsal, algorithm=algorithm)
        for number in range(cores):
            pool.add("env", 1, functools.partial(Stepping, env=env, config=config, number=number))
        for _ in range(1 if chooses_on_device else max(1, cores // max(1, capacity.policy_threads))):
            pool.add("infer", max(1, capacity.policy_threads), choosing)
        for _ in range(1 if is_on_device else max(1, cores // max(1, capacity.learner_threads))):
            pool.add("learn", max(1, capacity.learner_threads), learning)
        pool.start()
        stepped, chosen, learned = (pool.measure(kind, seconds / 3) for kind in REAL_WORK)
    costs = Costs(
        env=sum(one.cpu for one in stepped) / sum(one.steps for one in stepped),  # a mean, to include rare resets
        infer=_median(chosen, "cpu"),
        learn=_median(learned, "cpu"),
        env_wait=sum(one.asleep for one in stepped) / sum(one.steps for one in stepped),
        device=is_on_device * _median(learned, "wall") + chooses_on_device * _median(chosen, "wall"),
    )
    return costs, capacity


def laid_out(algorithm_class: type[Algorithm], config: Config) -> tuple[EnvSpec, Algorithm, RunShape]:
    """Return environment, algorithm and shape of a run."""
    found = resolve(config)
    if len(found.policies) > 1:
        raise ConfigError(f"{len(found.policies)} policies learn in this run: measure one policy of all agents")
    if found.config.opponents != "none":
        raise ConfigError("lanes of opponents are not learned from: measure this run with opponents='none'")
    if found.config.num_learners > 1:
        raise ConfigError(
            f"num_learners={found.config.num_learners} share the updates of this run: measure one, with num_learners=1"
        )
    (seen,) = found.seen
    algorithm = algorithm_class(found.config, seen.observation, seen.action)
    return found.env, algorithm, run_shape(algorithm, algorithm.make_model())


def capacity_of(algorithm: Algorithm) -> Capacity:
    """Return the roles available for the work."""
    config, path = algorithm.config, data_path(algorithm)
    is_central = infers_centrally(config.inference, algorithm)
    is_serial = config.backend == "serial"
    policy_threads, learner_threads = share_threads(config, config.workers, is_central)
    return Capacity(
        cores=1 if is_serial else available_cores(),
        workers=1 if is_serial else config.workers,
        policy_threads=policy_threads if is_central else 0,
        learner_threads=0 if path.workers_learn else learner_threads,
        takes_turns=is_serial or algorithm.synchronous,
        precision=settled_precision(algorithm),
    )


def _median(rounds: list[Round], of: str) -> float:
    return statistics.median(getattr(one, of) / one.steps for one in rounds)


def rounds_until(work: Rehearsal, end: float) -> list[Round]:
    """Repeat a piece of work until `end` (monotonic seconds), at least once."""
    rounds: list[Round] = []
    while not rounds or time.monotonic() < end:
        steps, delayed, cpu, began = 0.0, _delayed(), time.process_time(), time.monotonic()
        while not steps or time.monotonic() < began + ROUND_SECONDS:
            steps += work.do()
        wall, cpu, delayed = time.monotonic() - began, time.process_time() - cpu, _delayed() - delayed
        rounds.append(Round(steps, cpu, wall, asleep=max(0.0, wall - cpu - delayed)))
    return rounds


def _delayed() -> float:
    """Return seconds in which threads of this process were ready to run without a core; 0 if unknown."""
    try:
        schedules = [file.read_text().split() for file in Path("/proc/self/task").glob("*/schedstat")]
    except OSError:  # a thread has just ended
        return 0.0
    return sum(int(waited) for _, waited, _ in schedules) / 1e9


@dataclass(frozen=True)
class _WorkRole(LeavesNothing):
    """Process that does one kind of work on command, started like the engine's roles."""

    name: str
    num_threads: int
    make: Callable[[ExperienceArena], Rehearsal]
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Callable[[Any], None]) -> _Worker:
        return _Worker(arena, self.make(arena), report)


class _Worker:
    """Role that does one kind of work."""

    def __init__(self, arena: ExperienceArena, work: Rehearsal, report: Callable[[Any], None]) -> None:
        self.bell = arena.learner_bell
        self._work = work
        self._report = report
        rounds_until(work, time.monotonic() + WARM_UP_SECONDS)
        report("made")

    def poll(self) -> bool:
        return False

    def handle(self, command: Any) -> None:
        """Work until a time (monotonic seconds)."""
        self._report(rounds_until(self._work, command))

    def close(self) -> None:
        self._work.close()


class WorkPool:
    """Processes that do the work; all are ended on exit."""

    def __init__(self, arena: ExperienceArena) -> None:
        self._arena = arena
        self._specs: dict[str, list[_WorkRole]] = {}
        self._reports: dict[str, Any] = {}

    def add(self, kind: str, num_threads: int, make: Callable[[ExperienceArena], Rehearsal]) -> None:
        """Add a process for a kind of work."""
        of_kind = self._specs.setdefault(kind, [])
        of_kind.append(_WorkRole(f"{kind}-{len(of_kind)}", num_threads, make))

    def start(self) -> None:
        """Start the processes and wait until all are ready."""
        specs = [spec for of_kind in self._specs.values() for spec in of_kind]
        self._backend = LocalBackend(self._arena, specs, self._receive, Restarts(forgive_environments=False))
        self._backend.start()
        self._wait_for([spec.name for spec in specs], PATIENCE)

    def measure(self, kind: str, seconds: float) -> list[Round]:
        """Run all processes of a kind at the same time; return their rounds."""
        names = [spec.name for spec in self._specs[kind]]
        end = time.monotonic() + seconds
        for name in names:
            self._backend.send(name, end)  # type: ignore[arg-type]
        rounds = self._wait_for(names, seconds + PATIENCE)
        return [one for name in names for one in rounds[name]]

    def _wait_for(self, names: list[str], seconds: float) -> dict[str, Any]:
        end = time.monotonic() + seconds
        while not self._reports.keys() >= set(names):
            if time.monotonic() > end:
                silent = ", ".join(sorted(set(names) - self._reports.keys()))
                raise BenchError(f"measuring alone: {silent} gave no answer within {seconds:.0f} s: it hangs")
            try:
                self._backend.pump(0.1)
            except (RoleDied, LauncherDied) as error:
                raise BenchError(f"measuring alone: {error}") from error
        reports, self._reports = self._reports, {}
        return reports

    def _receive(self, role: str, report: Any) -> None:
        if isinstance(report, Failed | Died):
            story = report.text if isinstance(report, Failed) else report.story
            raise BenchError(f"measuring alone, {role} failed:\n{story}")
        self._reports[role] = report

    def __enter__(self) -> WorkPool:
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "_backend"):
            self._backend.close()


def simulation_rate(algorithm: type[Algorithm], config: Config, processes: int, *, seconds: float) -> float:
    """Measure a run's environments with random actions, in several processes; return steps per second.

    Parameters
    ----------
    algorithm, config
        The run. Each process makes and steps a group of lanes as a rollout worker does.
    processes
        Number of processes.
    seconds
        Duration, start-up excluded.

    Raises
    ------
    BenchError
        An environment failed.
    """
    env, _, shape = laid_out(algorithm, config)
    arena = ExperienceArena.create(dataclasses.replace(shape, slots_per_lane=1, segment_length=1))  # stores nothing
    with WorkPool(arena) as pool:
        for number in range(processes):
            pool.add("env", 1, functools.partial(Stepping, env=env, config=config, number=number))
        pool.start()
        rounds = pool.measure("env", seconds)
    return processes * sum(one.steps for one in rounds) / sum(one.wall for one in rounds)
