"""Other libraries as contestants of `penstock bench throughput`: they do the same work."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from comparing.peers import SAMPLE_FACTORY, STABLE_BASELINES3, Peer, program
from penstock.bench import BenchError
from penstock.bench.throughput import Contestant
from penstock.ipc import whole_cores

START_UP = 180.0
"""Seconds that a rival may take beyond the measurement."""


@dataclass(frozen=True)
class Rival:
    """Another program that does the same work: a file in `bench/peers`.

    Its argument is a number of seconds; it prints `SETTINGS settings in words` and `STEPS_PER_SECOND n`.
    """

    name: str
    program: str
    arguments: tuple[str, ...] = ()
    """Arguments of the program before the seconds."""
    peer: Peer | None = None
    """Required library; None: it needs nothing but Penstock's requirements."""
    mark: float | None = None
    """Required ratio of Penstock's rate."""

    def rate(self, python: Path, seconds: float) -> tuple[float, str]:
        """Do the work in a process of another Python; return steps per second, and the settings in words.

        Raises
        ------
        BenchError
            The process cannot be started, hangs, fails, or prints no rate.
        """
        command = [str(python), str(program(self.program)), *self.arguments, f"{seconds:g}"]
        environment = {**os.environ, "PENSTOCK_BENCH_WORKERS": str(whole_cores())}
        if self.peer is not None:
            environment.pop("PYTHONPATH", None)  # it was made for this interpreter
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=environment, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BenchError(f"{python} cannot be run to measure {self.name}: {error}") from None
        try:
            said, _ = process.communicate(timeout=seconds + START_UP)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} gave no figure for {seconds + START_UP:.0f} s: it hangs") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        found = re.search(r"^STEPS_PER_SECOND (\d+)$", said, re.MULTILINE)
        if process.returncode or found is None:
            raise BenchError(f"{self.name} could not be measured (exit {process.returncode}):\n{said[-3000:].strip()}")
        ran_with = re.search(r"^SETTINGS (.+)$", said, re.MULTILINE)
        return float(found[1]), ran_with[1] if ran_with else "as it is by default"


def _sample_factory(work: str, mark: float) -> Rival:
    return Rival("sample-factory", "sample_factory_throughput.py", (work,), SAMPLE_FACTORY, mark)


RIVALS: dict[str, tuple[Rival, ...]] = {
    "cartpole": (
        _sample_factory("cartpole", mark=4.5),
        Rival("bare loop", "bare_cartpole.py", mark=0.867),
        Rival("stable-baselines3", "sb3_throughput.py", peer=STABLE_BASELINES3),
    ),
    "pong": (_sample_factory("pong", mark=2.0),),
    "pong-bfloat16": (_sample_factory("pong", mark=2.8),),
}
"""Rivals by the name of the work."""


def contestants_of(
    works: Sequence[str], given: dict[Peer, Path | None], install: bool
) -> tuple[dict[str, list[Contestant]], list[Peer]]:
    """Return the rivals of works.

    Parameters
    ----------
    works
        Names of the works.
    given
        Python of each peer named by a flag; None: the one named by the variable, or the installed one.
    install
        Whether missing peers are installed.

    Returns
    -------
    contestants : dict of list of Contestant
        Contestants that can be measured, by work.
    missing : list of Peer
        Peers that are not installed.

    Raises
    ------
    BenchError
        A peer could not be installed.
    """
    contestants: dict[str, list[Contestant]] = {}
    missing: list[Peer] = []
    for work in works:
        contestants[work] = []
        for rival in RIVALS.get(work, ()):
            peer = rival.peer
            python = Path(sys.executable) if peer is None else peer.find(given.get(peer), install)
            if python is not None:
                contestants[work].append(Contestant(rival.name, partial(rival.rate, python), rival.mark))
            elif peer is not None and peer not in missing:
                missing.append(peer)
    return contestants, missing
