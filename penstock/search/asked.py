"""Shared parts of the commands that train many runs: cores, directory, and reserved settings."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from penstock.bench import BenchUsageError
from penstock.bench.asked import Asked
from penstock.config import Config
from penstock.runs.jobs import split_cores


def require_counts(own: argparse.Namespace, *names: str) -> None:
    """Refuse counts of less than 1.

    Raises
    ------
    BenchUsageError
        A count is less than 1.
    """
    for name in names:
        if getattr(own, name) < 1:
            raise BenchUsageError(f"--{name} {getattr(own, name)} is not legal: 1 or more")


def require_as_they_are(config: Config, why: Mapping[str, str], where: str) -> None:
    """Refuse settings that the command sets itself.

    Parameters
    ----------
    config
        The settings.
    why
        Reason for each setting.
    where
        Place in the message: "here", "in a search".

    Raises
    ------
    BenchUsageError
        Such a setting was given.
    """
    for name, reason in why.items():
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        if value != default:
            raise BenchUsageError(f"--{name.replace('_', '-')} {value} is not legal {where}: {reason}")


def cores_of_jobs(jobs: int) -> list[list[int]]:
    """Split the cores among runs.

    Raises
    ------
    BenchUsageError
        There are fewer cores than jobs.
    """
    try:
        return split_cores(jobs)
    except ValueError as error:
        raise BenchUsageError(str(error)) from None


def workers_of_job(cores: list[list[int]]) -> int:
    """Default number of a run's rollout workers: one for each core of its job."""
    return min(len(cores[0]), 16)


def with_workers(config: Config, workers: int | None) -> Config:
    """Set the number of workers where the settings leave it open."""
    return replace(config, num_workers=workers) if config.num_workers is None else config


def directory_of(asked: Asked, what: str) -> Path:
    """Directory of the command: ``--dir``, or ``runs/WHAT-ENV-ALGORITHM``."""
    if asked.own.dir is not None:
        return Path(asked.own.dir)
    env = asked.config.env if isinstance(asked.config.env, str) else "env"
    return Path("runs") / re.sub(r"[^\w.+-]+", "-", f"{what}-{env}-{asked.algorithm.name()}")


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)
