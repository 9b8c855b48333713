"""Arguments of the commands that train many runs: cores, directory, and reserved settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from penstock.bench import BenchUsageError
from penstock.bench.asked import Asked
from penstock.config import Config, ConfigError
from penstock.runs.remote import is_remote
from penstock.runs.vacancy import require_outside_runs
from penstock.trials.asking import Asked as Cluster
from penstock.trials.asking import places_for

print_now = partial(print, flush=True)
"""Print a line at once."""


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


def enter_places(stack: ExitStack, cluster: Cluster | None, asked: Asked, folder: Path) -> list[list[int]]:
    """Return places for the runs of a command, until a stack is closed: parts of this machine, or of a cluster.

    Raises
    ------
    BenchUsageError
        This machine has fewer cores than jobs.
    ConfigError
        The cluster has no such places.
    """
    try:
        return stack.enter_context(places_for(cluster, asked.own.jobs, [asked.config], folder, print_now))
    except ConfigError:
        raise
    except ValueError as error:
        raise BenchUsageError(str(error)) from None


def workers_of_job(cores: list[list[int]]) -> int:
    """Return the default number of rollout workers of a run: one per core of its job, at most 16."""
    return min(len(cores[0]), 16)


def with_workers(config: Config, workers: int | None) -> Config:
    """Return the settings with a number of rollout workers, `workers` unless they give one."""
    return replace(config, num_workers=workers) if config.num_workers is None else config


def directory_of(asked: Asked, what: str) -> Path:
    """Return the directory of the command: ``--dir``, or ``runs/WHAT-ENV-ALGORITHM``."""
    if is_remote(asked.own.dir):
        raise BenchUsageError(f"--dir {asked.own.dir} is a URL: trainings of a {what} are in a local folder")
    if asked.own.dir is not None:
        require_outside_runs(asked.own.dir, f"--dir {asked.own.dir}")
        return Path(asked.own.dir)
    env = asked.config.env if isinstance(asked.config.env, str) else "env"
    return Path("runs") / re.sub(r"[^\w.+-]+", "-", f"{what}-{env}-{asked.algorithm.name()}")
