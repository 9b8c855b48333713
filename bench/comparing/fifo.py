"""faster-fifo, the other library of `comparing.ipc`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from comparing.peers import FASTER_FIFO, program
from penstock.bench import BenchError

PATIENCE = 60.0
"""Seconds that the program may take beyond the measurement."""


class FasterFifo:
    """faster-fifo, in processes of another Python.

    Parameters
    ----------
    python
        Interpreter that has faster-fifo.

    Raises
    ------
    BenchError
        The interpreter does not have it, or the measuring program is missing.
    """

    name = FASTER_FIFO.name

    def __init__(self, python: Path) -> None:
        self._command = [str(python), str(program("faster_fifo_messages.py"))]
        self.version: str = self._measured(1, 1, 0.0)["version"]

    def messages_per_second(self, producers: int, together: int, seconds: float) -> float:
        """Measure as `messages.messages_per_second` does."""
        return self._measured(producers, together, seconds)["messages_per_second"]

    def _measured(self, producers: int, together: int, seconds: float) -> dict:
        command = [*self._command, str(producers), str(together), str(seconds)]
        elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=elsewhere, timeout=seconds + PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BenchError(f"faster-fifo cannot be measured: {error}") from None
        if done.returncode:
            raise BenchError(f"faster-fifo cannot be measured ({' '.join(command)}):\n{done.stderr.strip()}")
        return json.loads(done.stdout)
