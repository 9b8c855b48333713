"""Provenance of a figure: machine, versions and commit, printed above every table."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.ipc import available_cores
from penstock.runs.machine import commit_of, cpu_name

_PACKAGES = ("penstock", "torch", "numpy", "gymnasium")


def describe(facts: dict | None = None) -> str:
    """One line that belongs to every measured figure: `machine_facts`, of now if they are not given."""
    facts = facts or machine_facts()
    packages = " ".join(f"{name} {found}" for name, found in facts["packages"].items())
    machine = f"{facts['cpu']}, {facts['cores']:g} cores, load {facts['load']:.1f}"
    return f"{machine} | Python {facts['python']} {packages} | commit {facts['commit'] or 'unknown'}"


def machine_facts() -> dict:
    """The same by name: cpu, cores (usable), load (of the last minute), python, packages, commit (None: not known)."""
    return {
        "cpu": cpu_name(),
        "cores": available_cores(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "commit": commit_of(Path(__file__).parent, Path(__file__).name),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
