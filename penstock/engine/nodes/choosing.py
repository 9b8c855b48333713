"""Choice of the machines of a cluster that serve as the nodes of a run, and requests for missing ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.config import Config

GPU = "GPU"  # Ray's name of the resource
Resources = tuple[str, ...]
"""Resources that a machine must have, by Ray's names."""
Bundle = dict[str, float]
"""Amounts of resources that one machine must have, by Ray's names."""
SHARE = 1e-3  # of a named resource that a host takes: such resources are labels, not amounts


@dataclass(frozen=True)
class Machine:
    """A node of the cluster.

    Attributes
    ----------
    id, host
        Ray's id, and host name.
    cores, resources
        Number of cores, and names of resources.
    address
        Address of its raylet.
    is_home
        Whether the run's learner is there.
    busy, used
        Number of cores, and names of resources, that other runs have reserved.
    """

    id: str
    host: str
    cores: int
    resources: Collection[str]
    address: str = ""
    is_home: bool = False
    busy: int = 0
    used: Collection[str] = ()

    def __str__(self) -> str:
        free = f", {self.free} free" if self.busy else ""
        return f"{self.host} ({self.cores} cores{free}{', home' if self.is_home else ''})"

    @property
    def free(self) -> int:
        """Number of free cores."""
        return self.cores - self.busy

    def idle(self) -> Machine:
        """Return the machine as it is while no run uses it."""
        return replace(self, busy=0, used=())


@dataclass(frozen=True)
class Place:
    """Reservation of a machine for a node of a run.

    Attributes
    ----------
    machine
        The machine.
    cores
        Number of reserved cores.
    group, bundle
        Placement group of Ray, and number of the reservation in it.
    """

    machine: Machine
    cores: int
    group: Any
    bundle: int


@dataclass(frozen=True)
class Wanted:
    """Requirements of a node's machine.

    Attributes
    ----------
    cores, resources
        Smallest number of cores, and names of resources.
    learns
        Whether the node has a learner. It reserves all free cores of its machine, which is never home.
    is_optional
        Whether the run can do without the node, which gets a machine after the others, and never home.
    """

    cores: int
    resources: Resources = ()
    learns: bool = False
    is_optional: bool = False

    def bundle(self, machine: Machine) -> Bundle:
        """Return the resources that are reserved for the node on a machine."""
        cores = machine.free if self.learns else self.cores
        return {"CPU": cores, **{name: 1 if name == GPU else SHARE for name in self.resources}}

    def fits(self, machine: Machine) -> bool:
        """Whether a machine can serve as the node: everything that it requires is there, and free."""
        has_all = machine.free >= self.cores and set(self.resources) <= set(machine.resources) - set(machine.used)
        return has_all and not (self.learns and machine.is_home)


def nodes_wanted(config: Config, num_workers: int) -> list[Wanted]:
    """Return the requirements of each node of a run, given its number of rollout workers; those with learners are last.

    Evaluators add a core to the first nodes. A node with a learner requires one core, and reserves all free ones.
    """
    lanes = _named(config.nodes, config.num_nodes)
    learners = _named(config.learner_nodes, config.num_learner_nodes)
    of_learner = (GPU,) if config.device.startswith("cuda") else ()
    evaluators = config.num_evaluators if config.evaluator == "node" else 0
    return [
        *(
            Wanted(num_workers + (number < evaluators), names, is_optional=number >= config.least_nodes)
            for number, names in enumerate(lanes)
        ),
        *(Wanted(1, tuple(dict.fromkeys((*names, *of_learner))), learns=True) for names in learners),
    ]


def choose(machines: Sequence[Machine], wanted: Sequence[Wanted], taken: Collection[str] = ()) -> dict[int, Machine]:
    """Choose a machine for as many nodes as possible, a different one for each: idle ones first, home last.

    Parameters
    ----------
    machines
        Machines of the cluster.
    wanted
        Requirements of each node.
    taken
        Ids of machines that may not be chosen.

    Returns
    -------
    dict of int to Machine
        Machines by the place in `wanted`, without the nodes that have none.
    """
    left = sorted((machine for machine in machines if machine.id not in taken), key=lambda machine: machine.busy > 0)
    chosen: dict[int, Machine] = {}
    # If machines are too few, required nodes come first, then those with more named resources, then more cores.
    order = [(each.is_optional, -len(each.resources), -each.cores) for each in wanted]
    places = sorted(range(len(wanted)), key=order.__getitem__)
    required = [place for place in places if not wanted[place].is_optional]
    for offered, of_these in (([machine for machine in left if not machine.is_home], places), (left, required)):
        for place in of_these:
            if place not in chosen:
                _assign(place, offered, wanted, chosen)
    return chosen


def cores_at_home(config: Config, machines: Sequence[Machine]) -> int:
    """Return the number of cores of home that a run's nodes take, for lanes and an evaluator."""
    wanted = nodes_wanted(config, config.workers_per_node)
    return sum(wanted[place].cores for place, machine in choose(machines, wanted).items() if machine.is_home)


def _assign(place: int, offered: Sequence[Machine], wanted: Sequence[Wanted], chosen: dict[int, Machine]) -> None:
    """Assign a machine to a place, moving holders to other machines if need be: an augmenting path, breadth first."""
    holders = {machine.id: holder for holder, machine in chosen.items()}
    claimed_by: dict[str, int] = {}
    queue, tried = deque([place]), set()
    while queue:
        claimant = queue.popleft()
        if wanted[claimant] in tried:  # equal requirements have been searched already
            continue
        tried.add(wanted[claimant])
        for machine in offered:
            if machine.id in claimed_by or not wanted[claimant].fits(machine):
                continue
            claimed_by[machine.id] = claimant
            if machine.id in holders:
                queue.append(holders[machine.id])
                continue
            while True:
                holder = claimed_by[machine.id]
                before = chosen.get(holder)
                chosen[holder] = machine
                if before is None:
                    return
                machine = before


def _named(wanted: int | str | dict[str, int], count: int) -> list[Resources]:
    """Return the resources that the user has named for each of `count` nodes."""
    if isinstance(wanted, dict):
        return [(name,) for name, of_name in wanted.items() for _ in range(of_name)]
    return [()] * count


def bundles_of(wanted: Sequence[Wanted], there: Mapping[int, Machine]) -> list[Bundle]:
    """Return the resource bundles that a cluster must have room for, one per node of a run.

    The bundle of a node with a machine is the whole machine, so that no missing node fits beside it.

    Parameters
    ----------
    wanted
        Requirements of each node.
    there
        Present machines of nodes, by the place in `wanted`.
    """
    bundles = []
    for place, each in enumerate(wanted):
        machine = there.get(place)
        bundle: Bundle = {"CPU": each.cores if machine is None else machine.cores}
        if machine is None:
            bundle |= {name: 1 if name == GPU else SHARE for name in each.resources}
        bundles.append(bundle)
    return bundles


def in_words(bundles: Sequence[Bundle]) -> str:
    """Return bundles in words: "1 node with 8 cores", "2 nodes with 8 cores and sampler"."""
    kinds: dict[str, int] = {}
    for bundle in bundles:
        others = "".join(f" and {name}" for name in bundle if name != "CPU")
        kind = f"{bundle['CPU']:g} {'core' if bundle['CPU'] == 1 else 'cores'}{others}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} {'node' if count == 1 else 'nodes'} with {kind}" for kind, count in kinds.items())


def missing(bundles: Sequence[Bundle], there: Mapping[int, Machine]) -> list[Bundle]:
    """Return the bundles of nodes without a machine."""
    return [bundle for place, bundle in enumerate(bundles) if place not in there]
