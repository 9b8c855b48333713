"""Where the libraries to compare with are: each in a virtual environment of its own, never beside Penstock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.bench import BenchError

CPPRB = "11.0.0"
VARIABLE = "PENSTOCK_BENCH_CPPRB"


def find_cpprb(given: Path | None, install: bool) -> Path | None:
    """Python of the environment that has cpprb: given, named by the variable, or installed here before or now."""
    variable = os.environ.get(VARIABLE)
    named = given or (Path(variable) if variable else None)
    if named is not None:
        return named
    environment = _cache() / f"cpprb-{CPPRB}"
    python = environment / "bin" / "python"
    complete = environment / "complete"  # made last: an interrupted installation is done again
    if install and not complete.exists():
        print(f"installing cpprb {CPPRB} in {environment}", file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", "--clear", environment], [python, *_pip_install()]):
            done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr or done.stdout).strip()
                raise BenchError(f"cpprb {CPPRB} could not be installed in {environment}:\n{said}")
        complete.touch()
    return python if complete.exists() else None


def how_to_get_cpprb() -> str:
    """What to do for a comparison."""
    return (
        f"no comparison: cpprb {CPPRB} is needed in an environment of its own, either\n"
        "  penstock bench replay --install-peers\n"
        f"or\n  python -m venv X; X/bin/pip install cpprb=={CPPRB}\n"
        f"  penstock bench replay --cpprb X/bin/python    (or {VARIABLE}=X/bin/python)"
    )


def _pip_install() -> list[str]:
    return ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"cpprb=={CPPRB}"]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "peers"
