"""The instrument: what this machine does with Penstock, beside its peers. Installed with Penstock, for its users.

The folder bench/ of the source is for its makers: trainings and comparisons that the pages report, and their history.
Importing this package is cheap; a bench is imported when it runs.
"""

from __future__ import annotations

from pathlib import Path

BENCHES: dict[str, str] = {
    "ideal": "penstock.bench.ideal",
    "throughput": "penstock.bench.throughput",
    "ipc": "penstock.bench.ipc",
    "replay": "penstock.bench.replay",
    "cluster": "penstock.bench.cluster",
}
"""Benches by the name that the command line gives them.

Each module has ``command(args: list[str]) -> bool``: it reads its flags, measures, prints; False if a mark was missed.
"""


class BenchError(RuntimeError):
    """A bench cannot be run, or what it measures does something wrong; the message says what to do."""


class BenchUsageError(ValueError):
    """A bench is asked for what it cannot do."""


def require_directory_of(json: Path | None) -> None:
    """Raise `BenchUsageError` if there is no directory for the file that ``--json`` names."""
    if json is not None and not json.absolute().parent.is_dir():
        raise BenchUsageError(f"--json {json}: there is no directory {json.absolute().parent}")
