"""What a figure was measured on: machine, versions and commit, printed above every table."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path


def describe() -> str:
    """One line that belongs to every measured figure."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    packages = " ".join(f"{name} {version(name)}" for name in ("penstock", "torch", "numpy", "gymnasium"))
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=Path(__file__).parent
    ).stdout.strip()
    machine = f"{cpu}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}"
    return f"{machine} | Python {platform.python_version()} {packages} | commit {commit}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
