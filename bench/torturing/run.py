"""One ``penstock`` command, such as ``train`` or ``resume``: its processes, its progress, its end."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.ipc import set_parent_death_signal
from torturing import ledger
from torturing.plan import EVALUATOR, LAUNCHER, LEARNER, POLICY, ROLLOUT, TREE, USER

BENCH = Path(__file__).parents[1]
PR_SET_CHILD_SUBREAPER, PR_CAPBSET_DROP = 36, 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
LOOK = 0.02  # seconds between two looks
NAMES = {ROLLOUT: "penstock-rollout-", POLICY: "penstock-policy-", LEARNER: "penstock-learner",
         EVALUATOR: "penstock-evaluator", LAUNCHER: "penstock-launcher"}  # fmt: skip


class Hang(Exception):
    """Timeout; the message names the expected event."""


class EndedEarlyError(Exception):
    """The run ended unexpectedly."""


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that all can be found."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Run:
    """A started command.

    Parameters
    ----------
    arguments
        Arguments of ``penstock``.
    folder
        Folder of its ledger, temporary files and output.
    life
        Name of this life in the ledger.
    patience
        Seconds without progress after which the run counts as hanging.
    place
        Working directory; None: `folder`.
    """

    def __init__(
        self, arguments: list[str], folder: Path, life: str, patience: float, place: Path | None = None
    ) -> None:
        self.life, self.folder, self._patience = life, folder, patience
        self.output = folder / f"life-{life}.txt"
        for name in ("ledger", "tmp"):
            (folder / name).mkdir(exist_ok=True)
        me = os.getpid()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(BENCH), os.environ.get("PYTHONPATH", "")]),
            "PYTHONFAULTHANDLER": "1",  # SIGABRT then prints the stack of each thread
            "TMPDIR": str(folder / "tmp"),
            ledger.FOLDER: str(folder / "ledger"),
            ledger.LIFE: life,
        }
        with self.output.open("w") as output:
            output.write(f"$ penstock {' '.join(arguments)}\n")
            output.flush()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli", *arguments],
                cwd=place or folder, env=environment, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                process_group=0, preexec_fn=lambda: _begin_afresh(me),
            )  # fmt: skip

    # -- looking ---------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """Output of the command."""
        return self.output.read_text(errors="replace")

    @property
    def progress(self) -> int:
        """Number that grows while the run learns."""
        return sum(path.stat().st_size for path in (self.folder / "ledger").glob(f"{self.life}-*"))

    def roles(self) -> dict[str, int]:
        """Return process ids by name: of the running roles, and of the user's process."""
        found = {USER: self.process.pid}
        for process in _descendants(self.process.pid):
            with suppress(psutil.Error, IndexError):
                found[process.cmdline()[0].strip()] = process.pid
        return found

    def pids(self) -> set[int]:
        """Return the process ids of the command and of all its descendants."""
        return {self.process.pid, *(process.pid for process in _descendants(self.process.pid))}

    def processes(self, target: str, dice: float) -> list[tuple[str, int]]:
        """Return names and process ids that a fault affects, of a random rollout worker if there are several."""
        roles = self.roles()
        if target == TREE:
            return list(roles.items())
        names = [name for name in roles if name == target or name.startswith(NAMES.get(target, "-"))]
        return [(name, roles[name]) for name in sorted(names)[int(dice * len(names)) :][:1]]

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_until(self, condition: Callable[[], object], what: str, *, is_alive: bool = True) -> None:
        """Poll until a condition holds.

        Raises
        ------
        Hang
            The condition did not hold in time.
        EndedEarlyError
            The run ended meanwhile, although `is_alive` requires it to run.
        """
        end = time.monotonic() + self._patience
        while not condition():
            if is_alive and self.process.poll() is not None:
                raise EndedEarlyError(f"exit code {self.process.returncode} while {what} was awaited")
            if time.monotonic() > end:
                raise Hang(f"{what} was awaited for {self._patience:.0f} s")
            time.sleep(LOOK)

    def wait_for_progress(self, what: str = "progress") -> None:
        """Wait until the run has learned more than now."""
        before = self.progress
        self.wait_until(lambda: self.progress > before, what)

    def wait_for_role(self, name: str, other_than: int) -> None:
        """Wait until a role of this name is a process other than the given one."""
        self.wait_until(lambda: self.roles().get(name, other_than) != other_than, f"another {name}")

    def wait_for_end(self) -> int:
        """Wait until the user's process has ended; return its exit code."""
        self.wait_until(lambda: self.process.poll() is not None, "the end of the run", is_alive=False)
        return self.process.returncode

    def left_after_the_end(self, grace: float, other: Run | None = None) -> tuple[float, list[str]]:
        """Wait until no process of the run is left, or `grace` seconds; return the time taken, and the processes left.

        Processes of the `other` run may continue.
        """
        began = time.monotonic()
        while names := _living_children(set() if other is None else other.pids()):
            if time.monotonic() - began > grace:
                return time.monotonic() - began, names
            time.sleep(LOOK)
        return time.monotonic() - began, []

    # -- ending ----------------------------------------------------------------------------------------------------

    def show_where_it_stands(self) -> None:
        """Make every process print the stacks of its threads to the output."""
        for pid in self.roles().values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGABRT)
                time.sleep(0.2)

    def kill(self) -> None:
        """Kill all remaining processes of the run."""
        for process in _descendants(os.getpid()):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self.left_after_the_end(self._patience)


def _begin_afresh(parent: int) -> None:
    """In the child: handle signals, also those that the torture itself ignores, and die with the parent.

    From now on file permissions also hold for the superuser, so that a file can be unreadable.
    """
    for capability in CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    set_parent_death_signal(signal.SIGKILL, parent)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _living_children(other: set[int]) -> list[str]:
    """Return the names of this process's descendants other than `other`, after reaping those that have ended."""
    with suppress(ChildProcessError):
        while not other and os.waitpid(-1, os.WNOHANG)[0]:
            pass
    names = []
    for process in _descendants(os.getpid()):
        with suppress(psutil.Error):
            if process.pid not in other and process.status() != psutil.STATUS_ZOMBIE:
                names.append(f"{' '.join(process.cmdline()).strip()} ({process.pid})")
    return names
