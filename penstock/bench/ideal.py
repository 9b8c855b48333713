"""How close training comes to what this machine could do at best, and where the difference goes.

penstock bench ideal appo --env CartPole-v1 [every flag of the algorithm] [--bench-seconds 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.bench import BenchError, BenchUsageError
from penstock.bench.machine import describe, machine_facts
from penstock.config import closest

if TYPE_CHECKING:
    from penstock.algorithms.base import Algorithm
    from penstock.config import Config

_HELP = ("-h", "--help")
_OWN_FLAGS = """flags of the bench itself:
  --bench-seconds S  measure the training for S seconds, and the costs for as long again (10)
  --json FILE        write everything that was measured to this file

"""


def command(args: list[str]) -> bool:
    """Measure the costs, the ideal and the training, and print where the difference goes.

    Raises
    ------
    BenchUsageError, ConfigError
        What is asked for cannot be done.
    BenchError
        What is measured failed.
    """
    from penstock.algorithms import ALGORITHMS, load_algorithm

    usage = f"usage: penstock bench ideal ALGORITHM --env ENV [flags]\n\nalgorithms: {', '.join(ALGORITHMS)}\n\n"
    if args and args[0] in _HELP:
        print(f"{usage}{_OWN_FLAGS}penstock bench ideal ALGORITHM --help lists the flags of training, which all count.")
        return True
    if not args or args[0].startswith("-"):
        raise BenchUsageError(f"the algorithm comes first: penstock bench ideal {next(iter(ALGORITHMS))} --env ENV")
    name, *rest = args
    if name.lower() not in ALGORITHMS and ":" not in name:
        near = closest(name.lower(), list(ALGORITHMS))
        raise BenchUsageError(f"unknown algorithm {name!r}{near} (legal: {', '.join(ALGORITHMS)})")
    own, flags = _own_flags().parse_known_args(rest)
    if set(flags) & set(_HELP):
        print(_OWN_FLAGS, end="")
    if not 0.0 < own.bench_seconds < float("inf"):
        raise BenchUsageError(f"--bench-seconds {own.bench_seconds:g} is not legal: more than 0, and finite")
    if own.json is not None and not own.json.absolute().parent.is_dir():
        raise BenchUsageError(f"--json {own.json}: there is no directory {own.json.absolute().parent}")
    from penstock.flags import parse_config

    algorithm = load_algorithm(name)
    run(
        algorithm,
        parse_config(algorithm.Config, flags, prog=f"penstock bench ideal {name}"),
        own.bench_seconds,
        own.json,
    )
    return True


def run(algorithm: type[Algorithm], config: Config, seconds: float, json_file: Path | None = None) -> None:
    """Measure `algorithm` with `config` for `seconds`, and its costs as long again; print, and write a file if given.

    Raises
    ------
    BenchError
        What is measured failed.
    """
    from penstock.bench.account import Account
    from penstock.bench.costs import measure_costs
    from penstock.bench.engine_run import run_engine
    from penstock.engine.trainer import TrainingFailed
    from penstock.envs.failures import EnvironmentFailure

    machine = machine_facts()
    print(describe(machine), flush=True)
    try:
        costs, crew = measure_costs(algorithm, config, seconds=seconds)
        engine = run_engine(algorithm, config, seconds=seconds)
    except (TrainingFailed, EnvironmentFailure) as error:
        raise BenchError(str(error)) from error
    account = Account(costs, crew, engine)
    print(f"{algorithm.name()} on {config.env}: {account.setting()}")
    print(account.text())
    if json_file is not None:
        facts = {"machine": machine, "algorithm": algorithm.name(), "config": config.to_json(), **account.facts()}
        json_file.write_text(json.dumps(facts, indent=1) + "\n")


def _own_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock bench ideal", add_help=False, allow_abbrev=False)
    parser.add_argument("--bench-seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    return parser
