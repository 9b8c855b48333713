"""A node's side of a training: its processes and its files.

A Ray actor that uses nothing of Ray. The processes end with it, and its temporary folder is removed, however it ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.ipc import CORES
from penstock.runs.machine import About, about_here
from penstock.trials.files import Changes, Copy, Piece, batches

GATHER_SECONDS = 0.5  # for which changes are gathered before an answer
FORGOTTEN_SECONDS = 60.0  # without a request from home
_POLL_SECONDS = 0.05
# The program of a process that gets SIGTERM when this one ends: `preexec_fn` is not safe among the threads of Ray.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
# Waits for the end of this process, then kills the training's processes and removes its folder; a line ends it.
_REMOVAL = 'exec 3<&0; (read x <&3 && exit; kill -KILL -- "-$1"; sleep 1; rm -rf -- "$2") >/dev/null 2>&1 &'


@dataclass(frozen=True)
class Task:
    """A training.

    Attributes
    ----------
    command
        Arguments of Python.
    folder
        Absolute path of the folder at home that the command reads and writes, as in the arguments.
    output
        File of the output, relative to the folder.
    is_shared
        Whether the node has the folder itself; otherwise a temporary one takes its place.
    cores
        Number of cores that the training may use.
    working_directory
        That of home, used where it exists.
    """

    command: Sequence[str]
    folder: str
    output: str
    is_shared: bool
    cores: int
    working_directory: str


class TrialHost:
    """Runner of one training; calls come one at a time."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._changes: Changes | None = None
        self._left: Iterator[list[Piece]] | None = None  # of the present reading of the changes
        self._is_last_reading = False
        self._process: subprocess.Popen[bytes] | None = None
        self._removal: subprocess.Popen[bytes] | None = None
        self._asked_at = time.monotonic()
        threading.Thread(target=self._end_when_forgotten, name="forgotten", daemon=True).start()

    def about(self, proof: str, token: str) -> tuple[About, bool]:
        """Return software and place of the host, and whether it finds a token in the file of home's `proof`."""
        self._asked_at = time.monotonic()
        try:
            found = Path(proof).read_text()
        except OSError:
            found = ""
        return about_here(), found == token

    def put(self, pieces: Sequence[Piece]) -> None:
        """Write pieces of the files that the training reads."""
        self._asked_at = time.monotonic()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-trial-"))
            self._copy = Copy(self._folder)
        for piece in pieces:
            self._copy.take(piece)

    def begin(self, task: Task) -> str:
        """Start the training; return the folder that takes the place of home's, "" for home's itself."""
        if not task.is_shared:
            self.put(())
        folder = Path(task.folder) if task.is_shared or self._folder is None else self._folder
        command = list(task.command) if task.is_shared else [self._here(word, task.folder) for word in task.command]
        if not task.is_shared:
            self._changes = Changes(folder)
            self._changes.skip()
        output = folder / task.output
        output.parent.mkdir(exist_ok=True)
        where = task.working_directory if os.path.isdir(task.working_directory) else None
        with open(output, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", _TIED, str(os.getpid()), sys.executable, *command], cwd=where,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0,
                env={**os.environ, CORES: str(task.cores)},
            )  # fmt: skip
        if not task.is_shared:
            self._removal = subprocess.Popen(
                ["sh", "-c", _REMOVAL, "sh", str(self._process.pid), str(folder)], stdin=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
            self._removal.wait()  # what it has started goes on
        return "" if task.is_shared else str(folder)

    def gather(self) -> tuple[list[Piece], int | None]:
        """Return pieces of what has changed, and once all has been returned the exit code."""
        assert self._process is not None
        self._asked_at = time.monotonic()
        if self._left is None:
            end = time.monotonic() + GATHER_SECONDS
            while self._process.poll() is None and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
            self._is_last_reading = self._process.poll() is not None
            self._left = batches(self._changes.pieces()) if self._changes is not None else iter(())
        batch = next(self._left, None)
        if batch is not None:
            return batch, None
        self._left = None
        if self._is_last_reading and self._folder is not None and self._removal is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._removal.communicate(b"\n")
        return [], self._process.returncode if self._is_last_reading else None

    def send_again(self) -> None:
        """Count nothing as sent: home's copy is gone."""
        if self._changes is not None and self._folder is not None:
            self._changes, self._left = Changes(self._folder), None

    def stop(self) -> None:
        """Request that the training ends in good order."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _here(self, word: str, folder: str) -> str:
        """Return an argument with this node's folder in place of home's, also within a JSON file that it names."""
        if not word.startswith(f"{folder}/"):
            return word
        path = f"{self._folder}{word.removeprefix(folder)}"
        if word.endswith(".json"):
            begin = json.dumps(folder)[:-1]
            text = Path(path).read_text().replace(f"{begin}/", f"{json.dumps(str(self._folder))[:-1]}/")
            Path(path).write_text(text)
        return path

    def _end_when_forgotten(self) -> None:
        """End this process, and the training with it, when home is gone, or cannot be reached."""
        while time.monotonic() - self._asked_at < FORGOTTEN_SECONDS:
            time.sleep(1.0)
        os._exit(1)
