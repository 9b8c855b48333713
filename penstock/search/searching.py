"""Trials by turns, several at once on cores of their own, until there are as many as wanted."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from penstock.bench import BenchError, BenchUsageError
from penstock.config import Config
from penstock.ipc import whole_cores
from penstock.search.directory import SearchDirectory
from penstock.search.job import Ending, Job
from penstock.search.space import is_legal

if TYPE_CHECKING:
    from penstock.search.study import Study

FAILURES = 3
"""Trainings that fail one after the other until the search ends: something else is wrong than the settings tried."""
_PAUSE = 0.2  # seconds between two looks at the trainings
_SAME = 0.5  # seconds within which signals are one: `timeout` sends it to the process and to its group


def split_cores(jobs: int) -> list[list[int]]:
    """Cores for each of so many jobs: as many for each, none for two.

    Raises
    ------
    BenchUsageError
        There are fewer cores than jobs.
    """
    cores, each = sorted(os.sched_getaffinity(0)), whole_cores() // jobs
    if each < 1:
        raise BenchUsageError(
            f"--jobs {jobs} is not legal: this process may use {whole_cores()} cores, and each job needs one of its own"
        )
    if jobs == 1:
        return [cores]
    return [cores[first : first + each] for first in (job * len(cores) // jobs for job in range(jobs))]


class Searching:
    """Trains the trials of a study.

    Parameters
    ----------
    directory, study
        Of the search.
    train
        The algorithm and flags of ``penstock train`` that all trials share.
    config
        The settings that they give.
    seeds
        Of each trial.
    trials
        How many there shall be in the directory, those of other processes counted.
    cores
        Of each job.
    report
        Is told what happens, in lines.
    """

    def __init__(
        self,
        directory: SearchDirectory,
        study: Study,
        train: Sequence[str],
        config: Config,
        *,
        seeds: Sequence[int],
        trials: int,
        cores: Sequence[Sequence[int]],
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._study = study
        self._train = train
        self._config = config
        self._seeds = seeds
        self._trials = trials
        self._free = list(cores)
        self._report = report
        self._jobs: list[Job] = []
        self._signals: list[float] = []
        self._is_interrupted = False
        self._failures = 0
        self._error = ""

    def run(self) -> None:
        """Train until there are trials enough.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C or SIGTERM came: no process is left, and the trials under way can be taken up again.
        BenchError
            Several trainings failed, one after the other.
        """
        with self._heeding_signals():
            try:
                while True:
                    self._poll()
                    if self._is_over:
                        self._stop()
                    else:
                        self._begin()
                    if not self._jobs and (self._is_over or not self._study.has_ending):
                        break
                    time.sleep(_PAUSE)
            finally:  # with an error of this program no process is left, either
                self._end()
        if self._is_stopped:
            raise KeyboardInterrupt
        if self._failures >= FAILURES:
            raise BenchError(f"{FAILURES} trainings failed one after the other. The last one: {self._error}")

    @property
    def _is_stopped(self) -> bool:
        return self._is_interrupted or bool(self._signals)

    @property
    def _is_over(self) -> bool:
        return self._is_stopped or self._failures >= FAILURES

    def _begin(self) -> None:
        """Begin trials where cores are free."""
        while self._free and (found := self._study.ask(self._trials)) is not None:
            trial, hold = found
            shown = ", ".join(f"{name}={_short(value)}" for name, value in trial.settings.items())
            if why := is_legal(self._config, trial.settings):
                trial.fail(why)
                hold.release()
                self._report(f"trial {trial.number}: {shown}: not legal together: {why}")
                continue
            cores = self._free.pop(0)
            job = Job(self._directory, trial, hold, self._train, self._config, self._seeds, cores)
            self._jobs.append(job)
            self._report(f"trial {trial.number}: {shown}")

    def _poll(self) -> None:
        for job in list(self._jobs):
            ending = job.poll()
            if ending is not None:
                self._jobs.remove(job)
                self._free.append(list(job.cores))
                self._ended(job, ending)

    def _ended(self, job: Job, ending: Ending) -> None:
        number = job.trial.number
        match ending:
            case "done":
                self._report(f"trial {number}: done, score {_short(self._study.tried[number].score)}")
            case "pruned":
                tried = self._study.tried[number]
                self._report(f"trial {number}: given up after {tried.spent:.0%} of its trainings")
            case "failed":
                self._report(f"trial {number}: failed: {job.error}")
                self._error = job.error
            case "interrupted":
                self._is_interrupted = True
        self._failures = self._failures + 1 if ending == "failed" else 0

    def _stop(self) -> None:
        is_urgent = bool(self._signals) and self._signals[-1] > self._signals[0] + _SAME
        for job in self._jobs:
            if is_urgent:
                job.kill()
            job.stop()

    def _end(self) -> None:
        while self._jobs:
            self._stop()
            self._poll()
            time.sleep(_PAUSE / 10)

    @contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """Within the block Ctrl-C and SIGTERM are noted, and what is being written is written to its end."""

        def note(number: int, frame: FrameType | None) -> None:
            self._signals.append(time.monotonic())

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
