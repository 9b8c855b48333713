"""Provenance of a run or a measurement: machine and its GPUs, command, commit, versions."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from penstock.redaction import joined, masked_arguments

_GIT_SECONDS = 5.0
_COMMIT = "penstock's commit"
COMPARED = ("torch", "penstock", "numpy", "gymnasium")
"""Packages that are recorded with a run, and that home and nodes must have in the same version."""


@dataclass(frozen=True)
class About:
    """Software and place of a process.

    Attributes
    ----------
    host, pid
        Name of the machine, and number of the process there.
    versions
        Versions of Python and packages, and commit of Penstock's source where it is known, by name.
    """

    host: str
    pid: int
    versions: dict[str, str]


def about_here(packages: Iterable[str] = COMPARED) -> About:
    """Return software and place of this process, with the versions of Python and of packages that are installed."""
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    found |= installed(packages)
    if commit := _commit_at_start():
        found[_COMMIT] = commit
    return About(socket.gethostname(), os.getpid(), found)


def differences(home: About, node: About) -> str:
    """Describe the versions of a node that differ from those at home; empty if none does.

    Commits are compared only if both are known.
    """
    known = [name for name in home.versions if name != _COMMIT or name in node.versions]
    pairs = [(name, home.versions[name], node.versions.get(name)) for name in known]
    return ", ".join(f"{name} {there or 'not'} (home has {here})" for name, here, there in pairs if here != there)


def this_machine() -> dict[str, Any]:
    """Describe this machine as a run sees it.

    Returns
    -------
    dict
        host, system, cpu; cores (of the CPU affinity, at most the quota), cpu_quota (cores that a container grants;
        None: no limit), memory (bytes, of the machine or its container).
    """
    from penstock.ipc import available_cores, cpu_quota, memory_use  # here: `penstock --version` imports little

    return {
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cores": available_cores(),
        "cpu_quota": cpu_quota(),
        "memory": memory_use().limit,
    }


def cpu_name() -> str:
    """Return the processor's name according to the kernel; "?" without one."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")


def this_command() -> str:
    """Return the command that started this process; possible secrets are masked."""
    program, *args = sys.argv or [""]
    return joined(masked_arguments(["penstock", *args] if Path(program).name == "penstock" else sys.orig_argv))


def this_provenance() -> dict[str, str | None]:
    """Return command, commit (of the working directory's repository) and penstock_commit of this process."""
    return {"command": this_command(), "commit": commit_of(Path.cwd()), "penstock_commit": penstock_commit()}


def penstock_commit() -> str | None:
    """Return the commit of Penstock's source: of its checkout, or as its build has recorded it; None if unknown."""
    own = Path(__file__)
    if (commit := commit_of(own.parent, own.name)) is None:
        try:
            commit = (own.parents[1] / "commit.txt").read_text().strip() or None
        except OSError:
            return None
    return commit


@functools.cache
def _commit_at_start() -> str:
    return (penstock_commit() or "")[:7]  # git's abbreviations differ in length


def versions() -> dict[str, str]:
    """Return the versions of Python, Penstock and numerical packages; "unknown" for a package that is not installed."""
    return {"python": platform.python_version()} | dict.fromkeys(COMPARED, "unknown") | installed(COMPARED)


def installed(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed, by name."""
    found = {}
    for name in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine_facts() -> dict[str, Any]:
    """Return provenance of a measurement: cpu, cores (usable), load (of the last minute), python, packages, commit."""
    from penstock.ipc import available_cores

    return {
        "cpu": cpu_name(),
        "cores": available_cores(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "packages": installed(COMPARED),
        "commit": penstock_commit(),
    }


def describe(facts: dict[str, Any] | None = None) -> str:
    """Format `machine_facts` (default: present ones) as the line above tables of measurements."""
    facts = facts or machine_facts()
    packages = " ".join(f"{name} {found}" for name, found in facts["packages"].items())
    machine = f"{facts['cpu']}, {facts['cores']:g} cores, load {facts['load']:.1f}"
    return f"{machine} | Python {facts['python']} {packages} | commit {facts['commit'] or 'unknown'}"


def commit_of(folder: Path, file: str | None = None) -> str | None:
    """Return the commit of a folder's git repository, with "-dirty" for changed files; None if unknown.

    Parameters
    ----------
    folder
        The folder.
    file
        File in it that must be tracked, because an installed package may be inside an unrelated repository.
    """
    try:
        if file is not None and _git(folder, "ls-files", "--error-unmatch", file).returncode:
            return None
        return _git(folder, "describe", "--always", "--dirty", "--exclude=*").stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # a query writes nothing
    return subprocess.run(
        ["git", *args], cwd=folder, env=quiet, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
    )


class Gpus:
    """GPUs of this machine, read through NVML; none without the extra "gpu".

    Attributes
    ----------
    names : list of str
        Name of each GPU, with "(MIG)" for divided ones.
    """

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._is_divided: list[bool] = []
        self.names: list[str] = []
        try:
            import pynvml
        except ImportError:
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                self._add(pynvml.nvmlDeviceGetHandleByIndex(index))
        except pynvml.NVMLError:  # no driver, or not usable in this container
            self._handles.clear()

    def _add(self, handle: Any) -> None:
        name = self._nvml.nvmlDeviceGetName(handle)
        try:
            is_divided = self._nvml.nvmlDeviceGetMigMode(handle)[0] == self._nvml.NVML_DEVICE_MIG_ENABLE
        except self._nvml.NVMLError:  # this kind cannot be divided
            is_divided = False
        self._handles.append(handle)
        self._is_divided.append(is_divided)
        self.names.append(f"{name} (MIG)" if is_divided else name)

    def sample(self) -> dict[str, float | None]:
        """Sample the load of each GPU, over all programs.

        Returns
        -------
        dict
            ``gpu/0/busy`` (share of the time; None if NVML does not report it, as for divided GPUs),
            ``gpu/0/memory_used`` and ``gpu/0/memory_limit`` (bytes), and so on.
        """
        found: dict[str, float | None] = {}
        for index, handle in enumerate(self._handles):
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
                found |= {f"gpu/{index}/memory_used": memory.used, f"gpu/{index}/memory_limit": memory.total}
            except self._nvml.NVMLError:
                found |= {f"gpu/{index}/memory_used": None, f"gpu/{index}/memory_limit": None}
            found[f"gpu/{index}/busy"] = self._busy(index)
        return found

    def _busy(self, index: int) -> float | None:
        if self._is_divided[index]:
            return None
        try:
            return self._nvml.nvmlDeviceGetUtilizationRates(self._handles[index]).gpu / 100
        except self._nvml.NVMLError:
            return None
