"""Plan of many runs: every algorithm with every combination of settings and every seed, from flags and a file."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.config import Config, ConfigError, closest, read_toml, require_no_secrets, whole_arguments
from penstock.flags import parse_config
from penstock.runs.files import json_values
from penstock.runs.vacancy import safe_name
from penstock.studies import StudyError
from penstock.trials.request import ABOUT, ClusterRequest, trains_on_several

Words = tuple[str, ...]
"""Value of a setting as the words after its flag: ("64", "64")."""

_IN_FILE = ("algorithms", "name", "seeds", "jobs", "zip", "settings", "grid", "algorithm")
_LONGEST_NAME = 60
_MOST_BYTES = 255  # of a file name
_SAME_SECONDS = 1.0


@dataclass(frozen=True)
class PlannedRun:
    """Planned run.

    Attributes
    ----------
    name
        Name of its directory.
    algorithm
        Name of the algorithm as given.
    flags
        Flags of ``penstock train``.
    config
        Settings of these flags, with defaults for all others.
    given
        Names of the settings that the flags give.
    """

    name: str
    algorithm: str
    flags: list[str]
    config: Config
    given: frozenset[str]


@dataclass
class Request:
    """Request, from flags and file together.

    Attributes
    ----------
    algorithms
        Names of the algorithms as given.
    name
        Name of the folder of the runs; None: derived from the rest.
    seeds
        Number of seeds, from 0 on; None: the seeds of the settings.
    jobs
        Number of runs at a time; None: one, or on a cluster as many as fit.
    zips
        Whether values of several settings are paired instead of combined.
    values
        Values of each setting, by name.
    own
        Settings of single algorithms, by name.
    dry_run
        Whether to show the plan without training.
    """

    algorithms: list[str]
    name: str | None = None
    seeds: int | None = None
    jobs: int | None = None
    zips: bool = False
    values: dict[str, list[Words]] = field(default_factory=dict)
    own: dict[str, dict[str, Words]] = field(default_factory=dict)
    dry_run: bool = False


def own_flags() -> argparse.ArgumentParser:
    """Make the parser of the command's own flags; all other flags are settings."""
    parser = argparse.ArgumentParser(
        prog="penstock multirun", usage="penstock multirun ALGORITHM[,ALGORITHM...] [flags]", allow_abbrev=False,
        add_help=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        description=(
            "Train ordinary runs over algorithms, settings and seeds, in runs/NAME. Repeating the command skips\n"
            "finished runs and resumes the others.\n\n"
            "Every flag of penstock train is a setting; several values are separated by commas: --env A,B\n"
            '--learning-rate 1e-3,3e-4 --hidden-sizes "64 64,256 256". A value that contains = is never split.'
        ),
        epilog=(
            f"{ABOUT}\n\n"
            "Flags override the file, the file overrides settings of a resumed run, and these override defaults.\n"
            "exit codes: 0 done, 1 a run failed, 2 wrong usage, 3 a run missed its --target-return, 130 interrupted"
        ),
    )  # fmt: skip
    parser.add_argument("--seeds", type=int, help="number of seeds, from 0 on")
    parser.add_argument("--jobs", type=int, help="runs at a time, each on its own cores (1)")
    parser.add_argument("--zip", action="store_true", default=None, help="pair values in order, do not combine them")
    parser.add_argument("--name", help="folder in runs/ (default: derived from the request)")
    parser.add_argument("--file", type=Path, help="TOML file: algorithms, seeds, jobs, zip, name, [settings], [grid]")
    parser.add_argument("--dry-run", action="store_true", help="print the command of each run, without training")
    return parser


