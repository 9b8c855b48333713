"""Running trial: its seeds train one after the other, each in a ``penstock train`` process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from penstock.bench.arguments import as_flags
from penstock.config import Config
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.episodes import EPISODES
from penstock.runs.jobs import LOST, MOST_LOSSES, Command, Training, with_loss
from penstock.runs.lookup import checkpoint_to_resume
from penstock.runs.vacancy import RunDirectoryError, set_aside_run
from penstock.search.directory import Hold, SearchDirectory
from penstock.search.objective import RUNGS, Evaluated, read_evaluations, rung, score

if TYPE_CHECKING:
    from penstock.search.study import Trial

PROGRAM = (sys.executable, "-m", "penstock.cli")
"""Program that trains; tests replace it."""
PATIENCE = 60.0
"""Seconds between asking a training to end and killing it."""
_INTERRUPTED, _NOT_SAVED, _REFUSED = (130, -signal.SIGTERM, -signal.SIGINT), 5, 2
_OF_ROOM = {"num_workers", "num_learners"}  # with these, a trial itself may ask for more than a cluster has

Ending = Literal["done", "pruned", "failed", "refused", "interrupted"]
"""End of a trial; "refused": its run has no room on its cluster, or cannot be used or saved; it can be resumed."""


@dataclass(frozen=True)
class Shared:
    """Parts of a search that all trials share.

    Attributes
    ----------
    directory
        Directory of the search.
    train
        Algorithm and flags of ``penstock train``.
    config
        Settings of these flags.
    seeds
        Seeds of each trial, in the order of training.
    report
        Called with each line of progress.
    """

    directory: SearchDirectory
    train: Sequence[str]
    config: Config
    seeds: Sequence[int]
    report: Callable[[str], None]


class Job:
    """Training of a trial, whose evaluations and result are reported to the study.

    Parameters
    ----------
    shared
        Parts that all trials share.
    trial, hold
        The trial, and this process's hold of it.
    cores
        Cores of the processes.

    Attributes
    ----------
    error
        Reason why the trial failed or was refused.
    """

    def __init__(self, shared: Shared, trial: Trial, hold: Hold, cores: Collection[int]) -> None:
        self._shared = shared
        self.trial = trial
        self._hold = hold
        self.cores = cores
        self.error = ""
        self._training: Training | None = None
        self._stopping: Ending | None = None
        self._losses = (-1, 0)  # steps of the checkpoint at the last kill, and number of kills with it
        self._size = -1  # bytes of the file of evaluations when it was read
        self._rung = 0  # last rung reported for the current seed
        self._evaluations: list[Evaluated] = []

    @property
    def seed(self) -> int:
        """Seed in training, or the next one."""
        return self._shared.seeds[len(self.trial.scores)]

    def poll(self) -> Ending | None:
        """Begin the next training or read new evaluations; return how the trial ended, and release it, or None.

        An interrupted trial stays running in the journal, and is resumed by another search.
        """
        ending = self._poll()
        if ending is not None:
            match ending:
                case "done":
                    self.trial.complete()
                case "pruned":
                    self.trial.prune()
                case "failed":
                    self.trial.fail(self.error)
            self._hold.release()
        return ending

    def stop(self, why: Ending = "interrupted") -> None:
        """Ask the training to end cleanly; `poll` returns the end."""
        self._stopping = self._stopping or why
        if self._training is not None:
            self._training.stop()

    def kill(self) -> None:
        """End the training now; its roles end by themselves."""
        self._stopping = self._stopping or "interrupted"
        if self._training is not None:
            self._training.kill()

    def _poll(self) -> Ending | None:
        if self._training is None:
            if self._stopping is not None:
                return self._stopping
            if len(self.trial.scores) == len(self._shared.seeds):  # interrupted after the last of them
                return "done"
            try:
                command = self._command()
            except (CheckpointError, RunDirectoryError) as error:
                self.error = str(error)
                return "refused"
            if command is None:
                return self._after_training()
            output = self._shared.directory.output(self.trial.number, self.seed)
            run = self._shared.directory.run(self.trial.number, self.seed)
            asked = Command(command, output, run, given=self._shared.train, inherited=[self._hold.training])
            self._training = Training(asked, self.cores, PATIENCE)
            return None
        training, code = self._training, self._training.poll()
        self._follow(is_over=code is not None)
        if code is None:
            return None
        self._training = None
        if self._stopping is not None:
            return self._stopping
        if code == LOST:  # the next poll resumes it
            return None
        if code in _INTERRUPTED:  # by a signal that interrupts this search too
            return "interrupted"
        if code != 0:
            self.error = _error_of(training, code)
            if code < 0 and self._may_resume():
                self._shared.report(f"trial {self.trial.number}: {self.error}; it resumes from its last checkpoint")
                return None
            is_ray, has_own_needs = self._shared.config.backend == "ray", _OF_ROOM & self.trial.settings.keys()
            has_no_room = code == _REFUSED and is_ray and not has_own_needs
            return "refused" if code == _NOT_SAVED or has_no_room else "failed"
        return self._after_training()

    def _command(self) -> list[str] | None:
        """Return the command that trains the current seed, or resumes it; None: it is done."""
        run = self._shared.directory.run(self.trial.number, self.seed)
        if (meta := checkpoint_to_resume(run)) is None:
            if moved := set_aside_run(run):
                self._shared.report(f"trial {self.trial.number}: {moved}")
            settings = as_flags({**self.trial.settings, "seed": self.seed, "run_dir": str(run)})
            return [*PROGRAM, "train", *self._shared.train, *settings]
        limit, more = self._shared.config.max_seconds, []
        if limit is not None:
            left = limit - meta.get("seconds", 0.0)
            more = ["--max-seconds", f"{left:.3f}"]
            if left < 0.001:
                return None
        return None if meta["steps"] >= self._shared.config.total_steps else [*PROGRAM, "resume", str(run), *more]

    def _follow(self, *, is_over: bool = False) -> None:
        """Report new evaluations, and stop a trial that the study prunes.

        A rung's value is that of the first evaluation at or after it, so that trials evaluated at different times can
        be compared. A training that is over is judged by its score.
        """
        if self._stopping is not None or not self._read():
            return
        is_pruned = False
        for count, evaluation in enumerate(self._evaluations, start=1):
            while self._rung < min(RUNGS - 1, rung(evaluation, self._shared.config)):
                self._rung += 1
                is_pruned |= self._report(self._rung, self._evaluations[:count])
        if is_pruned and not is_over:
            self.stop("pruned")

    def _read(self) -> bool:
        """Read new evaluations; return whether there are any."""
        run = self._shared.directory.run(self.trial.number, self.seed)
        try:
            size = (run / EPISODES).stat().st_size
        except OSError:
            return False
        if size == self._size:
            return False
        self._size, before = size, self._evaluations
        self._evaluations = read_evaluations(run)
        return bool(self._evaluations) and self._evaluations != before

    def _report(self, reached: int, evaluations: Sequence[Evaluated]) -> bool:
        """Report the mean over the seeds so far; return whether to prune the trial."""
        mean = fmean([*self.trial.scores, score(evaluations)])
        return self.trial.report(len(self.trial.scores) * RUNGS + reached, mean)

    def _may_resume(self) -> bool:
        """Count a kill of the training; return whether to resume it: not after several without a new checkpoint."""
        with suppress(CheckpointError, RunDirectoryError):  # the next poll refuses such a run
            run = self._shared.directory.run(self.trial.number, self.seed)
            self._losses = with_loss(self._losses, checkpoint_to_resume(run))
        return self._losses[1] < MOST_LOSSES

    def _after_training(self) -> Ending | None:
        """Record the score of a seed's training; return the end of the trial, or None if seeds are left."""
        self._read()
        if not self._evaluations:
            self.error = "the training was never evaluated: give it a smaller --eval-interval"
            return "failed"
        is_last = len(self.trial.scores) + 1 == len(self._shared.seeds)
        is_pruned = not is_last and self._report(RUNGS, self._evaluations)
        self.trial.seed_done(score(self._evaluations))
        self._evaluations, self._size, self._rung, self._losses = [], -1, 0, (-1, 0)
        if is_pruned:
            return "pruned"
        return "done" if is_last else None


def _error_of(training: Training, code: int) -> str:
    """Return how a training ended: its signal; or its error message or last line of output, with the exit code."""
    if code < 0:
        return f"killed by signal {-code}{' (out of memory?)' if -code == signal.SIGKILL else ''}"
    lines = training.lines()
    error = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "no output")
    return f"{error.removeprefix('error: ').strip()} (exit code {code}; full output: {training.output})"
