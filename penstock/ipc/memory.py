"""How much memory a run may take, asked before it is taken."""

from pathlib import Path


def available_memory(*, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes this process may still use: the machine's MemAvailable or what its cgroups leave, whichever is less.

    Parameters
    ----------
    proc, cgroup : Path
        Where the kernel tells; other places only for tests.
    """
    return min([_machine_available(proc), *_cgroup_headrooms(proc, cgroup)])


def require_memory(nbytes: int, what: str) -> None:
    """Raise MemoryError, with the arithmetic shown, unless ``nbytes`` more bytes are available.

    Shared memory has no limit of its own: taking too much is not refused but ends in the kernel's OOM killer.
    """
    available = available_memory()
    if nbytes > available:
        raise MemoryError(
            f"{what} needs {_readable(nbytes)}, but only {_readable(available)} are available "
            f"({_readable(nbytes - available)} too little; available is the least of the machine's MemAvailable and "
            f"limit - used of each cgroup of this process): ask for less, or give the machine or container more memory"
        )


def _machine_available(proc: Path) -> int:
    for line in (proc / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"{proc / 'meminfo'} has no MemAvailable line: Penstock needs Linux 3.14 or newer")


def _cgroup_headrooms(proc: Path, cgroup: Path) -> list[int]:
    """Limit less use of every cgroup, of version 2 or 1, that this process is in, directly or through its parents."""
    headrooms = []
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount, limit, usage, cache = cgroup, "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, usage = cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        # A container often sees only its own cgroup, mounted as the root: the path is then not there, the root is.
        group = Path(path.lstrip("/"))
        for folder in (mount / part for part in (group, *group.parents)):
            allowed = _read(folder / limit)
            if allowed.isdigit():
                used = int(_read(folder / usage)) - _droppable(folder / "memory.stat", cache)
                headrooms.append(max(0, int(allowed) - used))
    return headrooms


def _droppable(stat: Path, entry: str) -> int:
    """File cache that the kernel gives up before it kills anybody, yet counts as used."""
    values = dict(line.split() for line in _read(stat).splitlines())
    return int(values.get(entry, 0))


def _read(file: Path) -> str:
    """The file's text, or "" for a cgroup that cannot be seen from here or has no limit file (the root)."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _readable(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.1f} MiB"
