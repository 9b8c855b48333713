"""Machines as their kernel's files describe them."""

from collections.abc import Mapping
from pathlib import Path

GIB = 2**30


def kernel(root: Path, cgroup_line: str, files: Mapping[str, object]) -> dict[str, Path]:
    """A machine with 8 GiB available, a process in the cgroup, and the files of /sys/fs/cgroup."""
    proc, cgroup = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable: {8 * GIB // 1024} kB\n")
    (proc / "self" / "cgroup").write_text(f"5:cpuset:/elsewhere\n{cgroup_line}\n")
    for name, content in files.items():
        (cgroup / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroup / name).write_text(f"{content}\n")
    return {"proc": proc, "cgroup": cgroup}
