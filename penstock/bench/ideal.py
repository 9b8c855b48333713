"""Ratio of a training's rate to the best possible on this machine, and causes of the difference.

penstock bench ideal appo --env CartPole-v1 [every flag of the algorithm] [--rounds 3] [--bench-seconds 8]
                     [--min-efficiency 0.85] [--json FILE]

Costs and training take turns, round after round, so that other programs on the machine affect both; the round with the
median efficiency is shown.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING

from penstock.bench.arguments import own_parser, parse, require_counts, require_positive
from penstock.bench.data_paths import measured_path
from penstock.bench.search import describe_quick
from penstock.runs.machine import describe, machine_facts

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config


def command(args: list[str]) -> bool:
    """Measure costs, ideal and training, print the causes of the difference, and return whether the target is met.

    Raises
    ------
    BenchUsageError, ConfigError
        The request is not legal.
    BenchError, TrainingFailed, EnvironmentFailure
        A measurement failed.
    """
    arguments = parse(args, _own_flags())
    if arguments is None:
        return True
    require_counts(arguments.own, "rounds")
    require_positive(arguments.own, "bench_seconds", "min_efficiency")
    return run(arguments.algorithm, arguments.config, arguments.own)


def run(algorithm: type[Algorithm], config: Config, own: argparse.Namespace) -> bool:
    """Measure a run with the bench's own flags; print results, and return whether the target is met.

    Raises
    ------
    BenchError, TrainingFailed, EnvironmentFailure
        A measurement failed.
    """
    from penstock.bench.account import Account
    from penstock.bench.costs import measure_costs
    from penstock.bench.engine_run import run_engine
    from penstock.engine.backends.launcher import kept

    machine = machine_facts()
    print(describe(machine), flush=True)
    measured = measured_path(algorithm, config).quick(config)
    rounds = []
    with kept():
        for number in range(1, own.rounds + 1):
            costs, capacity = measure_costs(algorithm, measured, seconds=own.bench_seconds)
            rounds.append(Account(costs, capacity, run_engine(algorithm, measured, seconds=own.bench_seconds)))
            print(f"round {number} of {own.rounds}: {rounds[-1].summary()}", flush=True)
    efficiencies = sorted(account.efficiency for account in rounds)
    efficiency = median_low(efficiencies)
    account = next(account for account in rounds if account.efficiency == efficiency)
    is_met = own.min_efficiency is None or efficiency >= own.min_efficiency

    print(f"\n{algorithm.name()} on {config.env}: {account.setting()}")
    if measured != config:
        print(describe_quick(config, measured))
    print(account.text())
    print(f"median efficiency of {len(rounds)}: {efficiency:.1%}, from {efficiencies[0]:.1%} to {efficiencies[-1]:.1%}")
    if own.min_efficiency is not None:
        print(f"min_efficiency: {own.min_efficiency:.1%}, {'met' if is_met else 'MISSED'}")
    if own.json is not None:
        facts = {
            "machine": machine, "algorithm": algorithm.name(), "config": measured.to_json(), **account.facts(),
            "rounds": [one.facts() for one in rounds], "min_efficiency": own.min_efficiency, "is_met": is_met,
        }  # fmt: skip
        own.json.write_text(json.dumps(facts, indent=1) + "\n")
    return is_met


def _own_flags() -> argparse.ArgumentParser:
    parser, add = own_parser("penstock bench ideal", "flags of the bench itself")
    add("--rounds", type=int, default=3, metavar="N", help="measure costs and training N times, in turns (3)")
    add("--bench-seconds", type=float, default=8.0, metavar="S", help="time of each measurement in a round (8)")
    add("--min-efficiency", type=float, metavar="E", help="exit with 3 if the median is below E, such as 0.85")
    add("--json", type=Path, metavar="FILE", help="write all measurements to this new file")
    return parser
