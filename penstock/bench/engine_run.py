"""A training that is only measured: how fast it learns, and where every process's time goes meanwhile."""

from __future__ import annotations

import contextlib
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

__all__ = ["EngineRun", "RoleTime", "run_engine"]


@dataclass(frozen=True)
class EngineRun:
    """Observations of a training during a window of time.

    Attributes
    ----------
    steps
        Learned from.
    seconds
        Length of the window.
    roles
        How each role spent it.
    cpu_seconds
        Of all processes of the run, the supervisor's too. The launcher sleeps.
    other_programs
        CPU seconds that everything else on the same cores took meanwhile.
    limiting_role, limiting_reason
        What held the run back, and why.
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
    """Train for a while, and see how it goes.

    Nothing is evaluated or written. What is seen begins and ends at reports of the learner, because what it learns
    between two of them is all or nothing.

    Parameters
    ----------
    algorithm, config
        What is trained, and how.
    seconds
        Length of the window, or a little more.
    warmup
        Seconds before it, counted from the first update: starting, and filling a replay buffer, is not seen.
    patience
        Seconds until a training that has not come to the end of the window by then is given up.

    Raises
    ------
    BenchError
        It was given up, or ended before there was anything to measure.
    TrainingFailed, EnvironmentFailure
        Something in the run failed; the command line tells it as a failure of the bench.
    TrainingInterrupted
        Ctrl-C or SIGTERM came.
    """
    config = dataclasses.replace(
        config, run_dir=None, eval_interval=0, target_return=None, max_seconds=None, total_steps=10**12
    )
    with Trainer(algorithm, config) as trainer:
        window = _Window(trainer._supervisor.progress, seconds, warmup, patience)
        with contextlib.suppress(_WindowIsOver):
            trainer.train(on_update=window.look, quiet=True)
        return window.seen()


class _WindowIsOver(Exception):
    """Enough was seen of the training."""


class _Window:
    """Looks at a training now and then, and ends it."""

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

    def look(self, status: Status) -> None:
        if time.monotonic() >= self._closes:
            done = f"{status.steps:,} steps and {status.updates:,} updates"
            raise BenchError(f"given up after {self._patience:.3g} s, in which there were {done}")
        if not status.updates:
            return
        if self._opens is None:
            self._opens = time.monotonic() + self._warmup
        self._last = self._progress.last_report
        if self._last is None or self._last.time < self._opens:
            return
        if self._first is None:
            self._first, self._busy = self._last, busy_seconds()
        if self._last.time >= self._first.time + self._seconds:
            self._busy = busy_seconds() - self._busy
            raise _WindowIsOver

    def seen(self) -> EngineRun:
        if self._first is None or self._last is None:
            raise BenchError("the training ended before there was anything to measure")
        roles = self._progress.role_times(self._first, self._last)
        of_roles = sum(sum(role.cpu.values()) for role in roles.values())
        cpu_seconds = of_roles + self._last.own_cpu - self._first.own_cpu
        limiting_role, limiting_reason = self._progress.limiting(roles)
        return EngineRun(
            steps=self._last.steps - self._first.steps,
            seconds=self._last.time - self._first.time,
            roles=tuple(roles.values()),
            cpu_seconds=cpu_seconds,
            other_programs=max(0.0, self._busy - cpu_seconds),
            limiting_role=limiting_role,
            limiting_reason=limiting_reason,
        )
