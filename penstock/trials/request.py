"""Request to run the trainings of a command on a cluster: ``--backend ray [--address ADDRESS]``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from penstock.config import Config, ConfigError
from penstock.runs.jobs import Needs, split_cores

ABOUT = (
    "--backend ray [--address ADDRESS] trains on the nodes of a Ray cluster, each training as one process tree on a "
    "node; --jobs is then the number of trainings at once (default: as many as fit on the cluster). "
    "With --nodes or --learner-nodes as well, each training uses several nodes, as in penstock train."
)
"""Paragraph of the help of commands."""
_OF_A_RUN = {"nodes", "learner_nodes"}
_OF_NODES = {"nodes_per_gateway", "node_weights", "evaluator", "num_evaluators", "replay_at"}


class ClusterRequest(NamedTuple):
    """A cluster on which trainings run, by the setting `address`."""

    address: str | None


def split(args: Sequence[str]) -> tuple[list[str], ClusterRequest | None]:
    """Separate the request for a cluster from a command's arguments; None: the trainings run on this machine."""
    left: list[str] = []
    found: dict[str, str] = {}
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("--backend", "--address"):
            found[name] = value if equals else next(words, "")
        else:
            left.append(word)
    names = {word.partition("=")[0][2:].replace("-", "_") for word in left if word.startswith("--")}
    if found.get("--backend") != "ray" or trains_on_several(names):
        return list(args), None
    return left, ClusterRequest(found.get("--address"))


def trains_on_several(names: Collection[str]) -> bool:
    """Whether each training uses several nodes, by the names of given settings.

    Raises
    ------
    ConfigError
        It uses one, but a given setting is only for runs on several.
    """
    if _OF_A_RUN.isdisjoint(names) and (found := sorted(_OF_NODES.intersection(names))):
        flag = found[0].replace("_", "-")
        raise ConfigError(f"--{flag} is for trainings on several nodes, but each uses one: leave it out or add --nodes")
    return not _OF_A_RUN.isdisjoint(names)


def needs_of(configs: Collection[Config]) -> Needs:
    """Return resources that suffice for each of several trainings: a core for each rollout worker and further learner,
    and a GPU for each learner on one."""
    return Needs(
        max((config.num_workers or 1) + config.num_learners - 1 for config in configs),
        max(config.num_learners if config.device.startswith("cuda") else 0 for config in configs),
    )


def require_room(runs: Iterable[tuple[type[Any], Config]]) -> None:
    """Raise `ConfigError` if a cluster has no room for the nodes of one of several runs: algorithms and settings."""
    different: list[tuple[type[Any], Config]] = []
    for algorithm, config in runs:
        of_any_seed = algorithm, replace(config, seed=0)
        if config.backend == "ray" and config.address is not None and of_any_seed not in different:
            different.append(of_any_seed)
    for _, at_one in groupby(different, lambda run: run[1].address):
        from penstock.engine.nodes.joining import leave_cluster, on_cluster

        try:
            for algorithm, config in at_one:
                on_cluster(algorithm, config)
        finally:
            leave_cluster()


@contextmanager
def places_for(
    asked: ClusterRequest | None, jobs: int | None, configs: Collection[Config], folder: Path,
    report: Callable[[str], None],
) -> Iterator[list[list[int]]]:
    """Yield places for trainings: sets of cores of this machine, or places of a cluster, connected for the block.

    Parameters as in `penstock.trials.cluster.places_on`; on this machine, ``jobs=None`` means one.

    Raises
    ------
    ConfigError, TrainingFailed
        This machine has fewer cores than jobs, Ray is not installed, or as in `places_on`.
    """
    if asked is None:
        yield split_cores(jobs or 1)
        return
    try:
        from penstock.trials.cluster import places_on
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ConfigError('--backend ray needs Ray, which is not installed: pip install "penstock[cluster]"') from error
    with places_on(asked.address, needs_of(configs), jobs, folder, report) as places:
        yield list(places)
