"""Connection of a run to a cluster: settings that fit the cluster, and the end of the connection."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.config import Config, ConfigError
from penstock.engine.nodes.choosing import Machine, bundles_of, choose, cores_at_home, in_words, missing, nodes_wanted
from penstock.engine.paths import data_path

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.engine.nodes.cluster import Cluster
    from penstock.runs.status import Status

LOOK_SECONDS = 1.0  # between two checks for the first node, or for free ones
FREE_SECONDS = 5.0  # for the reservations of an ended run to become free
MOST_WORKERS = 16  # largest default of a node


def on_cluster(algorithm: type[Algorithm], config: Config) -> Config:
    """Connect to the cluster of a config; return the config with the numbers of nodes and of their workers.

    Parameters
    ----------
    algorithm
        Class of the algorithm.
    config
        Settings of the run.

    Raises
    ------
    ConfigError
        The algorithm's experience cannot travel between nodes, Ray is not installed, there is no such cluster, or the
        cluster has too few nodes or cores.
    """
    from penstock.engine.nodes.transport import transport_class  # imports every data path: of no use to others

    transport = transport_class(data_path(algorithm, config))
    if isinstance(transport, str):
        raise ConfigError(f'{algorithm.name()} cannot use backend="ray": {transport}; use backend="local"')
    try:
        from penstock.engine.nodes import cluster
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "ray":
            raise
        raise ConfigError('backend="ray" needs Ray, which is not installed: pip install "penstock[cluster]"') from error
    return settle(config, cluster.open_cluster(config))


def leave_cluster() -> None:
    """End the connection to the cluster, if there is one."""
    if module := sys.modules.get("penstock.engine.nodes.cluster"):
        module.close_cluster()


def address_of_home(config: Config) -> str | None:
    """Return the address at which learners on nodes reach those at home; None: no learners on nodes."""
    if not config.num_learner_nodes:
        return None
    from penstock.engine.nodes import cluster

    return cluster.open_cluster(config).home


def gauges_on(config: Config) -> Callable[[Status], None] | None:
    """Return the function that adds a run to Ray's own metrics; None: no cluster, or one started for the run."""
    if config.backend != "ray" or config.address is None:
        return None
    from penstock.engine.nodes import cluster

    return cluster.Gauges()


def cores_of_nodes_here(config: Config) -> int:
    """Return the number of cores of this machine that the run's nodes take."""
    if config.backend != "ray":
        return 0
    from penstock.engine.nodes import cluster

    return cores_at_home(config, cluster.open_cluster(config).machines())


def settle(config: Config, cluster: Cluster) -> Config:
    """Return the config with numbers of nodes and of rollout workers per node that fit the cluster.

    Waits until a cluster that grows has a machine for one node with lanes, or for the least number that is set.

    Raises
    ------
    ConfigError
        The cluster has too few nodes, or too few cores, and does not grow.
    """
    machines = _free(config, cluster)
    if config.nodes == "all":
        config = replace(config, nodes=_all_nodes(config, cluster, machines))
    wanted = nodes_wanted(config, config.num_workers or 1)
    chosen, required = choose(machines, wanted), sum(not each.is_optional for each in wanted)
    has_all = sum(not wanted[place].is_optional for place in chosen) == required
    if not has_all and cluster.grows:
        chosen = _wait_for_first(config, cluster)
    elif not has_all:
        cores = f" with {config.num_workers} cores, for num_workers={config.num_workers}" if config.num_workers else ""
        if config.evaluator == "node":
            first = "first" if config.num_evaluators == 1 else f"first {config.num_evaluators}"
            cores += f'{"," if cores else ""} the {first} with one core more, for evaluator="node"'
        there = ", ".join(f"{machine}{_in_words(machine.resources)}" for machine in machines) or "none"
        there += "; home has the first learner, and cannot have another node's" if config.num_learner_nodes else ""
        raise ConfigError(
            f"{_asking(config)} {required} nodes{cores}; the cluster {cluster.name} has {there}: ask "
            "for fewer nodes or workers, or start Ray on more machines (ray start --address=HEAD:6379)"
        )
    if config.num_workers is None:
        of_evaluator = nodes_wanted(config, 0)
        free = [machine.free - of_evaluator[n].cores for n, machine in chosen.items() if n < config.num_nodes]
        config = replace(config, num_workers=min(MOST_WORKERS, *free))
    return config


def _free(config: Config, cluster: Cluster) -> list[Machine]:
    """Return the machines of a cluster; first wait some seconds for what other runs have reserved to become free."""
    end = time.monotonic() + FREE_SECONDS
    while True:
        machines = cluster.machines()
        wanted = nodes_wanted(_most(config, machines), config.num_workers or 1)
        wanted = [each for each in wanted if not each.is_optional]
        chosen, most = (choose(each, wanted) for each in (machines, [machine.idle() for machine in machines]))
        if len(chosen) == len(most) or time.monotonic() > end:
            return machines
        time.sleep(LOOK_SECONDS)


def _most(config: Config, machines: Sequence[Machine]) -> Config:
    """Return a config with a number in place of ``nodes="all"``: every machine but those for learners."""
    if config.nodes != "all":
        return config
    return replace(config, nodes=max(1, len(machines) - config.num_learner_nodes))


def _all_nodes(config: Config, cluster: Cluster, machines: Sequence[Machine]) -> int:
    """Print and return the number of machines for nodes that step lanes, besides one for each learner's node."""
    found = choose(machines, nodes_wanted(_most(config, machines), config.num_workers or 1))
    number = max(1, len(found) - config.num_learner_nodes)
    left = {machine.id for machine in machines} - {machine.id for machine in found.values()}
    others = ", ".join(str(machine) for machine in machines if machine.id in left)
    said = f"nodes='all': {number} node{'' if number == 1 else 's'} of the cluster {cluster.name}"
    print(said + (f"; not used: {others}" if others else ""), file=sys.stderr, flush=True)
    return number


def _wait_for_first(config: Config, cluster: Cluster) -> dict[int, Machine]:
    """Request the nodes of a run, and wait for the first that step lanes; return the machines of all present ones."""
    wanted = nodes_wanted(config, config.num_workers or 1)
    least = config.least_nodes if config.least_nodes < config.num_nodes else 1
    is_announced = False
    while True:
        chosen = choose(cluster.machines(), wanted)
        if sum(place < config.num_nodes for place in chosen) >= least:
            return chosen
        bundles = bundles_of(wanted, chosen)
        cluster.want(bundles)
        if not is_announced:
            asked = in_words(missing(bundles, chosen))
            print(f"waiting for the cluster {cluster.name} to grow; requested: {asked}", file=sys.stderr, flush=True)
            is_announced = True
        time.sleep(LOOK_SECONDS)


def _asking(config: Config) -> str:
    least = " at least" if config.least_nodes < config.num_nodes else ""
    if not config.num_learner_nodes:
        return f"nodes={config.nodes!r} asks for{least}"
    return f"nodes={config.nodes!r} and learner_nodes={config.learner_nodes!r} ask for{least}"


def _in_words(resources: Collection[str]) -> str:
    return f" with {', '.join(sorted(resources))}" if resources else ""
