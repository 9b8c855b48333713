"""Measured processes: one per library, started by the interpreter that has it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.bench import BenchError

_OPERATIONS = Path(__file__).parents[1] / "replay_operations"
_HOUSE = Path(__file__).parents[2]
_PATIENCE = 600.0
"""Time limit of a command in seconds, so that a library that hangs ends the bench."""


class Player:
    """Process with one library that executes one command at a time, and is idle between commands.

    Parameters
    ----------
    python
        Interpreter that has the library.
    library
        Module to import, or "copy".

    Raises
    ------
    BenchError
        The library cannot be imported.
    """

    def __init__(self, python: str, library: str) -> None:
        self.library = library
        try:
            self.process = subprocess.Popen(
                [python, str(_OPERATIONS), library], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True, env=_environment(python), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BenchError(f"{python} cannot be run to measure {library}: {error}") from None
        try:
            self.versions: dict[str, str] = self.ask("hello")
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **arguments: Any) -> Any:
        """Execute a command and return the answer; raise `BenchError` for an error or without an answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], _PATIENCE)
            line = self.process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line is None:
            raise BenchError(f"{self.library} gave no answer to {do!r} for {_PATIENCE:.0f} s: it hangs")
        if not line:
            raise BenchError(f"the process that measures {self.library} ended at {do!r} (exit {self.process.wait()})")
        said = json.loads(line)
        if "error" in said:
            raise BenchError(f"{self.library}, {do!r}: {said['error']}")
        return said["answer"]

    def close(self) -> None:
        """Kill the process and its descendants."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]


def _environment(python: str) -> dict[str, str]:
    """Return the environment: with the running Penstock for this interpreter, without PYTHONPATH for others."""
    environment = dict(os.environ)
    paths = environment.pop("PYTHONPATH", "")
    if python == sys.executable:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_HOUSE), paths]))
    return environment


@contextlib.contextmanager
def started(libraries: dict[str, tuple[str, str]]) -> Iterator[dict[str, Player]]:
    """Start a player for each (interpreter, library), by name; on exit none is left."""
    with contextlib.ExitStack() as ending:
        players = {}
        for name, (python, library) in libraries.items():
            players[name] = Player(python, library)
            ending.callback(players[name].close)
        yield players
