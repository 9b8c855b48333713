"""What a figure was measured on: machine, versions and commit, printed above every table."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.ipc import available_cores

_PACKAGES = ("penstock", "torch", "numpy", "gymnasium")


def describe(facts: dict | None = None) -> str:
    """One line that belongs to every measured figure: `machine_facts`, of now if they are not given."""
    facts = facts or machine_facts()
    packages = " ".join(f"{name} {found}" for name, found in facts["packages"].items())
    machine = f"{facts['cpu']}, {facts['cores']:g} cores, load {facts['load']:.1f}"
    return f"{machine} | Python {facts['python']} {packages} | commit {facts['commit'] or 'unknown'}"


def machine_facts() -> dict:
    """The same by name: cpu, cores (usable), load (of the last minute), python, packages, commit (None: not known)."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {
        "cpu": cpu,
        "cores": available_cores(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "commit": _commit(Path(__file__)),
    }


def _commit(file: Path) -> str | None:
    """Commit of the source tree that this file is part of; an installed file may lie inside somebody else's."""
    try:
        if subprocess.run(["git", "ls-files", "--error-unmatch", file.name], **_quietly(file)).returncode:
            return None
        return subprocess.run(["git", "describe", "--always", "--dirty"], **_quietly(file)).stdout.strip() or None
    except FileNotFoundError:
        return None


def _quietly(file: Path) -> dict:
    return {"capture_output": True, "text": True, "cwd": file.parent}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
