"""Training of many runs, several at a time on separate cores; finished runs are skipped, interrupted ones resumed."""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from penstock.algorithms import load_algorithm
from penstock.flags import parse_changes
from penstock.runs.checkpoint import CheckpointError
from penstock.runs.documents import DocumentError, read_document
from penstock.runs.files import json_bytes, write_file_atomically
from penstock.runs.formatting import clock, counted, number
from penstock.runs.jobs import LOST, Command, Jobs, Place, Training, split_cores
from penstock.runs.lock import alone_in, holding_of
from penstock.runs.lookup import checkpoint_to_resume
from penstock.runs.machine import this_command
from penstock.runs.process import is_alive
from penstock.runs.reading import RecordedRun, recorded
from penstock.runs.vacancy import CONFIG, is_vacant, require_outside_runs, set_aside_run
from penstock.studies import StudyError
from penstock.studies.plan import PlannedRun, changes_of, differing, folder_of, own_flags, plan, read, take_cluster
from penstock.trials.request import ClusterRequest, places_for, require_room

DONE, FAILED, NOT_REACHED, INTERRUPTED = 0, 1, 3, 130
SIGNALLED = INTERRUPTED, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL
MANIFEST, OUTPUT = "multirun.json", "output"

_PROGRESS_SECONDS = 30.0  # between two lines of progress
_LAST_LINES = 3  # of the output of a failed run


class Job(Training):
    """Run in training."""

    run: PlannedRun


@dataclass
class Study:
    """Runs of one folder.

    Attributes
    ----------
    folder
        Folder of the runs.
    runs
        Planned runs.
    refused
        Reasons why runs stay unchanged, by name.
    """

    folder: Path
    runs: Sequence[PlannedRun]
    refused: dict[str, str] = field(default_factory=dict)

    def path_of(self, run: PlannedRun) -> Path:
        """Directory of a run, whether it exists or not."""
        return self.folder / run.name

    def command_of(self, run: PlannedRun) -> list[str] | None:
        """Remaining work of a run, as arguments of ``penstock``; None if there is none.

        Raises
        ------
        StudyError, ConfigError
            The directory holds no run, or one that cannot become the planned one.
        CheckpointError
            The run's ``config.json`` or checkpoint cannot be used now. The run stays unchanged.
        """
        path = self.path_of(run)
        found = self._found(run)
        if found is not None and found.problem:
            raise CheckpointError(found.problem)
        if found is None:
            if not is_vacant(path):
                raise StudyError(f"{path} is neither empty nor a run: use another --name, or remove it")
            return ["train", run.algorithm, *run.flags, "--run-dir", os.fspath(path)]
        before = found.directory.config
        if found.state == "done" and not differing(run, before):
            return None
        if (checkpoint := checkpoint_to_resume(path)) is None:
            return ["train", run.algorithm, *run.flags, "--run-dir", os.fspath(path)]
        changes = changes_of(run, before, checkpoint.get("seconds", 0.0))
        parse_changes(type(run.config), before, changes, f"penstock resume {path}")
        return ["resume", os.fspath(path), *changes]

    def is_busy(self, run: PlannedRun) -> bool:
        """Return whether another process trains the run, such as one that still saves after its multirun was killed."""
        if (is_held := holding_of(self.path_of(run)).is_held) is not None:
            return is_held
        found = self._found(run)
        return found is not None and found.state == "running" and bool(is_alive(found.status.get("process", {})))

    def left(self) -> deque[PlannedRun]:
        """Return the runs that are not done; print a line for each that cannot be used now."""
        return deque(run for run in self.runs if self.remaining(run) is not None)

    def train(self, places: Sequence[Sequence[int]], left: deque[PlannedRun]) -> int:
        """Train the remaining runs `left`; return the exit code."""
        skipped = len(self.runs) - len(left) - len(self.refused)
        already = f", {skipped} {'is' if skipped == 1 else 'are'} done already" if skipped else ""
        print(f"{self.folder}: {counted(len(self.runs), 'run')}{already}", flush=True)
        work = Jobs[Job](places)
        report_at = time.monotonic() + _PROGRESS_SECONDS

        def begin() -> None:
            nonlocal report_at
            while work.free and (run := next((run for run in left if not self.is_busy(run)), None)) is not None:
                left.remove(run)
                if (command := self.remaining(run)) is not None:
                    work.add(self._start(run, command, work.free[0], with_cores=len(places) > 1))
            if time.monotonic() >= report_at:
                report_at = time.monotonic() + _PROGRESS_SECONDS
                self._print_progress(work.at_work, len(left))

        def ended(job: Job, code: int) -> None:
            if code == LOST:
                left.append(job.run)
            else:
                self._print_end(job, code, is_interrupted=work.is_interrupted)

        work.run(begin, ended, is_over=lambda: False, is_left=lambda: bool(left))
        return self._ended(is_interrupted=work.is_interrupted)

    def remaining(self, run: PlannedRun) -> list[str] | None:
        """Return `command_of` a run; also None, with a printed line, if its files cannot be used now."""
        try:
            return self.command_of(run)
        except CheckpointError as error:
            self.refused[run.name] = str(error)
            print(f"{run.name}: left as it is: {error}", flush=True)
            return None

    def _start(self, run: PlannedRun, command: list[str], cores: Collection[int], *, with_cores: bool) -> Job:
        if command[0] == "train" and (moved := set_aside_run(self.path_of(run))):
            print(f"{run.name}: {moved}", flush=True)
        output = self.folder / OUTPUT / f"{run.name}.txt"
        output.parent.mkdir(exist_ok=True)
        words = [sys.executable, "-m", "penstock.cli", *command]
        job = Job(Command(words, output, self.path_of(run), given=run.flags), cores)
        job.run = run
        is_here = with_cores and not isinstance(cores, Place)
        where = f" on cores {', '.join(map(str, sorted(cores)))}" if is_here else ""
        print(f"{run.name}: {'trains' if command[0] == 'train' else 'resumes'}{where}", flush=True)
        return job

    def _found(self, run: PlannedRun) -> RecordedRun | None:
        path = self.path_of(run)
        if not (path / CONFIG).is_file():
            return None
        return recorded(path, os.fspath(path))

    def _print_end(self, job: Job, code: int, *, is_interrupted: bool) -> None:
        found = self._found(job.run)
        if found is None or found.state not in ("done", "interrupted"):
            if is_interrupted and code in SIGNALLED:
                print(f"{job.run.name}: interrupted", flush=True)
                return
            if code == INTERRUPTED and isinstance(job.cores, Place):
                print(f"{job.run.name}: ended with its cluster", flush=True)
                return
            why = found.problem if found is not None and found.problem else f"see {job.output}"
            last = [f"    {line}" for line in job.lines()[-_LAST_LINES:]]
            print("\n".join([f"{job.run.name}: failed, {why}", *last]), flush=True)
            return
        row = found.summary
        score = "" if row["eval_return"] is None else f", mean return {number(row['eval_return'])}"
        target = "" if not missed(found) else f", below the target of {row['target_return']:g}"
        spent = f"after {row['steps']:,} steps and {clock(row['seconds'])}"
        print(f"{job.run.name}: {row['state']} {spent}{score}{target}", flush=True)

    def _print_progress(self, at_work: Sequence[Job], left: int) -> None:
        parts = []
        for job in at_work:
            row = found.summary if (found := self._found(job.run)) is not None else {}
            total = row.get("total_steps")
            share = f" {row['steps'] / total:.0%}" if total and row.get("steps") else ""
            score = f", return {number(row['mean_return'])}" if row.get("mean_return") is not None else ""
            parts.append(f"{job.run.name}{share}{score}")
        print(f"training: {'; '.join(parts) or 'none, other processes train them'}; {left} to go", flush=True)

    def _ended(self, *, is_interrupted: bool) -> int:
        states = []
        for run in self.runs:
            found = self._found(run)
            state = "to do" if found is None else "missed" if missed(found) else found.state
            states.append("left as they are" if run.name in self.refused else state)
        print(", ".join(f"{count} {state}" for state, count in Counter(states).items()), flush=True)
        if is_interrupted:
            print("the same command resumes", flush=True)
            return INTERRUPTED
        if not set(states) <= {"done", "missed"}:
            return FAILED
        return NOT_REACHED if "missed" in states else DONE


