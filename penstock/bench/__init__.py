"""Measurements that users run on their own machines. Installed with Penstock.

The folder bench/ of the source has trainings, comparisons with other libraries, and the history of their results.
Importing this package is cheap; a bench is imported when it runs.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from penstock.runs.files import why_no_new_file

BENCHES: dict[str, str] = {
    "ideal": "penstock.bench.ideal",
    "throughput": "penstock.bench.throughput",
    "cluster": "penstock.bench.cluster",
}
"""Modules of the benches, by name on the command line.

Each module has ``command(args: list[str]) -> bool``: it reads its flags, measures, prints; False if a target is missed.
"""


COMPARISONS: dict[str, frozenset[str] | None] = {
    "throughput": frozenset({"--peers", "--install-peers", "--sample-factory", "--stable-baselines3"}),
    "ipc": None,
    "replay": None,
}
"""Measurements of ``bench/NAME.py`` in the source, with the flags that only the script has; None: all flags."""


class BenchError(RuntimeError):
    """A bench cannot run, or the measured training fails; the message gives the remedy."""


class BenchUsageError(ValueError):
    """An argument of a bench is not legal."""


def refuse_comparison(name: str, args: list[str]) -> None:
    """Raise `BenchUsageError`, naming the script to run, if only the source has the measurement."""
    flags = COMPARISONS.get(name, frozenset())
    found = [arg for arg in args if flags is not None and arg.partition("=")[0].replace("_", "-") in flags]
    if flags is None or found:
        script = shlex.join(["python", f"bench/{name}.py", *args])
        raise BenchUsageError(
            f"{' '.join(['penstock bench', name, *found[:1]])} compares Penstock with other libraries, and is not part "
            f"of the package. In a checkout of the source, run: {script}"
        )


def require_new(json: Path | None) -> None:
    """Raise `BenchUsageError` if the file that ``--json`` names exists or cannot be created."""
    if json is not None and (reason := why_no_new_file(json)):
        raise BenchUsageError(f"--json {json} cannot be written: {reason}")
