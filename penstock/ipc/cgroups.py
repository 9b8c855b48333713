"""The cgroups of this process: what limits it directly, or through a group that holds its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")


class Cgroup(NamedTuple):
    """A cgroup's folder, and which of the two versions of the interface its files are of."""

    folder: Path
    version: int

    def read(self, name: str) -> str:
        """Return the text of a file; "" where it is not there: the group cannot be seen from here, or has no limit."""
        try:
            return (self.folder / name).read_text().strip()
        except OSError:
            return ""


def cgroups(controller: str, *, proc: Path = PROC, cgroup: Path = CGROUP) -> Iterator[Cgroup]:
    """Find every cgroup that this process is in, from its own to the root, where it is limited.

    Parameters
    ----------
    controller
        What is limited: "memory" or "cpu".
    proc, cgroup
        Where the kernel tells; other places only for tests.
    """
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, version = cgroup, 2
        elif controller in controllers.split(","):
            mount, version = cgroup / controller, 1
        else:
            continue
        # A container often sees only its own cgroup, mounted as the root: the path is then not there, the root is.
        group = Path(path.lstrip("/"))
        for part in (group, *group.parents):
            yield Cgroup(mount / part, version)
