"""Request of a bench of trainings: an algorithm, its flags, and flags of the bench."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bench import BenchUsageError, require_directory_of

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.config import Config

_HELP = ("-h", "--help")


@dataclass(frozen=True)
class Asked:
    """Request.

    Attributes
    ----------
    name
        The algorithm's, as it was given.
    algorithm, config
        What is trained, and how.
    flags
        The flags that the config was made of.
    own
        The bench's own.
    """

    name: str
    algorithm: type[Algorithm]
    config: Config
    flags: list[str]
    own: argparse.Namespace


def parse(args: list[str], own: argparse.ArgumentParser, own_help: str) -> Asked | None:
    """Read the arguments of a bench; None: they asked for help, which was printed.

    Parameters
    ----------
    args
        The algorithm first.
    own
        Knows the bench's own flags, ``--json`` among them, and its name: ``prog``.
    own_help
        What is said of these.

    Raises
    ------
    BenchUsageError, ConfigError
        They are wrong.
    SystemExit
        They asked for help with an algorithm (0), or a flag is wrong (2).
    """
    from penstock.algorithms import ALGORITHMS, load_algorithm

    if args and args[0] in _HELP:
        print(
            f"usage: {own.prog} ALGORITHM --env ENV [flags]\n\nalgorithms: {', '.join(ALGORITHMS)}\n\n{own_help}",
            end="",
        )
        print(f"{own.prog} ALGORITHM --help lists the flags of training, which all count.")
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
        require_directory_of(found.json)
    return Asked(name, algorithm, config, flags, found)
