"""Running trial: its seeds are trained one after the other, each by a ``penstock train`` process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from penstock.config import Config
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.episodes import EPISODES
from penstock.runs.lookup import checkpoint_to_go_on_from
from penstock.runs.process import child_setup
from penstock.runs.vacancy import RunDirectoryError, set_aside_run
from penstock.search.directory import Hold, SearchDirectory
from penstock.search.objective import RUNGS, Evaluated, read_evaluations, rung, score
from penstock.search.space import as_flags

if TYPE_CHECKING:
    from penstock.search.study import Trial

PROGRAM = (sys.executable, "-m", "penstock.cli")
"""Program that trains; tests replace it."""
PATIENCE = 60.0
"""Seconds for a training to end in good order, after which it is killed."""
_INTERRUPTED = 130, -signal.SIGTERM, -signal.SIGINT

Ending = Literal["done", "pruned", "failed", "refused", "interrupted"]
"""End of a trial; "refused": its run cannot be used now, and is left as it is."""


class Job:
    """Training of a trial, whose evaluations and result are reported to the study.

    Parameters
    ----------
    directory
        Directory of the search.
    trial, hold
        The trial, and this process's hold of it.
    train
        Algorithm and flags of ``penstock train`` that all trials share.
    config
        Settings of these flags.
    seeds
        Seeds to train with, in this order.
    cores
        Cores of the processes.
    report
        Called with a line where a run was set aside.

    Attributes
    ----------
    error
        Reason why the trial failed, or was refused.
    """

    def __init__(
        self,
        directory: SearchDirectory,
        trial: Trial,
        hold: Hold,
        train: Sequence[str],
        config: Config,
        seeds: Sequence[int],
        cores: Collection[int],
        report: Callable[[str], None],
    ) -> None:
        self._directory = directory
        self._report_line = report
        self.trial = trial
        self._hold = hold
        self._train = list(train)
        self._config = config
        self._seeds = seeds
        self.cores = cores
        self.error = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping: Ending | None = None
        self._kill_at = 0.0
        self._size = -1  # of the file of evaluations, when it was read
        self._rung = 0  # the last one that was reported, of the present seed
        self._evaluations: list[Evaluated] = []

    @property
    def seed(self) -> int:
        """Seed in training, or the next one."""
        return self._seeds[len(self.trial.scores)]

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
        """Request that the training ends in good order; `poll` returns the end."""
        if self._stopping is None:
            self._stopping, self._kill_at = why, time.monotonic() + PATIENCE
            if self._process is not None:
                self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the training now; its roles end by themselves."""
        self._stopping = self._stopping or "interrupted"
        if self._process is not None:
            self._process.kill()

    def _poll(self) -> Ending | None:
        if self._process is None:
            if self._stopping is not None:
                return self._stopping
            if len(self.trial.scores) == len(self._seeds):  # interrupted after the last of them
                return "done"
            try:
                command = self._command()
            except (CheckpointError, RunDirectoryError) as error:
                self.error = str(error)
                return "refused"
            if command is None:
                return self._after_training()
            self._process = self._start(command)
            return None
        is_over = self._process.poll() is not None
        self._follow(is_over=is_over)
        if not is_over:
            if self._stopping is not None and time.monotonic() > self._kill_at:
                self._process.kill()
            return None
        code, self._process = self._process.returncode, None
        if self._stopping is not None:
            return self._stopping
        if code in _INTERRUPTED:  # by a signal to the process group, which interrupts this search, too
            return "interrupted"
        if code != 0:
            self.error = self._last_words(code)
            return "failed"
        return self._after_training()

    def _command(self) -> list[str] | None:
        """Command for the present seed, a training or the rest of one; None: done."""
        run = self._directory.run(self.trial.number, self.seed)
        if (meta := checkpoint_to_go_on_from(run)) is None:
            if moved := set_aside_run(run):
                self._report_line(f"trial {self.trial.number}: {moved}")
            settings = as_flags({**self.trial.settings, "seed": self.seed, "run_dir": str(run)})
            return [*PROGRAM, "train", *self._train, *settings]
        limit, more = self._config.max_seconds, []
        if limit is not None:
            left = limit - meta.get("seconds", 0.0)
            more = ["--max-seconds", f"{left:.3f}"]
            if left < 0.001:
                return None
        return None if meta["steps"] >= self._config.total_steps else [*PROGRAM, "resume", str(run), *more]

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a training that ends in good order with this process, and holds the trial until then."""
        with open(self._directory.output(self.trial.number, self.seed), "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, process_group=0,
                pass_fds=[self._hold.training], preexec_fn=child_setup(self.cores),
            )  # fmt: skip

    def _follow(self, *, is_over: bool = False) -> None:
        """Report new evaluations, and stop a trial that the study prunes.

        A rung's value is that of the first evaluation at it or behind it, so that trials compare at every rung,
        whenever they are evaluated. A training that is over is judged by its score.
        """
        if self._stopping is not None or not self._read():
            return
        is_hopeless = False
        for count, evaluation in enumerate(self._evaluations, start=1):
            while self._rung < min(RUNGS - 1, rung(evaluation, self._config)):
                self._rung += 1
                is_hopeless |= self._report(self._rung, self._evaluations[:count])
        if is_hopeless and not is_over:
            self.stop("pruned")

    def _read(self) -> bool:
        """Read new evaluations; return whether there are any."""
        run = self._directory.run(self.trial.number, self.seed)
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
        """Report the mean over the seeds so far; return whether the trial is to be pruned."""
        worth = fmean([*self.trial.scores, score(evaluations)])
        return self.trial.report(len(self.trial.scores) * RUNGS + reached, worth)

    def _after_training(self) -> Ending | None:
        """Record the score of a seed's training; None: further seeds are left."""
        self._read()
        if not self._evaluations:
            self.error = "the training was never evaluated: give it a smaller --eval-interval"
            return "failed"
        is_last = len(self.trial.scores) + 1 == len(self._seeds)
        is_hopeless = not is_last and self._report(RUNGS, self._evaluations)
        self.trial.seed_done(score(self._evaluations))
        self._evaluations, self._size, self._rung = [], -1, 0
        if is_hopeless:
            return "pruned"
        return "done" if is_last else None

    def _last_words(self, code: int) -> str:
        output = self._directory.output(self.trial.number, self.seed)
        try:
            lines = output.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        told = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"{told.removeprefix('error: ').strip() or 'it said nothing'} ({how}; all that it said: {output})"
