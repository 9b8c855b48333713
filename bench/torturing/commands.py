"""Commands of several runs, killed and interrupted while their runs are damaged; then the command is repeated.

Runs are serial ones of PPO. However a life ends, trainings save their progress, unless they themselves are killed. The
ledger then has as many steps as the checkpoints of all runs have gained.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.ipc import whole_cores
from torturing import audit, ledger
from torturing.disk import hostile
from torturing.plan import CHECKPOINT, COMMAND, COPY, TRAINING, TREE, Fault, Life
from torturing.run import EndedEarlyError, Run
from torturing.story import FAILED, FLAGS, INTERRUPTED, SECONDS, WRONG_USAGE, Player, Report

RUNS, TOTAL_STEPS, SLICE = 2, 24_000, 8_000
SPACE = "[learning_rate]\nlow = 1e-4\nhigh = 1e-3\n"
OWN_FLAGS = {
    "multirun": f"--seeds {RUNS} --name several",
    "search": f"--space space.toml --trials {RUNS} --no-prune --dir runs/several",
    "pbt": f"--space space.toml --population {RUNS} --pbt-interval {SLICE} --dir runs/several",
}
PROGRAMS = ("penstock.cli", "penstock.engine.slices")


class CommandPlayer(Player):
    """Plays stories of ``penstock multirun``, ``search`` and ``pbt``."""

    def play(self) -> Report:
        """Play to the end, or as far as it goes."""
        self._place = self._disk.path
        (self._place / "space.toml").write_text(SPACE)
        self._run_dir = self._place / "runs" / "several"  # of all runs
        self._files.users.adopt(self._place / "space.toml")
        return super().play()

    @property
    def _command(self) -> list[str]:
        total_steps = TOTAL_STEPS if len(self._story.lives) > 1 else TOTAL_STEPS // 16
        flags = f"{FLAGS} {self._path.flags} --backend serial --total-steps {total_steps} --checkpoint-interval 500"
        own = f"{OWN_FLAGS[self._story.command]} --jobs {min(2, whole_cores())} --eval-interval 2000"
        return [
            self._story.command, f"torturing.counted:{self._path.algorithm}", *flags.split(), *own.split(),
            "--env-kwargs", f"seconds={SECONDS}",
        ]  # fmt: skip

    def _runs(self) -> dict[Path, audit.RunFiles]:
        """Return the files of each run, including runs that were set aside."""
        return {
            path.parent: audit.RunFiles(path.parent)
            for path in self._run_dir.glob("*/config.json")
            if not path.parent.name.startswith("copied")
        }

    def _steps(self) -> dict[Path, int]:
        return {path: files.newest_intact() for path, files in self._runs().items()}

    def _checkpoints(self) -> set[tuple[Path, int]]:
        return {(path, steps) for path, files in self._runs().items() for steps in files.store.steps()}

    # -- lives -----------------------------------------------------------------------------------------------------

    def _live(self, name: str, life: Life | None) -> bool:
        """Play one life; return False if all runs are done, or the story cannot continue."""
        base, before, ids = self._steps(), self._checkpoints(), self._ids()
        self._doing = "starting"
        self.report.lives += 1
        run = Run(self._command, self._folder, name, self._patience, self._place)
        is_over = False
        with self._noting(run):
            try:
                if life is not None:
                    while not self._checkpoints() - before:
                        run.wait_for_progress("a checkpoint of any run")
                    self._write_notes()
                    for fault in life.faults:
                        self._suffer(run, fault)
                    self._end(run, life.ending)
            except EndedEarlyError:
                if run.process.returncode != 0:
                    raise
                is_over = True  # all runs were done before all faults were
            self._doing = "ending" if life is None or is_over else self._doing
            if life is None or is_over:
                while run.process.poll() is None:
                    self._wait_for_progress_or_end(run)
                self._expect_end(run, 0, "")
                self._require_done(run)
            self._note_all(run, self._files.users.lost())
            self._look_at_what_is_left(run)
            is_whole = life is None or is_over or life.ending.target != TREE
            self._compare(run, base, ids, is_whole=is_whole)
            return not is_over
        return False

    @staticmethod
    def _wait_for_progress_or_end(run: Run) -> None:
        before = run.progress
        run.wait_until(
            lambda: run.progress > before or run.process.poll() is not None, "progress or the end", is_alive=False
        )

    def _compare(self, run: Run, base: dict[Path, int], ids: dict[Path, str], *, is_whole: bool) -> None:
        """Compare the recorded steps with those that the runs have gained."""
        account, now = ledger.read(self._folder / "ledger", run.life), self._steps()
        self.report.steps += account.steps
        gained = sum(steps - base.get(path, 0) for path, steps in now.items())
        if account.twice or account.lost or account.torn:
            self._note(run, audit.MISCOUNTED, f"{account.twice} twice, {account.lost} lost, {account.torn} rows torn")
        if gained != account.steps if is_whole else gained > account.steps:
            self._note(run, audit.MISCOUNTED, f"runs have gained {gained} steps, the ledger has {account.steps}")
        for path, steps in base.items():
            if steps and (now.get(path, 0) < steps or self._ids().get(path) != ids[path]):
                self._note(run, "not resumed", f"{path} had {steps} steps, and has {now.get(path)}")

    def _ids(self) -> dict[Path, str]:
        return {path: json.loads((path / "config.json").read_text())["run"]["id"] for path in self._runs()}

    def _require_done(self, run: Run) -> None:
        """Check that each run exists once, and has all its steps."""
        done = {path: steps for path, steps in self._steps().items() if ".set-aside-" not in path.name}
        if len(done) != RUNS or min(done.values()) < int(self._command[self._command.index("--total-steps") + 1]):
            self._note(run, "ended badly", f"its runs have {sorted(done.values())} steps")

    def _write_notes(self) -> None:
        users = self._files.users
        for name in ("notes.txt", "output/notes.txt", "2024/notes.txt"):
            users.put(self._run_dir / name)
        for files in self._runs().values():
            files.users = users
            files.write_notes()

    # -- faults ----------------------------------------------------------------------------------------------------

    def _suffer(self, run: Run, fault: Fault) -> None:
        self._wait(run, fault.after)
        self._doing = f"suffering {fault}"
        if fault.kind == "SIGSTOP":
            pids = self._pids(run, fault)
            self.stop(pids, fault.seconds)
        elif fault.kind == "second command":
            second = Run(self._command, self._folder, f"{run.life} second", self._patience, self._place)
            code = second.wait_for_end()
            is_refused = code == WRONG_USAGE and "is at work in" in second.text
            is_over = code == 0 and " done already" in second.text  # the first has freed its lock, and is about to end
            if run.process.poll() is None and not is_refused and not is_over:
                self._note(second, "ended badly", f"exit code {code}, or 'is at work in' not said")
        elif fault.target == COPY:
            self._copy(run, fault)
        else:
            (pid,) = self._pids(run, Fault("", TRAINING, 0.0, 0.0, fault.dice)) or (None,)
            path = next((path for path in self._runs() if self._is_of(path, pid)), None)
            if path is None:
                return
            (path / "status.json").write_bytes(hostile(fault.dice, ("state", "steps", "process")))
            self._list_runs(run, self._run_dir)
        self._count(fault)

    def _copy(self, run: Run, fault: Fault) -> None:
        """Add a run from elsewhere, with hostile files, to the others."""
        of, copied = next(iter(self._runs())), self._run_dir / f"copied-{run.life}-{fault.dice:.6f}"
        copied.mkdir()
        for file in ("config.json", "metrics.jsonl"):
            with suppress(FileNotFoundError):
                shutil.copyfile(of / file, copied / file)
        dice = random.Random(fault.dice)
        for file, fields in (("config.json", ("algorithm", "run")), ("status.json", ("state", "steps"))):
            (copied / file).write_bytes(hostile(dice.random(), fields))
        self._files.users.adopt(copied)
        self._list_runs(run, self._run_dir, "unreadable")

    def _is_of(self, path: Path, pid: int | None) -> bool:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return json.loads((path / "run.lock").read_text())["pid"] == pid
        return False

    def _pids(self, run: Run, fault: Fault) -> list[int]:
        """Return the process ids that a fault affects, of a random training if there are several."""
        if fault.target == TREE:
            return sorted(run.pids())
        if fault.target == COMMAND:
            return [run.process.pid]
        run.wait_until(lambda: _trainings(run), "a training")
        found = _trainings(run)
        return found[int(fault.dice * len(found)) :][:1]

    @staticmethod
    def stop(pids: list[int], seconds: float) -> None:
        """Stop processes, and then continue them."""
        try:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            time.sleep(seconds)
        finally:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _end(self, run: Run, fault: Fault) -> None:
        self._wait(run, fault.after)
        self._doing = f"ended by {fault}"
        signum = getattr(signal, fault.kind)
        pids = self._pids(run, fault)
        random.Random(fault.dice).shuffle(pids)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signum)
        self._count(fault)
        # If its last run is just done, a command ends as if there had been no signal.
        self._expect_end(run, -signum if signum == signal.SIGKILL else INTERRUPTED, "", or_code=0)

    # -- between two lives -----------------------------------------------------------------------------------------

    def _damage(self, fault: Fault) -> bool:
        """Damage a checkpoint of a run that has others."""
        dice = random.Random(fault.dice)
        candidates = [files for files in self._runs().values() if len(files.store.steps()) > 1]
        return bool(candidates) and self._damage_one(dice.choice(candidates), fault)

    def _refuse(self, name: str, fault: Fault) -> None:
        """Make a run unusable, check that the command leaves it unchanged, and restore it."""
        self._doing = f"refused for {fault}"
        total = int(self._command[self._command.index("--total-steps") + 1])
        under_way = [files for path, files in self._runs().items() if 0 < self._steps()[path] < total]
        if not under_way:
            return
        victim = under_way[int(fault.dice * len(under_way))]
        with self._out_of_order(victim, fault) as said:
            before = audit.contents_below(victim.run_dir)
            run = Run(self._command, self._folder, f"{name} refused", self._patience, self._place)
            with self._noting(run):
                code = WRONG_USAGE
                if self._story.command == "multirun" and fault.target == CHECKPOINT:  # its other runs continue
                    run.wait_until(
                        lambda: _begins_a_run(run.text) or run.process.poll() is not None, "another run", is_alive=False
                    )
                    run.process.send_signal(signal.SIGTERM)
                    code = INTERRUPTED
                self._expect_end(run, FAILED, said, or_code=code)
                if "Traceback" in run.text:
                    self._note(run, "ended badly", "a traceback")
                after = audit.contents_below(victim.run_dir)
                self._note_all(run, audit.changed_by_a_refusal(before, after))
                self._note_all(run, self._files.users.lost())
            self._count(fault)


def _begins_a_run(text: str) -> bool:
    """Return whether ``penstock multirun`` has started a training: it handles signals from then on."""
    return ": resumes" in text or ": trains" in text


def _trainings(run: Run) -> list[int]:
    """Return the process ids of the trainings that a command has started."""
    found = []
    with suppress(psutil.Error):
        for process in psutil.Process(run.process.pid).children():
            with suppress(psutil.Error):
                if set(process.cmdline()) & set(PROGRAMS):
                    found.append(process.pid)
    return sorted(found)
