"""Pool of jobs (processes with cores of their own) that runs until no job is left."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.config import ConfigError
from penstock.ipc import whole_cores
from penstock.runs.process import Installed, child_setup
from penstock.runs.vacancy import RunDirectoryError

PAUSE = 0.2
"""Seconds between two polls of the jobs."""
LOST = -255
"""Result of a training whose machine was lost: it can be resumed elsewhere."""
MOST_LOSSES = 5  # of a training's process or machine without a new checkpoint: the training may be the cause
_SAME = 0.5  # seconds within which signals count as one: `timeout` signals the process and its group


class Job(Protocol):
    """Job with cores of its own."""

    @property
    def cores(self) -> Collection[int]:
        """Cores of the job."""

    def poll(self) -> Any:
        """Return the result of the job, or None while it runs."""

    def stop(self) -> None:
        """Request a regular end; it may be called again."""

    def kill(self) -> None:
        """End the job now; it may be called again."""


class Command(NamedTuple):
    """Command of a training: this process's Python with its arguments, and the files that it uses."""

    words: Sequence[str]
    output: Path  # file that the output is appended to
    run: Path  # run directory that it makes or resumes
    reads: Sequence[Path] = ()  # other files and folders that it reads
    given: Any = ()  # settings of the user, which may name code
    inherited: Sequence[int] = ()  # file descriptors, on this machine only


class Needs(NamedTuple):
    """Resources that a training needs on another machine."""

    cores: int = 1
    gpus: int = 0

    def __str__(self) -> str:
        parts = [(self.cores, "core"), (self.gpus, "GPU")]
        return " and ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in parts if count)


class Place(list[int]):
    """Place for a training on another machine, used instead of a list of this machine's cores.

    `start` starts a training there; its result has the methods `poll`, `send_signal` and `kill` of `subprocess.Popen`.
    """

    start: Callable[[Command], Any]


def with_loss(before: tuple[int, int], checkpoint: Mapping[str, Any] | None) -> tuple[int, int]:
    """Return the steps of a training's last checkpoint, and the number of losses since, after one more loss."""
    steps = -1 if checkpoint is None else int(checkpoint["steps"])
    return steps, before[1] + 1 if steps == before[0] else 1


class Training:
    """Process of a training, which ends cleanly on request or when this process ends for any reason.

    Parameters
    ----------
    command
        The command.
    cores
        Cores that it may use, or its `Place`.
    patience
        Seconds from the request to end until it is killed.
    """

    def __init__(self, command: Command, cores: Collection[int], patience: float = math.inf) -> None:
        self.output, self.cores, self.is_stopping = command.output, cores, False
        self._patience, self._kill_at = patience, math.inf
        self._process: Any = cores.start(command) if isinstance(cores, Place) else _start_here(command, cores)

    def poll(self) -> int | None:
        """Return the exit code, or `LOST`; None while it runs."""
        code: int | None = self._process.poll()
        if code is None and time.monotonic() > self._kill_at:
            self._process.kill()
        return code

    def stop(self) -> None:
        """Request a clean end; it may be called again."""
        if not self.is_stopping:
            self.is_stopping, self._kill_at = True, time.monotonic() + self._patience
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the process now; its roles end by themselves."""
        self.is_stopping = True
        self._process.kill()

    def lines(self) -> list[str]:
        """Return the lines of the output."""
        try:
            return self.output.read_text(errors="replace").strip().splitlines()
        except OSError:
            return []


def _start_here(command: Command, cores: Collection[int]) -> subprocess.Popen[bytes]:
    if command.output.is_symlink():
        raise RunDirectoryError(f"{command.output} is a link, and the output would go to its target: remove it")
    with open(command.output, "ab") as file:
        return subprocess.Popen(
            command.words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0,
            pass_fds=command.inherited, preexec_fn=child_setup(cores),
        )  # fmt: skip


J = TypeVar("J", bound=Job)


def split_cores(jobs: int) -> list[list[int]]:
    """Split this process's cores equally among jobs, without sharing, within the CPU quota of the cgroup.

    Raises
    ------
    ConfigError
        There are fewer cores than jobs.
    """
    cores, each = sorted(os.sched_getaffinity(0)), whole_cores() // jobs
    if each < 1:
        raise ConfigError(
            f"--jobs {jobs} is not legal: this process may use {whole_cores()} cores, and each job needs one of its own"
        )
    if jobs == 1:
        return [cores]
    return [cores[first : first + each] for first in (job * len(cores) // jobs for job in range(jobs))]


class Jobs(Generic[J]):
    """Running jobs, and the free cores.

    Parameters
    ----------
    cores
        Cores of each job.

    Attributes
    ----------
    free
        Sets of cores without a job.
    at_work
        Running jobs.
    """

    def __init__(self, cores: Sequence[Sequence[int]]) -> None:
        self.free: list[Collection[int]] = list(cores)
        self.at_work: list[J] = []
        self._signals: list[float] = []

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal requested the end."""
        return bool(self._signals)

    def add(self, job: J) -> None:
        """Add a job that runs on free cores."""
        self.free.remove(job.cores)
        self.at_work.append(job)

    def run(
        self, begin: Callable[[], None], ended: Callable[[J, Any], None], *, is_over: Callable[[], bool],
        is_left: Callable[[], bool],
    ) -> None:  # fmt: skip
        """Run jobs until none is left, or until Ctrl-C, SIGTERM or a closed terminal.

        The first signal stops the jobs, the second kills them. No job survives an exception.

        Parameters
        ----------
        begin
            Starts jobs on free cores.
        ended
            Called with an ended job, whose cores are free again, and its result.
        is_over
            Returns whether no further job may start.
        is_left
            Returns whether further jobs may start later.
        """
        with self._noting_signals():
            try:
                while True:
                    self._poll(ended)
                    stops = self.is_interrupted or is_over()
                    if stops:
                        self._stop()
                    else:
                        begin()
                    if not self.at_work and (stops or not is_left()):
                        break
                    time.sleep(PAUSE)
            finally:
                while self.at_work:
                    self._stop()
                    self._poll(ended)
                    time.sleep(PAUSE / 10)

    def _poll(self, ended: Callable[[J, Any], None]) -> None:
        for job in list(self.at_work):
            if (ending := job.poll()) is not None:
                self.at_work.remove(job)
                self.free.append(job.cores)
                ended(job, ending)

    def _stop(self) -> None:
        is_urgent = self.is_interrupted and self._signals[-1] > self._signals[0] + _SAME
        for job in self.at_work:
            if is_urgent:
                job.kill()
            job.stop()

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """Record ending signals within the block, so that no write is interrupted."""

        def note(number: int, frame: FrameType | None) -> None:
            self._signals.append(time.monotonic())

        installed = Installed(note)
        try:
            yield
        finally:
            installed.remove()
