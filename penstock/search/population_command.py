"""Population-based training over several runs, each an ordinary run directory.

penstock pbt ppo --env LunarLander-v3 --space population.toml [every flag of the algorithm] [--population 4] [--jobs 1]
             [--dir DIR]
"""

from __future__ import annotations

import argparse
import re
from contextlib import ExitStack
from pathlib import Path

from penstock.bench import BenchUsageError
from penstock.bench.arguments import own_parser, parse, require_counts
from penstock.config import Config, require_no_secrets
from penstock.runs.lock import alone_in
from penstock.search.arguments import (
    directory_of,
    print_now,
    require_defaults,
    resumable,
    with_workers,
    workers_of_job,
)
from penstock.search.population import PopulationRuns
from penstock.trials.request import ABOUT, places_for, require_room, split

_RESERVED = {
    "num_policies": "members are runs of one policy: use --population, or penstock train for policies of one run",
    "run_dir": "each member has its own directory, in --dir",
    "target_return": "a member that stops at a target would leave the population",
}


def command(args: list[str]) -> int:
    """Train a population, and print the best member; return the exit code.

    Raises
    ------
    BenchUsageError, ConfigError
        The request is not legal.
    BenchError
        A member failed.
    KeyboardInterrupt
        Ctrl-C or SIGTERM; no process is left, and the same command resumes.
    """
    args, cluster = split(args)
    arguments = parse(_with_space(args), own_flags())
    if arguments is None:
        return 0
    own, config = arguments.own, arguments.config
    _check(own, config)
    from penstock.algorithms import algorithm_id

    directory, algorithm = directory_of(arguments, "pbt"), algorithm_id(arguments.algorithm)
    with ExitStack() as stack:
        try:
            stack.enter_context(alone_in(directory))
        except BlockingIOError:
            raise BenchUsageError(f"another penstock pbt is at work in {directory}") from None
        except OSError as error:
            raise BenchUsageError(f"--dir {directory} cannot be created: {error.strerror}: give another") from None
        cores = stack.enter_context(places_for(cluster, own.jobs, [config], directory, print_now))
        config = with_workers(config, workers_of_job(cores))
        require_room([(arguments.algorithm, config)])
        runs = PopulationRuns(directory, algorithm, config, own.population, cores, print_now)
        with resumable():
            runs.run()
    found = [(score, number) for number, score in enumerate(runs.scores()) if score is not None]
    if found:
        score, number = max(found)
        settings = ", ".join(f"{name}={value:.4g}" for name, value in runs.population.members[number].settings.items())
        print_now(f"best: {runs.member(number)}, {config.pbt_metric} {score:.4g}, with {settings}")
    return 0


def own_flags() -> argparse.ArgumentParser:
    """Make the parser of the flags of `penstock pbt` besides those of training."""
    about = (
        "--space FILE (a TOML file with a table for each setting that may change: low and high) is short for "
        "--pbt-space. This and the other flags of populations are flags of training; --total-steps is per member. "
        f"{ABOUT}"
    )
    parser, add = own_parser("penstock pbt", "flags of the population itself", about)
    add("--population", type=int, default=4, metavar="N", help="number of members, each a run (4)")
    add("--jobs", type=int, metavar="K", help="members training at once, each on its own cores (1)")
    add("--dir", type=Path, help="directory of the runs; the same command resumes (runs/pbt-ENV-ALGORITHM)")
    return parser


def _with_space(args: list[str]) -> list[str]:
    """Return the arguments with --space replaced by --pbt-space, and with the default rule."""
    named = [re.sub(r"^--space(?==|$)", "--pbt-space", arg) for arg in args]
    has_space = any(arg.partition("=")[0] == "--pbt-space" for arg in named)
    has_rule = any(arg.partition("=")[0] == "--pbt" for arg in named)
    return [*named, "--pbt", "truncation"] if has_space and not has_rule else named


def _check(own: argparse.Namespace, config: Config) -> None:
    require_no_secrets(config.env_kwargs, "penstock pbt")
    if config.pbt is None:
        raise BenchUsageError("--space is missing: give a TOML file with a table for each setting that may change")
    require_counts(own, "jobs")
    require_defaults(config, _RESERVED, "here")