def read(args: Sequence[str]) -> Request:
    """Read the request; flags override the file.

    Raises
    ------
    StudyError, ConfigError
        The request is not legal; the file cannot be read.
    SystemExit
        One of the command's own flags is wrong (2).
    """
    algorithms = args[0].split(",") if args and not args[0].startswith("-") else []
    own, rest = own_flags().parse_known_args(args[1:] if algorithms else args)
    request = Request([]) if own.file is None else _of_file(own.file)
    request.algorithms = algorithms or request.algorithms
    if not request.algorithms:
        raise StudyError("the algorithm comes first: penstock multirun ppo --env CartPole-v1 --seeds 5")
    for name, words in _settings(rest).items():
        request.values[name] = words
        for settings in request.own.values():
            settings.pop(name, None)
    request.seeds = request.seeds if own.seeds is None else own.seeds
    request.jobs = request.jobs if own.jobs is None else own.jobs
    request.zips = request.zips if own.zip is None else own.zip
    request.name, request.dry_run = own.name or request.name, own.dry_run
    if own.seeds is not None:  # a flag overrides both forms of seeds in the file
        if "seed" in _settings(rest):
            raise StudyError("--seeds and --seed are both given: --seeds 5 is short for --seed 0,1,2,3,4")
        request.values.pop("seed", None)
    elif "seed" in _settings(rest):
        request.seeds = None
    for what, number in (("seeds", request.seeds), ("jobs", request.jobs)):
        if number is not None and number < 1:
            raise StudyError(f"--{what} {number} is not legal: give 1 or more")
    return request


def plan(request: Request, *, is_here: bool = True) -> list[PlannedRun]:
    """Return every run of a request, with all settings checked, and environments too if the runs train here.

    Runs of the first seed come first, so that finished runs can be compared at any time.

    Raises
    ------
    StudyError, ConfigError, EnvironmentUsageError
        A setting or the request is not legal.
    SystemExit
        A flag is wrong (2).
    """
    values = dict(request.values)
    if request.seeds is not None:
        values["seed"] = [(str(seed),) for seed in range(request.seeds)]
    if "run_dir" in values:
        raise StudyError("--run-dir is not legal here: runs are in runs/NAME, see --name")
    seeds = values.pop("seed", [("0",)])
    varied = [name for name, several in values.items() if len(several) > 1]
    each: list[tuple[str, dict[str, Words], Config]] = []
    looked_up: set[str] = set()
    for algorithm in request.algorithms:
        own = request.own.get(algorithm, {})
        config_class = load_algorithm(algorithm).Config
        for settings in _combinations(values, zips=request.zips):
            chosen = {**settings, **own}
            config = parse_config(config_class, _flags(chosen, config_class), f"penstock multirun {algorithm}")
            require_no_secrets(config.env_kwargs, "penstock multirun")
            config.with_schedules()  # raises `ConfigError` for one that a run would refuse
            where = repr((config.env, config.env_kwargs, config.vectorize))
            if is_here and where not in looked_up:
                _require_environment(config)
                looked_up.add(where)
            each.append((algorithm, chosen, config))
    runs: dict[str, PlannedRun] = {}
    names: dict[str, str] = {}  # by all settings
    for seed, (algorithm, chosen, config) in itertools.product(seeds, each):
        flags = _flags(chosen | {"seed": seed}, type(config))
        name = _name(algorithm, chosen, varied, seed, config)
        if name in runs:
            raise StudyError(f"two runs would be called {name}: values are equal, or almost equal")
        given = frozenset({*chosen, "seed"} - {"preset"})
        runs[name] = PlannedRun(name, algorithm, flags, dataclasses.replace(config, seed=_whole(seed)), given)
        if (other := names.setdefault(f"{algorithm} {runs[name].config}", name)) != name:
            raise StudyError(f"{other} and {name} would be the same run: values are equal")
    return list(runs.values())


def _require_environment(config: Config) -> None:
    """Raise `EnvironmentUsageError` or `ConfigError` for a missing environment; none is made."""
    from penstock.envs.failures import EnvironmentUsageError
    from penstock.envs.spec import EnvSpec

    try:
        EnvSpec.resolve(config.env, whole_arguments(config.env_kwargs), config.vectorize)
    except EnvironmentUsageError:
        raise
    except (TypeError, ValueError) as error:
        raise ConfigError(str(error)) from error


