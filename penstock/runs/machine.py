"""Provenance of a run: machine, command, commit."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.ipc import available_cores, cpu_quota, memory_use
from penstock.masking import joined, masked_arguments

_GIT_SECONDS = 5.0


def this_machine() -> dict[str, Any]:
    """Describe this machine as a run sees it.

    Returns
    -------
    dict
        host, system, cpu; cores (of the affinity, no more than a container grants), cpu_quota (cores that a container
        grants; None: no limit), memory (bytes, of the machine or its container).
    """
    return {
        "host": socket.gethostname(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_name(),
        "cores": available_cores(),
        "cpu_quota": cpu_quota(),
        "memory": memory_use().limit,
    }


def cpu_name() -> str:
    """The processor's name as the kernel has it; "?" if it has none."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")


def this_command() -> str:
    """The command that this process was started with, as it can be given again; possible secrets are masked."""
    program, *args = sys.argv or [""]
    return joined(masked_arguments(["penstock", *args] if Path(program).name == "penstock" else sys.orig_argv))


def commit_of(folder: Path, file: str | None = None) -> str | None:
    """Commit of the git repository that a folder is in, with "-dirty" behind it where files differ; None: not known.

    Parameters
    ----------
    folder
        The folder.
    file
        Name of a file in it that must be one of the repository's: an installed package may lie inside somebody else's.
    """
    try:
        if file is not None and _git(folder, "ls-files", "--error-unmatch", file).returncode:
            return None
        return _git(folder, "describe", "--always", "--dirty").stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _git(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # a look writes nothing
    return subprocess.run(
        ["git", *args], cwd=folder, env=quiet, capture_output=True, text=True, timeout=_GIT_SECONDS, check=False
    )
