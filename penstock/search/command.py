"""Search for the settings that learn best: trials by Optuna, a table of the best, and the command to train with them.

penstock search appo --env CartPole-v1 --space space.toml [every flag of the algorithm] [--trials 20] [--jobs 1]
                [--seeds 1] [--dir DIR] [--no-prune] [--json FILE]
penstock search --show DIR [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from penstock.bench import BenchError, BenchUsageError, require_new
from penstock.bench.arguments import BenchArguments, names_of, own_parser, parse, require_counts
from penstock.config import Config, ConfigError, require_no_secrets
from penstock.runs.formatting import counted
from penstock.runs.jobs import Place
from penstock.search.arguments import (
    directory_of,
    print_now,
    require_defaults,
    resumable,
    with_workers,
    workers_of_job,
)
from penstock.search.directory import SearchDirectory
from penstock.search.job import Shared
from penstock.search.report import best_of, summary_of, table_of, to_json
from penstock.search.searching import Searching
from penstock.search.space import Space, read_space, space_of
from penstock.trials.request import ABOUT, places_for, require_room, split
from penstock.trust import SEALS, code_of, seals_of

_WIDE = 160  # columns of the table outside a terminal
_RESERVED = {
    "target_return": "a training that stops at a target stops at a good moment, and scores would not compare",
    "run_dir": "each trial has its own directory, in --dir",
}


def command(args: list[str]) -> int:
    """Search, print the best trials, and the command to train with; return the exit code.

    Raises
    ------
    BenchUsageError, ConfigError
        The request is not legal.
    BenchError
        Trainings failed, or no trial was completed.
    KeyboardInterrupt
        Ctrl-C or SIGTERM; no process is left, the best trials are printed, and the same command resumes.
    """
    if "--show" in args:
        _show(args)
        return 0
    args, cluster = split(args)
    arguments = parse(args, _own_flags())
    if arguments is None:
        return 0
    own = arguments.own
    require_no_secrets(arguments.config.env_kwargs, "penstock search")
    _require_optuna()
    _check(own, arguments.config)
    path = directory_of(arguments, "search")
    with places_for(cluster, own.jobs, [arguments.config], path, print_now) as cores:
        _search(arguments, path, cores)
    return 0


def _search(arguments: BenchArguments, path: Path, cores: list[list[int]]) -> None:
    own = arguments.own
    given = names_of(arguments.flags, arguments.config)
    workers = workers_of_job(cores)
    space = read_space(own.space, with_workers(arguments.config, workers), given)
    if isinstance(cores[0], Place) and "num_workers" in space.names:
        raise BenchUsageError("[num_workers] is not legal with --backend ray: every trial has the same number of cores")
    require_room([(arguments.algorithm, with_workers(arguments.config, workers))])
    directory = SearchDirectory.share(path, _facts(arguments, space, workers))
    config = with_workers(arguments.config, directory.facts["workers"])
    from penstock.search.study import Study

    study = Study(directory, space, config, own.seeds, is_pruned=not own.no_prune)
    train = [directory.facts["algorithm"], *arguments.flags, *directory.shared_flags]
    shared = Shared(directory, train, config, range(config.seed, config.seed + own.seeds), print_now)
    print_now(f"{directory.path}: {len(study.tried)} of {counted(own.trials, 'trial')} so far")
    try:
        with resumable():
            Searching(shared, study, own.trials, cores).run()
    finally:
        _present(directory, study, space, own.json)
    if not best_of(study.tried):
        raise BenchError("no trial was completed: the lines above have the reasons")


def _show(args: list[str]) -> None:
    own = _shown_flags().parse_args(args)
    require_new(own.json)
    _require_optuna()
    directory = SearchDirectory.open(own.show)
    from penstock.algorithms import load_algorithm
    from penstock.config import restored_config
    from penstock.search.study import Study

    facts = directory.facts
    workers = facts["workers"] or facts["config"]["num_workers"]
    with code_of(facts, own.show, own.trust_code):
        config = restored_config(load_algorithm(facts["algorithm"]).Config, facts["config"], {"num_workers": workers})
    tables = {
        name: {key: value for key, value in table.items() if value is not None}
        for name, table in facts["space"].items()
    }
    space = space_of(tables, config)
    _present(directory, Study(directory, space, config, facts["seeds"]), space, own.json)


def _own_flags() -> argparse.ArgumentParser:
    about = f"penstock search --show DIR shows the results of a search so far, without training. {ABOUT}"
    parser, add = own_parser("penstock search", "flags of search itself", about)
    add("--space", type=Path, metavar="FILE", help="TOML file: a table per setting, with low and high or values")
    add("--trials", type=int, default=20, metavar="N", help="number of trials; the same command resumes (20)")
    add("--jobs", type=int, metavar="K", help="trials at once, each on its own cores (1)")
    add("--seeds", type=int, default=1, metavar="S", help="trainings per trial, averaged; seeds count from --seed (1)")
    add("--dir", type=Path, help="directory of the search and its runs (runs/search-ENV-ALGORITHM)")
    add("--no-prune", action="store_true", help="train every trial to its end")
    add("--json", type=Path, metavar="FILE", help="write all trials to this file")
    return parser


def _shown_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock search", allow_abbrev=False)
    parser.add_argument("--show", type=Path, required=True, metavar="DIR", help="directory of a search")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all trials to this file")
    parser.add_argument("--trust-code", action="store_true", help="run code that came with a copied search")
    return parser


def _check(own: argparse.Namespace, config: Config) -> None:
    if own.space is None:
        raise BenchUsageError("--space is missing: give a TOML file with a table for each setting to search")
    require_counts(own, "trials", "jobs", "seeds")
    require_defaults(config, _RESERVED, "in a search")
    if config.eval_interval == 0:
        raise BenchUsageError("--eval-interval 0 is not legal in a search: trials are compared by their evaluations")


def _require_optuna() -> None:
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("penstock search needs the package optuna: pip install 'penstock[tune]'")


def _facts(arguments: BenchArguments, space: Space, workers: int) -> dict[str, Any]:
    from penstock.algorithms import algorithm_id

    is_open = arguments.config.num_workers is None and "num_workers" not in space.names
    return {
        "algorithm": algorithm_id(arguments.algorithm), "flags": arguments.flags,
        "workers": workers if is_open else None,
        "config": arguments.config.to_json(), "space": space.to_json(), "seeds": arguments.own.seeds,
        SEALS: seals_of(algorithm_id(arguments.algorithm), arguments.config.to_json()),
    }  # fmt: skip


def _present(directory: SearchDirectory, study: Any, space: Space, file: Path | None) -> None:
    from rich.console import Console

    tried = study.tried
    if best_of(tried):
        console = Console(width=None if sys.stdout.isatty() else _WIDE)
        console.print(table_of(tried, space.names, directory.facts["seeds"]))
    print_now(summary_of(directory, tried))
    if file is not None:
        file.write_text(json.dumps(to_json(directory, tried), indent=1) + "\n")

