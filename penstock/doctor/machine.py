"""Checks of this machine: working parts, missing parts, advice.

Torch, Gymnasium and the native core are imported within the checks: a broken one is a finding, not a crash.
"""

from __future__ import annotations

import importlib
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from penstock.doctor import Check
from penstock.extras import extras, install_command, missing_from, modules_of

TORCH_RANGE = ((2, 8), (2, 14))
"""Supported torch versions: from the first, below the second."""

_PYTHON = (3, 11)
_COMFORTABLE_MEMORY = 2 * 2**30
_COMFORTABLE_FILES = 512
_COMFORTABLE_SHARED_MEMORY = 2**30
_NEIGHBOUR = """
import sys
from penstock.ipc import Arena, Doorbell, Ring
arena = Arena.attach(int(sys.argv[1]))
ring, doorbell = Ring.attach(arena, 0), Doorbell.attach(arena, int(sys.argv[2]))
ring.push(ring.pop(10.0) + 1)
doorbell.ring()
"""


def run_checks() -> list[Check]:
    """Run every check; an exception in one counts as "fail"."""
    return [_guarded(name, check) for name, check in CHECKS.items()]


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:  # shown as the check's finding
        return Check(name, "fail", f"{type(error).__name__}: {error}", "the check itself failed; please report this")


def _system() -> Check:
    found = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    if platform.system() != "Linux":
        return Check("system", "fail", found, "Penstock needs Linux: it uses memfd and futexes")
    if sys.version_info < _PYTHON:
        return Check("system", "fail", found, f"Penstock needs Python {_PYTHON[0]}.{_PYTHON[1]} or newer")
    return Check("system", "ok", found)


