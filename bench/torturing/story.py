"""Player of a story: applies the drawn faults to a run, and records violations."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from torturing import audit, ledger
from torturing.disk import SmallDisk, damage, hostile, resealed
from torturing.plan import (
    CONFIG,
    LANES,
    PATHS,
    REFUSED,
    REPLAY_FILES,
    ROLLOUT,
    STATUS,
    TREE,
    USER,
    WORKERS,
    Fault,
    Life,
    Story,
)
from torturing.run import EndedEarlyError, Hang, Run, adopt_orphans

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
UNSAVED = "later learning is not saved"  # printed at the end of a run without a last checkpoint
SECONDS = 0.0003  # that a step sleeps
CHECKPOINT_INTERVAL = 1_000
LAST = "last"  # name of the life without faults
LAST_STEPS = 2_500  # steps of the life without faults
ECHO = 0.6  # seconds within which a second signal may count as the first
GRACE = 20.0  # seconds after which a process that outlives its run counts as left; the longest time is also reported
WRONG = (
    "hangs", "processes left", "memory left", "ended badly", "not resumed", "steps twice or lost", "results differ",
    audit.LOST,
)  # fmt: skip

FLAGS = (
    f"--env torturing.counted:Corridor --encoder torturing.counted:Place --hidden-sizes 8 --no-normalize-observations "
    f"--num-workers {WORKERS} --num-envs-per-worker {LANES // WORKERS} --keep-checkpoints 4 --eval-episodes 4"
)


@dataclass
class Report:
    """Outcome of a story.

    Attributes
    ----------
    faults
        Number of faults by (kind, target).
    wrong
        Violations: (one of `WRONG`, description, file with details).
    steps
        Steps that were compared with the ledger.
    compared
        Checkpoints compared with those of a run without faults.
    slowest_end
        Longest time in seconds from the end of the user's process until no process was left.
    """

    story: Story
    faults: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[tuple[str, str, str]] = field(default_factory=list)
    steps: int = 0
    lives: int = 0
    compared: int = 0
    slowest_end: float = 0.0


class Player:
    """Plays stories of runs with processes.

    Parameters
    ----------
    story
        The plan.
    folder
        An empty folder for everything that the run writes.
    patience
        Seconds without progress after which a run hangs.
    """

    def __init__(self, story: Story, folder: Path, patience: float) -> None:
        adopt_orphans()
        self.report = Report(story)
        self._story = story
        self._path = PATHS[story.path]
        self._folder = folder
        self._patience = patience
        self._disk = SmallDisk(folder / "disk")
        self._run_dir = self._disk.path / "run"
        self._files = audit.RunFiles(self._run_dir)
        self._kills = 0
        self._doing = "starting"

    def play(self) -> Report:
        """Play to the end, or as far as it goes."""
        for number, life in enumerate(self._story.lives):
            if not self._live(str(number), life):
                return self.report
            for fault in life.damage:
                if (fault.kind, fault.target) in REFUSED:
                    self._refuse(str(number), fault)
                else:
                    self._damage(fault)
        self._live(LAST, None)
        return self.report

    # -- lives -----------------------------------------------------------------------------------------------------

    def _live(self, name: str, life: Life | None) -> bool:
        """Play one life; return False if the story cannot continue."""
        base, before = self._files.newest_intact(), self._files.checkpoints()
        arguments = self._train(self._run_dir) if not before else ["resume", str(self._run_dir)]
        if life is None:
            arguments += self._last_budget(base)
        self._kills, self._doing = 0, "starting"
        self.report.lives += 1
        run = Run(arguments, self._folder, name, self._patience)
        with self._noting(run):
            try:
                run.wait_until(lambda: run.progress, "the first update")
            except EndedEarlyError as error:
                self._note(run, "not resumed" if before else "ended badly", str(error))
                return False
            self._doing = "training without faults"
            if life is None:
                self._expect_end(run, 0, "done after")
                if self._files.newest_intact() < base + LAST_STEPS:
                    self._note(run, "ended badly", f"its last checkpoint is of step {self._files.newest_intact()}")
            else:
                run.wait_until(lambda: self._files.new_since(before), "a checkpoint")
                self._files.write_notes()
                for fault in life.faults:
                    self._suffer(run, fault)
                self._end(run, life.ending)
            self._note_all(run, self._files.users.lost())
            self._look_at_what_is_left(run)
            self._audit(run, base, self._files.new_since(before))
            return True
        return False

    def _train(self, run_dir: Path) -> list[str]:
        flags = f"{FLAGS} {self._path.flags} --seed {self._story.number} --total-steps 1000000000 --env-kwargs"
        inference = "central" if self._path.is_central else "local"
        return [
            "train", f"torturing.counted:{self._path.algorithm}", *flags.split(), f"seconds={SECONDS}",
            "--inference", inference, "--checkpoint-interval", str(CHECKPOINT_INTERVAL),
            "--eval-interval", str(2 * CHECKPOINT_INTERVAL), "--run-dir", str(run_dir),
        ]  # fmt: skip

    @staticmethod
    def _last_budget(steps: int) -> list[str]:
        return ["--total-steps", str(steps + LAST_STEPS)]

    # -- faults that a run outlives --------------------------------------------------------------------------------

    def _suffer(self, run: Run, fault: Fault) -> None:
        """Apply a fault, and require the run to continue."""
        self._wait(run, fault.after)
        self._doing = f"suffering {fault}"
        if fault.kind in ("SIGKILL", "SIGKILL while stopped"):
            self._kill_replaced(run, fault)
        elif fault.kind == "SIGSTOP":
            pids = [pid for _, pid in self._victims(run, fault)]
            with _stopped(pids):
                time.sleep(fault.seconds)
        elif fault.kind == "SIGTERM":
            ((name, pid),) = self._victims(run, fault)
            os.kill(pid, signal.SIGTERM)
            run.wait_for_progress()
            if run.roles().get(name) != pid:
                self._note(run, "ended badly", f"{name} ended by SIGTERM, which is the supervisor's alone")
        elif fault.kind == "full disk":
            pids = run.roles().values()
            self._disk.fill(pids)
            try:
                self._wait(run, fault.seconds)
                run.wait_for_progress("progress with a full disk")
            finally:
                self._disk.free(pids)
        elif fault.kind == "second training":
            self._train_twice(run, fault)
        elif fault.kind == "removed":
            self._remove(run)
        elif fault.kind == "hostile":
            self._write_hostile_status(run, self._run_dir, fault)
        elif not self._damage(fault):
            return
        if fault.kind not in ("truncated", "bit flipped"):
            self._count(fault)
        run.wait_for_progress(f"progress after {fault}")

    def _train_twice(self, run: Run, fault: Fault) -> None:
        """Start another training in the run directory, and require its refusal."""
        resume = ["resume", str(self._run_dir)]
        arguments, said = (resume, "is in use") if fault.dice < 0.5 else (self._train(self._run_dir), "holds a run")
        second = Run(arguments, self._folder, f"{run.life} refused", self._patience)
        code = second.wait_for_end()
        if code != WRONG_USAGE or said not in second.text:
            self._note(second, "ended badly", f"exit code {code}, or {said!r} not said")

    def _remove(self, run: Run) -> None:
        """Remove the run directory, and require the run to be written anew with its next checkpoint."""
        lost = self._run_dir.with_name("lost")
        self._run_dir.rename(lost)
        shutil.rmtree(lost)
        self._files.damaged.clear()
        self._files.users.forget(self._run_dir)
        run.wait_until(self._files.store.steps, "a checkpoint in a directory that was removed")
        if not (self._run_dir / "config.json").is_file():
            self._note(run, "ended badly", "it has checkpoints but no config.json")
        self._files.write_notes()

    def _write_hostile_status(self, run: Run, run_dir: Path, fault: Fault) -> None:
        """Replace the status of a running training; require a list of runs meanwhile, and a new status."""
        hostile_text = hostile(fault.dice, ("state", "steps", "process"))
        with suppress(FileNotFoundError):  # the run was removed a moment ago, and is not yet written again
            (run_dir / STATUS).write_bytes(hostile_text)
            self._list_runs(run, run_dir.parent)
            run.wait_until(lambda: not (run_dir / STATUS).is_file() or (run_dir / STATUS).read_bytes() != hostile_text,
                           "a status written anew")  # fmt: skip

    def _list_runs(self, run: Run, place: Path, said: str = "") -> None:
        """Run ``penstock runs``, and require all runs in its list."""
        listing = Run(["runs", str(place)], self._folder, f"{run.life} listed", self._patience)
        code = listing.wait_for_end()
        if code != 0 or said not in listing.text or "Traceback" in listing.text:
            self._note(listing, "ended badly", f"penstock runs: exit code {code}, or {said!r} not said")

    def _kill_replaced(self, run: Run, fault: Fault) -> None:
        ((name, pid),) = self._victims(run, fault)
        self._kills += 1
        if fault.kind == "SIGKILL while stopped":
            os.kill(pid, signal.SIGSTOP)
            self._wait(run, fault.seconds / 4)
        os.kill(pid, signal.SIGKILL)
        run.wait_for_role(name, pid)

    def _victims(self, run: Run, fault: Fault) -> list[tuple[str, int]]:
        """Return names and process ids of a fault's targets, waiting for those that are being replaced."""
        run.wait_until(lambda: run.processes(fault.target, fault.dice), f"a {fault.target}")
        return run.processes(fault.target, fault.dice)

    def _wait(self, run: Run, seconds: float) -> None:
        """Wait while the run trains."""
        end = time.monotonic() + seconds
        run.wait_until(lambda: time.monotonic() > end, "a moment")

    # -- faults that end it ----------------------------------------------------------------------------------------

    def _end(self, run: Run, fault: Fault) -> None:
        """Apply a fault, and require the expected end of the run."""
        self._wait(run, fault.after)
        self._doing = f"ended by {fault}"
        for pid in self._signals(run, fault):
            with suppress(ProcessLookupError):
                os.kill(pid, self._signum(fault))
        self._count(fault)
        if fault.kind == "SIGKILL" and fault.target in (USER, TREE):
            self._expect_end(run, -signal.SIGKILL, "")
        elif fault.kind in ("SIGTERM", "SIGINT"):
            self._expect_end(run, INTERRUPTED, "resume:   penstock resume")
            self._note_all(run, audit.last_word(run.text, self._files))
        elif fault.kind == "SIGTERM twice":  # the second may arrive after the run's end, when it is not handled
            self._expect_end(run, INTERRUPTED, "", or_code=-signal.SIGTERM)
        elif fault.kind == "full disk, SIGTERM":
            self._expect_end(run, INTERRUPTED, "warning: no checkpoint could be written")
            self._disk.free([])
        else:
            self._expect_end(run, FAILED, "penstock resume")

    def _signals(self, run: Run, fault: Fault) -> Iterator[int]:
        """Yield process ids, once for each signal of the fault that the caller is to send."""
        if fault.kind == "SIGKILL six times":
            for _ in range(6 - self._kills):
                ((name, pid),) = self._victims(run, fault)
                yield pid
                run.wait_until(lambda n=name, p=pid: run.roles().get(n) != p, f"the end of {name}", is_alive=False)
                if run.process.poll() is not None:
                    return
                with suppress(EndedEarlyError):  # by the sixth
                    run.wait_until(lambda: run.processes(ROLLOUT, fault.dice), "its successor")
            return
        if fault.kind == "full disk, SIGTERM":
            self._disk.fill(run.roles().values())
        victims = [pid for _, pid in self._victims(run, fault)]
        random.Random(fault.dice).shuffle(victims)
        yield from victims
        if fault.kind == "SIGTERM twice":
            time.sleep(ECHO + fault.seconds / 4)
            yield from victims

    @staticmethod
    def _signum(fault: Fault) -> int:
        for name in ("SIGKILL", "SIGINT", "SIGTERM"):
            if name in fault.kind:
                return getattr(signal, name)
        raise ValueError(fault.kind)

    def _expect_end(self, run: Run, code: int, text: str, or_code: int | None = None) -> None:
        """Wait for the end of the run; record another exit code, missing output, and processes left."""
        found = run.wait_for_end()
        seconds, left = run.left_after_the_end(GRACE)
        self.report.slowest_end = max(self.report.slowest_end, seconds)
        if left:
            self._note(run, "processes left", ", ".join(left))
        if found not in (code, or_code) or text not in run.text:
            self._note(run, "ended badly", f"exit code {found} instead of {code}, or {text!r} not said")

    # -- refusals --------------------------------------------------------------------------------------------------

    def _refuse(self, name: str, fault: Fault) -> None:
        """Make a file newer, unreadable or hostile, check that the run is refused unchanged, and restore the file."""
        self._doing = f"refused for {fault}"
        with self._out_of_order(self._files, fault) as said:
            if not said:
                return
            before = audit.contents_below(self._run_dir)
            run = Run(["resume", str(self._run_dir)], self._folder, f"{name} refused", self._patience)
            with self._noting(run):
                self._expect_refusal(run, said, before)
                self._list_runs(run, self._run_dir.parent)
        self._count(fault)

    def _expect_refusal(self, run: Run, said: str, before: dict[Path, bytes]) -> None:
        code = run.wait_for_end()
        if code not in (FAILED, WRONG_USAGE) or said not in run.text or "Traceback" in run.text:
            self._note(run, "ended badly", f"exit code {code}, or {said!r} not said")
        self._note_all(run, audit.changed_by_a_refusal(before, audit.contents_below(self._run_dir)))

    @contextmanager
    def _out_of_order(self, files: audit.RunFiles, fault: Fault) -> Iterator[str]:
        """Within the block, apply the fault to a file; yield part of the refusal's message, "" without such a file."""
        dice = random.Random(fault.dice)
        if fault.target == CONFIG:
            path = files.run_dir / CONFIG
        elif steps := files.newest_intact():
            path = files.store.path_of(steps) / "meta.json"
        else:
            yield ""
            return
        content = path.read_bytes()
        try:
            if fault.kind == "unreadable":
                path.chmod(0)
                yield "Permission denied"
            elif fault.target == CONFIG:
                path.write_bytes(hostile(dice.random(), ("algorithm", "run")))
                yield CONFIG
            else:
                path.write_bytes(resealed(content, fault.kind))
                yield "newer Penstock" if fault.kind == "newer" else "meta.json"
        finally:
            path.chmod(0o644)
            path.write_bytes(content)

    # -- damage ----------------------------------------------------------------------------------------------------

    def _damage(self, fault: Fault) -> bool:
        """Damage a file, mostly of the newest checkpoint, if another is intact; return whether it was done."""
        return self._damage_one(self._files, fault)

    def _damage_one(self, files: audit.RunFiles, fault: Fault) -> bool:
        dice = random.Random(fault.dice)
        if fault.target == REPLAY_FILES:
            name, candidates = "replay", [*files.replay.glob("*")]
        else:
            intact = [steps for steps in files.store.steps() if files.is_intact(steps)]
            victims = intact[-1:] if len(intact) > 1 and dice.random() < 0.7 else intact[:-1]
            name = str(dice.choice(victims)) if victims else "best"
            candidates = [*(files.store.directory / name).glob("*")]
        candidates = sorted(path for path in candidates if path.suffix != ".txt" and not path.name.startswith("."))
        try:
            done = damage(dice.choice(candidates), fault.kind, dice.random())
        except (IndexError, FileNotFoundError, ValueError):  # replaced, or gone, just now; or cut off already
            return False
        files.damaged.add(name)
        with (self._folder / "damage.txt").open("a") as notes:
            notes.write(f"{done}\n")
        self._count(fault)
        return True

    # -- audits ----------------------------------------------------------------------------------------------------

    def _look_at_what_is_left(self, run: Run) -> None:
        """Look for temporary files, and at the very end for incomplete files in the run directory."""
        left = [*(self._folder / "tmp").iterdir(), *self._disk.names_left()]
        if run.life == LAST:
            left += [path for path in self._run_dir.rglob("*") if path.name.startswith(".")]
        if left:
            self._note(run, "memory left", ", ".join(map(str, left)))
            shutil.rmtree(self._folder / "tmp")  # it counts once

    def _audit(self, run: Run, base: int, new: list[int]) -> None:
        """Compare the ledger with the run's files."""
        account = ledger.read(self._folder / "ledger", run.life)
        self.report.steps += account.steps
        # On a full disk the last checkpoint is an older one, which the run reports.
        in_order = run.process.returncode in (0, INTERRUPTED) and UNSAVED not in run.output.read_text()
        self._note_all(run, audit.checkpoints(self._files, base, new))
        self._note_all(run, audit.steps(account, self._path, base, new, self._kills, in_order))
        if self._path.learns == "replay" and self._files.replay.exists():
            num_steps, wrong = audit.replay(self._files, self._path)
            self.report.steps += num_steps if run.life == LAST else 0
            self._note_all(run, wrong)

    # -- notes -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _noting(self, run: Run) -> Iterator[None]:
        """Record exceptions as violations, and end all processes of the run."""
        try:
            yield
        except Hang as hang:
            self._note(run, "hangs", str(hang))
            run.show_where_it_stands()
        except EndedEarlyError as error:
            self._note(run, "ended badly", str(error))
        finally:
            self._disk.free([])
            run.kill()

    def _note(self, run: Run, what: str, exactly: str) -> None:
        where = f"story {self._story.number} ({self._story.name}), life {run.life}, {self._doing}"
        self.report.wrong.append((what, f"{where}: {exactly}", str(run.output)))
        kept = self._folder / f"run-{run.life}"  # the small disk goes with this process
        if self._run_dir.exists() and not kept.exists():
            shutil.copytree(self._run_dir, kept, ignore_dangling_symlinks=True)

    def _note_all(self, run: Run, wrong: audit.Wrong) -> None:
        for what, exactly in wrong:
            self._note(run, what, exactly)

    def _count(self, fault: Fault) -> None:
        self.report.faults[fault.kind, fault.target] += 1


@contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    """Stop processes during the block."""
    try:
        _signal_all(pids, signal.SIGSTOP)
        yield
    finally:
        _signal_all(pids, signal.SIGCONT)


def _signal_all(pids: list[int], signum: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

