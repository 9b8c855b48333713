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
from pathlib import Path
from typing import NamedTuple

from penstock.ipc import CORES
from penstock.runs.machine import About, about_here
from penstock.trials.files import Change, Changes, batches, write

GATHER_SECONDS = 0.5  # for which changes are gathered before an answer
FORGOTTEN_SECONDS = 60.0  # without a request from home, after which the training is ended
_POLL_SECONDS = 0.05
# Program of a process that gets SIGTERM when this one ends: `preexec_fn` is not safe with Ray's threads.
_TIED = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
# Waits for the end of this process, then kills the training's processes and removes its folder; a line cancels it.
_REMOVAL = 'exec 3<&0; (read x <&3 && exit; kill -KILL -- "-$1"; sleep 1; rm -rf -- "$2") >/dev/null 2>&1 &'


class Task(NamedTuple):
    """A training: arguments of Python with absolute paths of home, its folder there, and the resources of the node."""

    words: Sequence[str]
    folder: str
    output: str  # relative to the folder
    is_shared: bool  # whether the node has home's folder itself; otherwise a temporary one takes its place
    cores: int
    working_directory: str  # that of home, used where it exists


class TrialHost:
    """Runner of one training; calls come one at a time."""

    def __init__(self) -> None:
        self._folder = ""
        self._changes: Changes | None = None
        self._left: Iterator[list[Change]] | None = None  # of the current reading of changes
        self._is_last_reading = False
        self._asked_at = time.monotonic()
        threading.Thread(target=self._end_when_forgotten, name="forgotten", daemon=True).start()

    def about(self, proof: str, token: str) -> tuple[About, bool]:
        """Return software and place of the host, and whether the file `proof` of home is here and holds a token."""
        self._asked_at = time.monotonic()
        try:
            found = Path(proof).read_text()
        except OSError:
            found = ""
        return about_here(), found == token

    def put(self, changes: Sequence[Change]) -> None:
        """Write files that the training reads."""
        self._folder = self._folder or tempfile.mkdtemp(prefix="penstock-trial-")
        for change in changes:
            write(Path(self._folder), change)

    def begin(self, task: Task) -> str:
        """Start the training; return the folder that stands in for home's, "" for home's itself."""
        folder, words = task.folder, list(task.words)
        if not task.is_shared:
            self.put(())
            folder, words = self._folder, [self._here(word, task.folder) for word in words]
            self._changes = Changes(Path(folder))
            list(self._changes.read())  # home has all this
        output = Path(folder, task.output)
        output.parent.mkdir(exist_ok=True)
        where = task.working_directory if os.path.isdir(task.working_directory) else None
        with open(output, "ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-S", "-c", _TIED, str(os.getpid()), sys.executable, *words], cwd=where,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, process_group=0,
                env={**os.environ, CORES: str(task.cores)},
            )  # fmt: skip
        if not task.is_shared:
            command = ["sh", "-c", _REMOVAL, "sh", str(self._process.pid), folder]
            self._removal = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            self._removal.wait()  # its background process keeps running
        return self._folder

    def gather(self) -> tuple[list[Change], int | None]:
        """Return changes; once all have been returned, also the exit code."""
        self._asked_at = time.monotonic()
        if self._left is None:
            end = time.monotonic() + GATHER_SECONDS
            while self._process.poll() is None and time.monotonic() < end:
                time.sleep(_POLL_SECONDS)
            self._is_last_reading = self._process.poll() is not None
            self._left = iter(()) if self._changes is None else batches(self._changes.read())
        if (batch := next(self._left, None)) is not None:
            return batch, None
        self._left = None
        if self._is_last_reading and self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._removal.communicate(b"\n")
        return [], self._process.returncode if self._is_last_reading else None

    def send_again(self) -> None:
        """Send everything again, because home's copy is gone."""
        self._changes, self._left = Changes(Path(self._folder)), None

    def stop(self) -> None:
        """Ask the training to end cleanly."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def _here(self, word: str, folder: str) -> str:
        """Return an argument with this node's folder in place of home's, also within a JSON file that it names."""
        if not word.startswith(f"{folder}/"):
            return word
        path = self._folder + word.removeprefix(folder)
        if word.endswith(".json"):
            home, here = (json.dumps(f"{each}/")[:-1] for each in (folder, self._folder))
            Path(path).write_text(Path(path).read_text().replace(home, here))
        return path

    def _end_when_forgotten(self) -> None:
        """End this process, and the training with it, when home is gone or cannot be reached."""
        while time.monotonic() - self._asked_at < FORGOTTEN_SECONDS:
            time.sleep(1.0)
        os._exit(1)
