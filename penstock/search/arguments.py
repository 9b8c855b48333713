"""Arguments of the commands that train many runs: cores, directory, and reserved settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.bench import BenchUsageError
from penstock.bench.arguments import BenchArguments
from penstock.config import Config
from penstock.runs.remote import is_remote
from penstock.runs.vacancy import require_outside_runs, safe_name

print_now = partial(print, flush=True)
"""Print a line without buffering."""


def require_defaults(config: Config, reasons: Mapping[str, str], where: str) -> None:
    """Raise `BenchUsageError` for a setting that the command sets itself.

    Parameters
    ----------
    config
        Settings as given.
    reasons
        Reason by setting.
    where
        Place in the message: "here", "in a search".
    """
    for name, reason in reasons.items():
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        if value != default:
            raise BenchUsageError(f"--{name.replace('_', '-')} {value} is not legal {where}: {reason}")


@contextmanager
def resumable() -> Iterator[None]:
    """Print that the same command resumes where Ctrl-C or SIGTERM ends the block."""
    try:
        yield
    except KeyboardInterrupt:
        print_now("interrupted: the same command resumes")
        raise


def workers_of_job(cores: list[list[int]]) -> int:
    """Return the default number of rollout workers of a run: one per core of its job, at most 16."""
    return min(len(cores[0]), 16)


def with_workers(config: Config, workers: int | None) -> Config:
    """Return the settings with a number of rollout workers, `workers` unless they give one."""
    return replace(config, num_workers=workers) if config.num_workers is None else config


def directory_of(arguments: BenchArguments, what: str) -> Path:
    """Return the directory of the command: ``--dir``, or ``runs/WHAT-ENV-ALGORITHM``."""
    if is_remote(arguments.own.dir):
        raise BenchUsageError(f"--dir {arguments.own.dir} is a URL: the trainings of a {what} need a local folder")
    if arguments.own.dir is not None:
        require_outside_runs(arguments.own.dir, f"--dir {arguments.own.dir}")
        return Path(arguments.own.dir)
    env = arguments.config.env if isinstance(arguments.config.env, str) else "env"
    return Path("runs") / safe_name(f"{what}-{env}-{arguments.algorithm.name()}")
