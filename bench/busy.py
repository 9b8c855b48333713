"""A command on a busy machine: it runs next to programs that compute without pause.

    python bench/busy.py 8 -- make test

The exit code is the command's. A test that passes alone but fails next to busy programs depends on the speed of the
machine. The busy programs have the priority of the command, and always end with this program.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys

from penstock.ipc import set_parent_death_signal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=int, help="busy programs, at least 1")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")
    asked = parser.parse_args()
    if asked.programs < 1:
        parser.error(f"programs: {asked.programs} is not legal: at least 1")
    signal.signal(signal.SIGTERM, _stop)
    busy: list[int] = []
    try:
        for _ in range(asked.programs):
            busy.append(_start_busy(os.getpid()))
        return _code_of(subprocess.call(asked.command))
    except OSError as error:
        print(f"{asked.command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    except KeyboardInterrupt:
        return 130
    finally:
        for pid in busy:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _start_busy(parent: int) -> int:
    """Fork a program that computes without end; return its process id."""
    if pid := os.fork():
        return pid
    try:
        set_parent_death_signal(signal.SIGKILL, parent)
        while True:
            pass
    finally:
        os._exit(1)


def _stop(*_: object) -> None:
    """End the command, which `subprocess.call` does at any exception."""
    raise SystemExit(128 + signal.SIGTERM)


def _code_of(status: int) -> int:
    """Return a command's exit code as in a shell: 128 plus the signal, if one killed it."""
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