def take_cluster(request: Request) -> ClusterRequest | None:
    """Remove the cluster from a request and return it; None if runs train on this machine, or on nodes of their own."""
    if request.values.get("backend") != [("ray",)] or trains_on_several(request.values.keys()):
        return None
    del request.values["backend"]
    ((address,),) = request.values.pop("address", [("",)])
    return ClusterRequest(address or None)


def folder_of(request: Request) -> Path:
    """Return the directory of the runs, which depends on algorithms and settings, not on seeds and jobs."""
    if (name := request.name) is not None:
        parts = PurePosixPath(name).parts
        is_outside = not parts or parts[0].startswith("/") or ".." in parts or "\0" in name
        if is_outside or max(len(os.fsencode(part)) for part in parts) > _MOST_BYTES:
            raise StudyError(
                f"--name {name!r} is not legal: give the name of a folder in runs/, at most {_MOST_BYTES} bytes long"
            )
        return Path("runs") / name
    environments = request.values.get("env", [])
    where = safe_name(environments[0][0]) if len(environments) == 1 else f"{len(environments)}-environments"
    values = sorted((name, several) for name, several in request.values.items() if name != "seed")
    about = [sorted(request.algorithms), values, sorted(request.own.items()), request.zips]
    digest = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:6]
    name = "-".join(safe_name(algorithm) for algorithm in request.algorithms)
    return Path("runs") / f"{name[:_LONGEST_NAME]}-{where}-{digest}"


def differing(run: PlannedRun, before: Mapping[str, Any]) -> set[str]:
    """Return the names of the given settings that differ from those in a run's ``config.json``."""
    now = json_values(run.config.to_json())
    names = {name for name in run.given if now[name] != before.get(name)}
    # After a resume, max_seconds is a sum that includes the seconds of the checkpoint.
    wanted, had = now["max_seconds"], before.get("max_seconds")
    if wanted is not None and had is not None and abs(wanted - had) < _SAME_SECONDS:
        names.discard("max_seconds")
    return names


def changes_of(run: PlannedRun, before: Mapping[str, Any], seconds: float) -> list[str]:
    """Return the flags of ``penstock resume`` that turn a run with the settings `before` into the planned one.

    Parameters
    ----------
    run
        Planned run.
    before
        Settings in the run's ``config.json``.
    seconds
        Seconds of training up to the last checkpoint, to which ``penstock resume`` adds ``max_seconds``.
    """
    names = differing(run, before)
    words = {name: words for name, words in _by_name(run.flags).items() if name in names}
    if "max_seconds" in names and run.config.max_seconds is not None:
        words["max_seconds"] = (repr(round(max(1.0, run.config.max_seconds - seconds), 3)),)
    return _flags(words, type(run.config))