def _native_core() -> Check:
    """Send a number to another process and back, through an arena, a ring and a doorbell."""
    try:
        from penstock.ipc import Arena, Doorbell, Ring
    except ImportError as error:
        advice = "pip install --force-reinstall WHEEL_OR_CHECKOUT"
        return Check("native core", "fail", f"cannot be imported: {error}", advice)
    offset = (Ring.nbytes(8) + 63) // 64 * 64
    arena = Arena.create(offset + Doorbell.nbytes)
    ring, doorbell = Ring.create(arena, 0, 8), Doorbell.create(arena, offset)
    seen = doorbell.value
    ring.push(41)
    neighbour = subprocess.run(
        [sys.executable, "-c", _NEIGHBOUR, str(arena.fd), str(offset)],
        pass_fds=[arena.fd], capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    if neighbour.returncode or doorbell.wait(seen, 1.0) == seen or ring.pop() != 42:
        last = (neighbour.stderr.strip().splitlines() or ["no answer"])[-1]
        return Check(
            "native core", "fail", f"shared memory does not reach another process: {last}",
            "is memfd_create or inheriting descriptors forbidden here (seccomp, sandbox)?",
        )  # fmt: skip
    return Check("native core", "ok", "arena, ring and doorbell work between two processes")


def _memory() -> Check:
    from penstock.ipc import available_memory

    available = available_memory()
    found = f"{available / 2**30:.1f} GiB available (machine and cgroup limits)"
    if available < _COMFORTABLE_MEMORY:
        return Check("memory", "warn", found, "each process takes up to 0.5 GiB: use few workers, or free memory")
    return Check("memory", "ok", found)


def _shared_memory() -> Check:
    """Check /dev/shm, which training itself does not need."""
    from penstock.ipc import problem_of_locks

    users = "Ray, several learners on GPUs, and environments with their own processes, such as AsyncVectorEnv"
    advice = f"training itself needs none; {users} do: docker run --shm-size=1g"
    if reason := problem_of_locks():
        return Check("/dev/shm", "warn", reason, advice)
    space = os.statvfs("/dev/shm")
    free = space.f_bavail * space.f_frsize
    found = f"{free / 2**20:,.0f} MiB free"
    return Check("/dev/shm", "ok", found, "" if free >= _COMFORTABLE_SHARED_MEMORY else advice)


def _cores() -> Check:
    from penstock.ipc import available_cores

    allowed, cores = len(os.sched_getaffinity(0)), available_cores()
    found = f"{allowed} of {os.cpu_count()} cores may be used"
    if cores < allowed:
        found += f", and the cgroup allows {cores:g} cores' worth of time"
    if cores < 2:
        return Check("cores", "warn", found, "rollout workers and learner share one core: training is slower")
    return Check("cores", "ok", found)


def _torch() -> Check:
    (low, high), advice = TORCH_RANGE, "pip install 'torch>={}.{},<{}.{}'".format(*TORCH_RANGE[0], *TORCH_RANGE[1])
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken installation raises anything from ImportError to OSError
        return Check("torch", "fail", f"cannot be imported: {error}", advice)
    found = f"{torch.__version__}, {torch.get_num_threads()} threads"
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if not low <= release < high:
        return Check("torch", "fail", f"{found}: not a supported version", advice)
    return Check("torch", "ok", found)


def _cuda() -> Check:
    try:
        torch = importlib.import_module("torch")
    except Exception:
        return Check("cuda", "warn", "unknown: torch cannot be imported")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        return Check("cuda", "ok", f"{len(names)} found: {', '.join(names)}; use --device cuda")
    if torch.version.cuda is None:
        return Check("cuda", "ok", "none: this torch is built for CPU only, and --device cpu is the default")
    return Check(
        "cuda", "warn", f"none found, though this torch is built for CUDA {torch.version.cuda}",
        "check nvidia-smi and the driver; --device cpu works without them",
    )  # fmt: skip


def _gymnasium() -> Check:
    try:
        gymnasium = importlib.import_module("gymnasium")
    except Exception as error:
        return Check("gymnasium", "fail", f"cannot be imported: {error}", "pip install 'gymnasium>=1.1'")
    env = gymnasium.make("CartPole-v1")
    env.reset(seed=0)
    steps, ended = 0, False
    while not ended:
        _, _, terminated, truncated, _ = env.step(steps % 2)
        steps, ended = steps + 1, terminated or truncated
    env.close()
    return Check("gymnasium", "ok", f"{gymnasium.__version__}, CartPole-v1 plays")


def _extras() -> Check:
    """List installed extras, and missing ones with the packages they lack."""
    there, missing, broken = [], [], []
    for extra, requirements in extras().items():
        if absent := missing_from(requirements):
            missing.append(f"{extra} ({', '.join(absent)})")
            continue
        try:
            for module in modules_of(requirements):
                importlib.import_module(module)
            there.append(extra)
        except Exception as error:  # a broken installation raises anything from ImportError to OSError
            broken.append(f"{extra} ({error})")
    if not there and not missing and not broken:
        return Check("extras", "warn", "unknown: the package is not installed", "pip install -e .")
    found = f"installed: {', '.join(there) or 'none'}"
    if missing:
        found += f"; not installed: {', '.join(missing)}"
    if broken:
        return Check("extras", "warn", f"{found}; broken: {', '.join(broken)}", "reinstall the broken ones")
    advice = f"{install_command('NAME')} installs one, {install_command('all')} all" if missing else ""
    return Check("extras", "ok", found, advice)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{soft} open files allowed"
    if soft < _COMFORTABLE_FILES:
        return Check("open files", "warn", found, f"raise the limit before training: ulimit -n {min(hard, 4096)}")
    return Check("open files", "ok", found)


def _penstock() -> Check:
    try:
        found = version("penstock")
    except PackageNotFoundError:
        return Check("penstock", "warn", "runs from a source tree that is not installed", "pip install -e .")
    here, used = Path("penstock").resolve(), Path(__file__).resolve().parents[1]
    if here != used and (here / "doctor" / "machine.py").is_file():
        problem = f"{found} from {used}, not the source tree in this folder"
        return Check("penstock", "warn", problem, f"to use this one: pip install -e {here.parent}")
    from penstock.runs.machine import penstock_commit

    return Check("penstock", "ok", f"{found}, commit {penstock_commit() or 'unknown'}")


CHECKS: dict[str, Callable[[], Check]] = {
    "penstock": _penstock,
    "system": _system,
    "native core": _native_core,
    "memory": _memory,
    "/dev/shm": _shared_memory,
    "cores": _cores,
    "torch": _torch,
    "cuda": _cuda,
    "gymnasium": _gymnasium,
    "extras": _extras,
    "open files": _open_files,
}
