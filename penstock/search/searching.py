"""Trials, several at once on cores of their own, up to the requested number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.bench import BenchError
from penstock.config import Config
from penstock.runs.jobs import Jobs
from penstock.search.directory import SearchDirectory
from penstock.search.job import Ending, Job
from penstock.search.space import is_legal

if TYPE_CHECKING:
    from penstock.search.study import Study

FAILURES = 3
"""Consecutive failures that end the search: the cause is then not the settings tried."""


class Searching:
    """Training of the trials of a study.

    Parameters
    ----------
    directory, study
        Directory and study of the search.
    train
        Algorithm and flags of ``penstock train`` that all trials share.
    config
        Settings of these flags.
    seeds
        Seeds of each trial.
    trials
        Requested number of trials in the directory, those of other processes included.
    cores
        Cores of each job.
    report
        Called with each line of progress.
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
        self._report = report
        self._jobs = Jobs[Job](cores)
        self._is_interrupted = False
        self._failures = 0
        self._error = self._refused = ""

    def run(self) -> None:
        """Train up to the requested number of trials.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C or SIGTERM came: no process is left, and interrupted trials can be resumed.
        BenchError
            Several trainings failed, one after the other; or a trial's run cannot be used now.
        """
        self._jobs.run(self._begin, self._ended, is_over=self._is_over, is_left=lambda: self._study.has_ending)
        if self._refused:  # the trials beside it were interrupted for it
            raise BenchError(self._refused)
        if self._failures >= FAILURES:
            raise BenchError(f"{FAILURES} trainings failed one after the other. The last one: {self._error}")
        if self._is_interrupted or self._jobs.is_interrupted:
            raise KeyboardInterrupt

    def _is_over(self) -> bool:
        return self._is_interrupted or bool(self._refused) or self._failures >= FAILURES

    def _begin(self) -> None:
        """Begin trials on free cores."""
        while self._jobs.free and (found := self._study.ask(self._trials)) is not None:
            trial, hold = found
            shown = ", ".join(f"{name}={_short(value)}" for name, value in trial.settings.items())
            if why := is_legal(self._config, trial.settings):
                trial.fail(why)
                hold.release()
                self._report(f"trial {trial.number}: {shown}: not legal together: {why}")
                continue
            cores = self._jobs.free[0]
            self._jobs.add(
                Job(self._directory, trial, hold, self._train, self._config, self._seeds, cores, self._report)
            )
            self._report(f"trial {trial.number}: {shown}")

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
            case "refused":
                self._refused = f"trial {number} cannot go on, and nothing of it was changed: {job.error}"
            case "interrupted":
                self._is_interrupted = True
        self._failures = self._failures + 1 if ending == "failed" else 0


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
