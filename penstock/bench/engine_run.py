"""Training for measurement: its rate, and each process's use of time."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.bench import BenchError
from penstock.config import Config
from penstock.engine.trainer import Trainer
from penstock.engine.watching.progress import Progress
from penstock.engine.watching.time_spent import Moment, RoleTime, busy_seconds
from penstock.runs.status import Status


@dataclass(frozen=True)
class EngineRun:
    """Observations of a training during a time window.

    Attributes
    ----------
    steps
        Steps learned from.
    seconds
        Length of the window.
    roles
        Time use of each role in the window.
    cpu_seconds
        CPU seconds of all processes of the run, including the supervisor. The launcher sleeps.
    other_programs
        CPU seconds of other programs on the same cores.
    limiting_role, limiting_reason
        Role that limited the run, and the reason.
    """

    steps: int
    seconds: float
    roles: tuple[RoleTime, ...]
    cpu_seconds: float
    other_programs: float
    limiting_role: str
    limiting_reason: str

    @property
    def rate(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def run_engine(
    algorithm: type[Algorithm], config: Config, *, seconds: float, warmup: float = 2.0, patience: float = math.inf
) -> EngineRun:
    """Train for a while and observe the run.

    Nothing is evaluated or written. The window begins and ends at reports of the learner, because steps are counted
    only there.

    Parameters
    ----------
    algorithm, config
        The run.
    seconds
        Length of the window, or a little more.
    warmup
        Seconds before the window, counted from the first update: excludes start-up and filling of a replay buffer.
    patience
        Seconds after which a training that has not reached the window's end is given up.

    Raises
    ------
    BenchError
        The training was given up, or ended before the window.
    TrainingFailed, EnvironmentFailure
        A part of the run failed; the command line reports it as a failure of the bench.
    TrainingInterrupted
        Ctrl-C or SIGTERM arrived.
    """
    config = dataclasses.replace(
        config, run_dir=None, eval_interval=0, target_return=None, max_seconds=None, total_steps=10**12
    )
    with Trainer(algorithm, config) as trainer:
        window = _Window(trainer._supervisor.progress, seconds, warmup, patience)
        trainer.train(on_update=window.look, quiet=True)
        return window.seen()


class _Window:
    """Observes a training at intervals, and ends it."""

    def __init__(self, progress: Progress, seconds: float, warmup: float, patience: float) -> None:
        self._progress = progress
        self._seconds = seconds
        self._warmup = warmup
        self._patience = patience
        self._closes = time.monotonic() + patience
        self._opens: float | None = None
        self._busy = 0.0
        self._first: Moment | None = None
        self._last: Moment | None = None

    def look(self, status: Status) -> bool:
        """Observe the training; return False at the end of the window."""
        if time.monotonic() >= self._closes:
            done = f"{status.steps:,} steps and {status.updates:,} updates"
            raise BenchError(f"given up after {self._patience:.3g} s, with {done}")
        if not status.updates:
            return True
        if self._opens is None:
            self._opens = time.monotonic() + self._warmup
        self._last = self._progress.last_report
        if self._last is None or self._last.time < self._opens:
            return True
        if self._first is None:
            self._first, self._busy = self._last, busy_seconds()
        if self._last.time >= self._first.time + self._seconds:
            self._busy = busy_seconds() - self._busy
            return False
        return True

    def seen(self) -> EngineRun:
        if self._first is None or self._last is None:
            raise BenchError("the training ended before there was anything to measure")
        roles = self._progress.role_times(self._first, self._last)
        of_roles = sum(sum(role.cpu.values()) for role in roles.values())
        cpu_seconds = of_roles + self._last.own_cpu - self._first.own_cpu
        limiting_role, limiting_reason = self._progress.limiting(roles)
        return EngineRun(
            steps=self._last.steps - self._first.steps, seconds=self._last.time - self._first.time,
            roles=tuple(roles.values()), cpu_seconds=cpu_seconds, other_programs=max(0.0, self._busy - cpu_seconds),
            limiting_role=limiting_role, limiting_reason=limiting_reason,
        )  # fmt: skip
