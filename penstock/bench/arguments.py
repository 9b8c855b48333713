"""Arguments of benches and searches: an algorithm, its flags, and flags of the command itself."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from penstock.bench import BenchUsageError, require_new

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config

_HELP = ("-h", "--help")


@dataclass(frozen=True)
class BenchArguments:
    """Parsed arguments of a bench.

    Attributes
    ----------
    name
        Name of the algorithm, as given.
    flags
        Flags of the config.
    own
        Flags of the bench itself.
    """

    name: str
    algorithm: type[Algorithm]
    config: Config
    flags: list[str]
    own: argparse.Namespace


def own_parser(prog: str, title: str, about: str | None = None) -> tuple[argparse.ArgumentParser, Callable[..., Any]]:
    """Return a parser of a bench's own flags, listed under a title and an optional text, and its method to add one."""
    parser = argparse.ArgumentParser(prog=prog, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    return parser, parser.add_argument_group(title, about).add_argument


def parse(args: list[str], own: argparse.ArgumentParser) -> BenchArguments | None:
    """Read the arguments of a bench; None: help was requested, and printed.

    Parameters
    ----------
    args
        The algorithm first.
    own
        Parser of the bench's own flags, `own_parser`; its ``prog`` is the command.

    Raises
    ------
    BenchUsageError, ConfigError
        An argument is not legal.
    SystemExit
        Help with an algorithm was requested (0), or a flag is wrong (2).
    """
    from penstock.algorithms import ALGORITHMS, load_algorithm

    own_help = f"{own.format_help()}\n"
    if args and args[0] in _HELP:
        print(
            f"usage: {own.prog} ALGORITHM --env ENV [flags]\n\nalgorithms: {', '.join(ALGORITHMS)}\n\n{own_help}",
            end="",
        )
        print(f"{own.prog} ALGORITHM --help lists the flags of training, which all apply.")
        return None
    if not args or args[0].startswith("-"):
        raise BenchUsageError(f"the algorithm comes first: {own.prog} {next(iter(ALGORITHMS))} --env ENV")
    name, *rest = args
    algorithm = load_algorithm(name)
    found, flags = own.parse_known_args(rest)
    if set(flags) & set(_HELP):
        print(own_help, end="")
    from penstock.flags import parse_config

    config = parse_config(algorithm.Config, flags, prog=f"{own.prog} {name}")
    if "json" in found:
        require_new(found.json)
    return BenchArguments(name, algorithm, config, flags, found)


def require_counts(own: argparse.Namespace, *names: str) -> None:
    """Raise `BenchUsageError` for the first flag, by name, that is given and less than 1."""
    for name in names:
        value = getattr(own, name)
        if value is not None and value < 1:
            raise BenchUsageError(f"--{name.replace('_', '-')} {value} is not legal: give 1 or more")


def require_positive(own: argparse.Namespace, *names: str) -> None:
    """Raise `BenchUsageError` for the first flag, by name, that is given and not a finite number above 0."""
    for name in names:
        value = getattr(own, name)
        if value is not None and not 0.0 < value < math.inf:
            raise BenchUsageError(f"--{name.replace('_', '-')} {value:g} is not legal: give a finite number above 0")


def as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as flags of ``penstock train``."""
    flags: list[str] = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, tuple):
            flags += [f"--{flag}", *map(str, value)]
        else:
            flags += [f"--{flag}", str(value)]
    return flags


def names_of(flags: Collection[str], config: Config) -> set[str]:
    """Return the names of the settings given by flags."""
    known = {field.name for field in fields(config)}
    words = {flag[2:].partition("=")[0].replace("-", "_") for flag in flags if flag.startswith("--")}
    return (words | {word.removeprefix("no_") for word in words}) & known