def command(args: list[str]) -> int:
    """Run the command; return its exit code. A request may raise `StudyError`, `ConfigError` or `RunDirectoryError`."""
    if not args or set(args) & {"-h", "--help"}:
        own_flags().print_help()
        return DONE if args else 2
    request = read(args)
    cluster = take_cluster(request)
    runs = plan(request, is_here=cluster is None)
    study = Study(folder_of(request), runs)
    if cluster is None:
        split_cores(request.jobs or 1)
    if request.dry_run:
        for run in runs:
            left = study.remaining(run)
            if run.name not in study.refused:
                print(f"# {study.path_of(run)} is done" if left is None else shlex.join(["penstock", *left]))
        return DONE
    return train(study, request.jobs, cluster)


def train(study: Study, jobs: int | None, cluster: ClusterRequest | None = None) -> int:
    """Train the remaining runs of a study, alone in its folder, on this machine or on a cluster; return the exit code.

    Raises
    ------
    StudyError
        Another multirun is at work in the folder.
    ConfigError
        There are too few cores, here or on the cluster.
    RunDirectoryError
        The folder belongs to a run.
    """
    if cluster is None:
        split_cores(jobs or 1)
    output = study.folder / OUTPUT
    require_outside_runs(output, f"the folder {study.folder}")
    with ExitStack() as stack:
        try:
            stack.enter_context(alone_in(study.folder))
            if output.exists() and not output.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), output)
        except BlockingIOError:
            raise StudyError(f"another penstock multirun is at work in {study.folder}") from None
        except OSError as error:
            problem = f"{error.strerror} ({error.filename})"
            raise StudyError(f"{study.folder} cannot be written: {problem}: give another --name") from None
        _require_own(study.folder / MANIFEST)
        record = {"command": this_command(), "runs": {run.name: [run.algorithm, *run.flags] for run in study.runs}}
        report, configs = partial(print, flush=True), [run.config for run in study.runs]
        places = stack.enter_context(places_for(cluster, jobs, configs, study.folder, report))
        left = study.left()
        require_room((load_algorithm(run.algorithm), run.config) for run in left if not study.is_busy(run))
        write_file_atomically(study.folder / MANIFEST, json_bytes(record))
        return study.train(places, left)


def _require_own(manifest: Path) -> None:
    """Raise `StudyError` for a ``multirun.json`` that this command did not write."""
    try:
        if not os.path.lexists(manifest) or read_document(manifest).keys() >= {"command", "runs"}:
            return
    except (OSError, DocumentError):
        pass
    raise StudyError(f"{manifest} is not a record of penstock multirun: give another --name, or move it away")


def missed(run: RecordedRun) -> bool:
    """Whether a finished run has not reached its target."""
    return run.state == "done" and run.summary["target_return"] is not None and run.summary["reason"] != "target"
