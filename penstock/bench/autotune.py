"""Fastest settings on this machine: a table of trials, and the command to train with.

penstock autotune appo --env CartPole-v1 [every flag of the algorithm] [--seconds 100] [--tune-batch] [--json FILE]

`penstock.bench.search` describes the search.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from penstock.bench import BenchUsageError
from penstock.bench.arguments import as_flags, names_of, own_parser, parse, require_positive
from penstock.bench.data_paths import measured_path
from penstock.bench.search import Search, Trial, describe_quick
from penstock.config import AsynchronousConfig, Config
from penstock.ipc import available_cores
from penstock.redaction import joined, masked_arguments
from penstock.runs.machine import describe, machine_facts

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm

_QUIET = 0.05  # share of the cores' time that other programs may take without a note
_WIDTHS = {"workers": 7, "lanes": 5, "inference": 9, "groups": 6, "batch": 7, "steps/s": 9, "real work": 9}


def command(args: list[str]) -> int:
    """Search, print the trials, and the command to train with; return the exit code.

    Raises
    ------
    BenchUsageError, ConfigError
        The request is not legal.
    BenchError, TrainingFailed, EnvironmentFailure
        The initial settings failed.
    KeyboardInterrupt
        Ctrl-C or SIGTERM arrived; the best settings so far were printed.
    """
    began = time.monotonic()
    arguments = parse(args, _own_flags())
    if arguments is None:
        return 0
    algorithm, config, flags, own = arguments.algorithm, arguments.config, arguments.flags, arguments.own
    _check(own, algorithm)
    machine = machine_facts()
    print(describe(machine))
    print(_line({name: name for name in _WIDTHS}, "limited by"), flush=True)
    search = Search(
        algorithm, config, fixed=names_of(flags, config), end=began + own.seconds, tune_batch=own.tune_batch,
        report=_show,
    )  # fmt: skip
    from penstock.engine.backends.launcher import kept

    try:
        with kept():
            search.run()
    finally:  # also after Ctrl-C
        if search.best is not None:
            found, train = {}, None
            if search.has_found:
                found = search.found()
                train = joined(masked_arguments(["penstock", "train", arguments.name, *flags, *as_flags(found)]))
            print(_outcome(search, config, time.monotonic() - began, train), flush=True)
            if own.json is not None:
                facts = {
                    "machine": machine, "algorithm": algorithm.name(), "config": config.to_json(),
                    "trials": [trial.facts() for trial in search.trials], "ended": search.ended,
                    "found": found, "rate": search.rate(search.best), "command": train,
                }  # fmt: skip
                own.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


def _own_flags() -> argparse.ArgumentParser:
    about = "Settings given as flags are not tuned."
    parser, add = own_parser("penstock autotune", "flags of autotune itself", about)
    add("--seconds", type=float, default=100.0, metavar="S", help="time for all measurements together (100)")
    add("--tune-batch", action="store_true", help="also tune the batch, which changes learning besides its speed")
    add("--json", type=Path, metavar="FILE", help="write all measurements to this new file")
    return parser


def _check(own: argparse.Namespace, algorithm: type[Algorithm]) -> None:
    require_positive(own, "seconds")
    if own.tune_batch and not measured_path(algorithm).batch_is_free:
        raise BenchUsageError(
            "--tune-batch is not legal for learning from replay, because the smallest batch is always the fastest: "
            "give --batch-size"
        )


def _show(trial: Trial) -> None:
    if trial.run is not None:
        numbers = f"{trial.rate:,.0f}", f"{trial.real_work:.0%}"
        limit = f"{trial.run.limiting_role}: {trial.run.limiting_reason}"
    else:
        story = trial.error.strip().splitlines()
        numbers, limit = ("-", "-"), f"failed: {' ... '.join(dict.fromkeys((story[0], story[-1])))}"
    cells = dict(zip(_WIDTHS, (*trial.settings.values(), *numbers), strict=True))
    print(_line(cells, limit), flush=True)


def _line(cells: dict[str, Any], limit: str) -> str:
    return "  ".join([*(f"{cells[name] or '-':>{width}}" for name, width in _WIDTHS.items()), limit])


def _outcome(search: Search, config: Config, seconds: float, train: str | None) -> str:
    """Return results, omissions and the recommended command as text."""
    assert search.best is not None
    best, first = search.rate(search.best), search.rate(search.first) or search.first.rate
    count = len(search.trials)
    measured = f"{count} measurement{'' if count == 1 else 's'} in {seconds:.0f} s: {search.ended}"
    if train is None:
        return f"\n{measured}\nno settings were measured to be faster than the initial ones: none are recommended"
    lines = [
        measured,
        f"fastest: {best:,.0f} steps/s, {best / first:.2f} times the {first:,.0f} of the initial settings",
    ]
    if kept := search.kept():
        lines.append(f"not tuned, because it changes what is learned (--tune-batch tunes it): {kept}")
    if (quick := search.measured.quick(config)) != config:
        lines.append(describe_quick(config, quick))
    runs = [trial.run for trial in search.trials if trial.run]
    others = fmean(run.other_programs / (run.seconds * available_cores()) for run in runs)
    if others > _QUIET:
        lines.append(f"other programs took {others:.0%} of the cores' time: results may differ on a quiet machine")
    more_lanes = search.best.config.num_lanes > search.first.config.num_lanes
    if more_lanes and isinstance(config, AsynchronousConfig):
        lines.append("with more lanes, steps are older when they are learned from: check the policy lag")
    return "\n".join(["", *lines, "", train])
