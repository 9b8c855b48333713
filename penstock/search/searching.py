"""Trials, several at once on separate cores, up to the requested number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.bench import BenchError
from penstock.runs.jobs import Jobs
from penstock.search.job import Ending, Job, Shared
from penstock.search.space import refusal_of, shown

if TYPE_CHECKING:
    from penstock.search.study import Study

FAILURES = 3
"""Consecutive failures that end the search: their cause is hardly the settings tried."""


class Searching:
    """Training of the trials of a study.

    Parameters
    ----------
    shared
        Parts that all trials share.
    study
        Study of the search.
    trials
        Requested number of trials in the directory, those of other processes included.
    cores
        Cores of each job.
    """

    def __init__(self, shared: Shared, study: Study, trials: int, cores: Sequence[Sequence[int]]) -> None:
        self._shared = shared
        self._study = study
        self._trials = trials
        self._report = shared.report
        self._jobs = Jobs[Job](cores)
        self._is_interrupted = False
        self._failures = 0
        self._error = self._refused = ""

    def run(self) -> None:
        """Train up to the requested number of trials.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C or SIGTERM; no process is left, and interrupted trials can be resumed.
        BenchError
            Several trainings failed in a row; or a trial's run cannot be used now.
        """
        self._jobs.run(self._begin, self._ended, is_over=self._is_over, is_left=lambda: self._study.has_ending)
        if self._refused:  # a refused trial also interrupts the others
            raise BenchError(self._refused)
        if self._failures >= FAILURES:
            raise BenchError(f"{FAILURES} trainings failed in a row. The last one: {self._error}")
        if self._is_interrupted or self._jobs.is_interrupted:
            raise KeyboardInterrupt

    def _is_over(self) -> bool:
        return self._is_interrupted or bool(self._refused) or self._failures >= FAILURES

    def _begin(self) -> None:
        """Begin trials on free cores."""
        while self._jobs.free and (found := self._study.ask(self._trials)) is not None:
            trial, hold = found
            settings = ", ".join(f"{name}={shown(value)}" for name, value in trial.settings.items())
            if refusal := refusal_of(self._shared.config, trial.settings):
                trial.fail(refusal)
                hold.release()
                self._report(f"trial {trial.number}: {settings}: not legal together: {refusal}")
                continue
            self._jobs.add(Job(self._shared, trial, hold, self._jobs.free[0]))
            self._report(f"trial {trial.number}: {settings}")

    def _ended(self, job: Job, ending: Ending) -> None:
        number = job.trial.number
        match ending:
            case "done":
                self._report(f"trial {number}: done, score {shown(self._study.tried[number].score)}")
            case "pruned":
                tried = self._study.tried[number]
                self._report(f"trial {number}: pruned after {tried.spent:.0%} of its trainings")
            case "failed":
                self._report(f"trial {number}: failed: {job.error}")
                self._error = job.error
            case "refused":
                self._refused = f"trial {number} cannot continue now; the same command resumes it: {job.error}"
            case "interrupted":
                self._is_interrupted = True
        self._failures = self._failures + 1 if ending == "failed" else 0
