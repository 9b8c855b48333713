"""Libraries to compare with, each in its own virtual environment, without Penstock."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from penstock.bench import BenchError

_PROGRAMS = Path(__file__).parents[1] / "peers"
_TORCH = "torch>=2.8,<2.14"


@dataclass(frozen=True)
class Peer:
    """A library to compare with."""

    name: str
    """Name of the package, and of the flag that names its Python."""
    version: str
    bench: str
    """Name of the bench that measures it."""
    requirements: tuple[tuple[str, ...], ...]
    """Packages of each installation, in order: a later installation may override a pin of an earlier one."""

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}"

    @property
    def flag(self) -> str:
        """Flag of its bench that names the Python of an environment that has it."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """Environment variable that does the same."""
        return f"PENSTOCK_BENCH_{self.name.upper().replace('-', '_')}"

    def find(self, given: Path | None, install: bool) -> Path | None:
        """Return the Python of an environment that has it: given, named by the variable, or installed here.

        Raises
        ------
        BenchError
            The installation failed.
        """
        variable = os.environ.get(self.variable)
        named = given or (Path(variable) if variable else None)
        if named is not None:
            return named
        environment = _cache() / f"{self.name}-{self.version}"
        python = environment / "bin" / "python"
        complete = environment / "complete"  # created last, so that an interrupted installation is repeated
        if install and not complete.exists():
            print(f"installing {self.title} in {environment}", file=sys.stderr)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            installations = [[*pip, *together] for together in self.requirements]
            for command in ([sys.executable, "-m", "venv", "--clear", environment], *installations):
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
                if done.returncode:
                    said = (done.stderr or done.stdout).strip()
                    raise BenchError(f"{self.title} could not be installed in {environment}:\n{said}")
            complete.touch()
        return python if complete.exists() else None

    def how_to_get(self) -> str:
        """Return instructions for a comparison."""
        quoted = [" ".join(f"'{r}'" if set(r) & set("<> ") else r for r in together) for together in self.requirements]
        installations = "; ".join(f"X/bin/pip install {requirements}" for requirements in quoted)
        return (
            f"no comparison: {self.title} is needed in a separate environment, either\n"
            f"  python bench/{self.bench}.py --install-peers\n"
            f"or\n  python -m venv X; {installations}\n"
            f"  python bench/{self.bench}.py {self.flag} X/bin/python    (or {self.variable}=X/bin/python)"
        )


CPPRB = Peer("cpprb", "11.0.0", "replay", (("cpprb==11.0.0",),))
FASTER_FIFO = Peer("faster-fifo", "1.5.2", "ipc", (("faster-fifo==1.5.2",),))
SAMPLE_FACTORY = Peer(
    "sample-factory", "2.1.1", "throughput",
    ((_TORCH, "sample-factory==2.1.1", "ale-py==0.12.1"), ("numpy<2", "opencv-python==4.11.0.86")),
)  # fmt: skip
STABLE_BASELINES3 = Peer("stable-baselines3", "2.9.2", "throughput", ((_TORCH, "stable-baselines3==2.9.2"),))


def program(name: str) -> Path:
    """Return the path of a program for a peer's Python, which does not have Penstock."""
    return _PROGRAMS / name


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "peers"
