"""Several processes at work at once, each on cores of its own, until there is nothing left to do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from penstock.ipc import whole_cores
from penstock.runs.process import Installed

PAUSE = 0.2
"""Seconds between two looks at the jobs."""
_SAME = 0.5  # seconds within which signals are one: `timeout` sends it to the process and to its group


class Job(Protocol):
    """Job with cores of its own."""

    @property
    def cores(self) -> Collection[int]:
        """Those that it may use."""

    def poll(self) -> Any:
        """Look at it: what came of it, or None while it is at work."""

    def stop(self) -> None:
        """Ask it to end in good order; it may be asked again."""

    def kill(self) -> None:
        """End it now; this may be asked for again."""


J = TypeVar("J", bound=Job)


def split_cores(jobs: int) -> list[list[int]]:
    """Cores for each of so many jobs: as many for each, none for two, no more than the cgroup grants the time of.

    Raises
    ------
    ValueError
        There are fewer cores than jobs.
    """
    cores, each = sorted(os.sched_getaffinity(0)), whole_cores() // jobs
    if each < 1:
        raise ValueError(
            f"--jobs {jobs} is not legal: this process may use {whole_cores()} cores, and each job needs one of its own"
        )
    if jobs == 1:
        return [cores]
    return [cores[first : first + each] for first in (job * len(cores) // jobs for job in range(jobs))]


class Jobs(Generic[J]):
    """Jobs at work, and the cores that are free.

    Parameters
    ----------
    cores
        Of each job.

    Attributes
    ----------
    free
        Cores of jobs that are yet to begin.
    at_work
        Those that have begun.
    """

    def __init__(self, cores: Sequence[Sequence[int]]) -> None:
        self.free = [list(each) for each in cores]
        self.at_work: list[J] = []
        self._signals: list[float] = []

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal asked for the end."""
        return bool(self._signals)

    def add(self, job: J) -> None:
        """Take a job that has begun on cores which were free."""
        self.free.remove(list(job.cores))
        self.at_work.append(job)

    def run(
        self,
        begin: Callable[[], None],
        ended: Callable[[J, Any], None],
        *,
        is_over: Callable[[], bool],
        is_left: Callable[[], bool],
    ) -> None:
        """Work until nothing is left to do, or it is over; Ctrl-C, SIGTERM and a closed terminal end it, too.

        At the first such signal the jobs are stopped, at the second they are killed. No job is left behind, whatever
        is raised meanwhile.

        Parameters
        ----------
        begin
            Begins jobs where cores are free, if there are any to begin.
        ended
            Is told of a job that has ended, and what came of it. Its cores are free by then.
        is_over
            Whether no job may begin any more.
        is_left
            Whether jobs may be left to begin, though none could begin now.
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
                self.free.append(list(job.cores))
                ended(job, ending)

    def _stop(self) -> None:
        is_urgent = self.is_interrupted and self._signals[-1] > self._signals[0] + _SAME
        for job in self.at_work:
            if is_urgent:
                job.kill()
            job.stop()

    @contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """Within the block signals that ask for an end are noted, and what is being written is written to its end."""

        def note(number: int, frame: FrameType | None) -> None:
            self._signals.append(time.monotonic())

        installed = Installed(note)
        try:
            yield
        finally:
            installed.remove()