def _combinations(values: Mapping[str, list[Words]], *, zips: bool) -> list[dict[str, Words]]:
    if not zips:
        return [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
    lengths = {name: len(several) for name, several in values.items() if len(several) > 1}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise StudyError(f"--zip pairs values, and needs equally many of each: {found}")
    count = max(lengths.values(), default=1)
    return [{name: each[number % len(each)] for name, each in values.items()} for number in range(count)]


def _settings(args: Sequence[str]) -> dict[str, list[Words]]:
    """Read flags of settings, each with one value or several."""
    found: dict[str, list[Words]] = {}
    for name, words in _by_name(args).items():
        text = " ".join(words)
        is_one = "," not in text or "=" in text
        found[name] = [words] if is_one else [tuple(each.split()) for each in text.split(",")]
        if () in found[name]:
            raise StudyError(f"--{name.replace('_', '-')} {text!r}: a value is missing beside a comma")
    return found


def _by_name(args: Sequence[str]) -> dict[str, Words]:
    """Return the words after each flag, by setting; for a flag without words, "True", or "False" after "no-"."""
    found: dict[str, Words] = {}
    name = ""
    for arg in args:
        if arg.startswith("--"):
            flag, equals, value = arg.removeprefix("--").partition("=")
            name = flag.replace("-", "_")
            found[name] = (value,) if equals else ()
        elif name:
            found[name] += (arg,)
        else:
            raise StudyError(f"{arg!r} follows no flag: write penstock multirun ALGORITHM[,ALGORITHM...] [flags]")
    without = {name for name, words in found.items() if not words}
    switched = {name.removeprefix("no_"): (str(not name.startswith("no_")),) for name in without}
    return {name: words for name, words in found.items() if name not in without} | switched


def _flags(values: Mapping[str, Words], config_class: type[Config]) -> list[str]:
    """Write settings as flags of ``penstock train``."""
    hints = typing.get_type_hints(config_class)
    flags: list[str] = []
    for name, words in values.items():
        flag = name.replace("_", "-")
        if hints.get(name) is bool and words in (("True",), ("False",), ("true",), ("false",)):
            flags.append(f"--{flag}" if words[0].lower() == "true" else f"--no-{flag}")
        else:
            flags += [f"--{flag}", *words]
    return flags


def _of_file(path: Path) -> Request:
    return request(read_toml(path, f"--file {path}"), f"--file {path}: ")


def request(contents: Mapping[str, Any], source: str = "") -> Request:
    """Read a request from the tables of a file, or from the same values in Python.

    Raises
    ------
    StudyError
        A key or a value is not legal; the message begins with `source`.
    """
    for key in contents:
        if key not in _IN_FILE:
            near = closest(key, list(_IN_FILE))
            raise StudyError(f"{source}unknown key {key!r}{near} (legal: {', '.join(_IN_FILE)})")
    kinds = {"algorithms": list, "name": str, "seeds": int, "jobs": int, "zip": bool}
    kinds |= dict.fromkeys(("settings", "grid", "algorithm"), dict)
    for key, value in contents.items():
        if not isinstance(value, kinds[key]) or (value is True or value is False) != (kinds[key] is bool):
            raise StudyError(f"{source}{key} = {value!r} is not legal: its type is {kinds[key].__name__}")
    for number, algorithm in enumerate(contents.get("algorithms", [])):
        if not isinstance(algorithm, str):
            raise StudyError(f"{source}algorithms[{number}] = {algorithm!r} is not legal: its type is str")
    for name, settings in contents.get("algorithm", {}).items():
        if not isinstance(settings, dict):
            raise StudyError(f"{source}algorithm.{name} = {settings!r} is not legal: write a table [algorithm.{name}]")
        if name.lower() not in ALGORITHMS and name not in contents.get("algorithms", []) and ":" not in name:
            near = closest(name, list(ALGORITHMS))
            raise StudyError(f"{source}[algorithm.{name}] names no algorithm{near} (legal: {', '.join(ALGORITHMS)})")
    values = {name: [_words(value)] for name, value in contents.get("settings", {}).items()}
    for name, several in contents.get("grid", {}).items():
        if not isinstance(several, list) or not several:
            raise StudyError(f"{source}grid.{name} = {several!r} is not legal: give a list of values")
        values[name] = [_words(value) for value in several]
    return Request(
        algorithms=list(contents.get("algorithms", [])), name=contents.get("name"), seeds=contents.get("seeds"),
        jobs=contents.get("jobs"), zips=contents.get("zip", False), values=values,
        own={
            algorithm: {name: _words(value) for name, value in settings.items()}
            for algorithm, settings in contents.get("algorithm", {}).items()
        },
    )  # fmt: skip


def _words(value: Any) -> Words:
    """Return a value of TOML as the words after its flag."""
    if isinstance(value, dict):
        return tuple(f"{name}={json.dumps(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)
    return (str(value),)


def _name(algorithm: str, chosen: Mapping[str, Words], varied: Sequence[str], seed: Words, config: Config) -> str:
    env = chosen.get("env", (str(config.env),))[0]
    values = [f"{name}={'x'.join(chosen[name])}" for name in varied if name != "env"]
    return "-".join(safe_name(part) for part in (env, algorithm, *values, f"seed{seed[0]}"))


def _whole(words: Words) -> int:
    try:
        return int(words[0])
    except ValueError:
        raise StudyError(f"--seed {words[0]!r} is not a whole number") from None
