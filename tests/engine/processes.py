"""Real processes of a run, watched until the last of them is gone."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from penstock.engine.inspection import inspect
from tests.places import ROOT

if TYPE_CHECKING:
    from penstock.engine.trainer import Trainer

PATIENCE = 30.0  # seconds until something awaited is given up
FOR_EVER = 10**9  # steps

TINY: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 2, "num_envs_per_worker": 2, "segment_length": 16, "batch_size": 32,
    "hidden_sizes": (8,), "eval_interval": 0, "eval_episodes": 2,
}  # fmt: skip
"""Settings of a run that starts and learns as fast as can be."""


def without(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """The settings but for these."""
    return {name: value for name, value in settings.items() if name not in names}


def pids_of(trainer: Trainer) -> dict[str, int]:
    """Process ids of a run's launcher and roles by name, such as "rollout-0", also of those that just begin."""
    return inspect(trainer).pids


def roles_of(trainer: Trainer) -> list[int]:
    """Process ids of a run's roles: its launcher may be kept for the next run."""
    return [pid for name, pid in pids_of(trainer).items() if name != "launcher"]


class Watched:
    """Processes as they are now: a later process with the same number is not mistaken for one of them."""

    def __init__(self, pids: list[int]) -> None:
        self._descriptors: dict[int, int] = {}  # pid by pidfd
        for pid in pids:
            try:
                self._descriptors[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                continue
        self.pids = sorted(self._descriptors.values())

    def left_after(self, seconds: float = PATIENCE) -> list[int]:
        """Wait until all are gone, at most so long; return those that are not. 0: they must be gone already."""
        left = dict(self._descriptors)
        poll = select.poll()
        for descriptor in left:
            poll.register(descriptor, select.POLLIN)
        end = time.monotonic() + seconds
        while left:
            gone = poll.poll(max(0.0, end - time.monotonic()) * 1000)
            if not gone:
                break
            for descriptor, _ in gone:
                poll.unregister(descriptor)
                del left[descriptor]
        return sorted(left.values())

    def __del__(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)


def family(pid: int) -> dict[str, int]:
    """Process ids of all descendants by name, such as "penstock-rollout-0"."""
    found = {}
    for process in psutil.Process(pid).children(recursive=True):
        try:
            found[process.cmdline()[0].strip()] = process.pid
        except (psutil.Error, IndexError):
            continue
    return found


def wait_until(condition: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
    """Look again and again until a condition holds."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"waited {patience:.0f} s in vain until {what}"
        select.select([], [], [], 0.01)


@contextmanager
def script(source: str, folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a user's script in a process group of its own, as a shell does; its output is one pipe of text."""
    path = folder / "script.py"
    path.write_text(source)
    with started([str(path), *args], folder) as process:
        yield process


@contextmanager
def started(arguments: list[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python in a process group of its own; processes left at the end are killed."""
    with subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            yield process
        finally:
            leftovers = family(process.pid).values() if process.poll() is None else []
            for pid in [process.pid, *leftovers]:
                if pid != process.pid or process.poll() is None:
                    os.kill(pid, 9)


def wait_for_steps(process: subprocess.Popen[str], run: Path, steps: int, patience: float = PATIENCE) -> None:
    """Wait until a command has learned from `steps` steps, by its run directory; show its output if it does not."""
    status = run / "status.json"

    def learns() -> bool:
        assert process.poll() is None, "the command has ended"
        return status.exists() and json.loads(status.read_text())["steps"] > steps

    try:
        wait_until(learns, f"{steps} steps are learned from", patience)
    except AssertionError as error:
        process.kill()
        raise AssertionError(f"{error}:\n{process.communicate()[0]}") from None


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    """Read a script's output up to the line that contains `text`."""
    assert process.stdout is not None
    read = []
    for line in process.stdout:
        read.append(line)
        if text in line:
            return line
    raise AssertionError(f"{text!r} never came:\n{''.join(read)}")
