"""Choice of the machines of a cluster that stand for the nodes of a run, and requests for missing ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.config import Config

GPU = "GPU"  # Ray's name for them
Resources = tuple[str, ...]
"""Resources that a machine must have, by Ray's names."""


@dataclass(frozen=True)
class Machine:
    """A node of the cluster, as Ray sees it.

    Attributes
    ----------
    id, host
        Ray's name for it, and its own.
    cores, resources
        What it has.
    address
        Where its raylet listens.
    is_home
        Whether the run's learner is there.
    """

    id: str
    host: str
    cores: int
    resources: Collection[str]
    address: str = ""
    is_home: bool = False

    def __str__(self) -> str:
        return f"{self.host} ({self.cores} cores{', home' if self.is_home else ''})"


@dataclass(frozen=True)
class Wanted:
    """Requirements of a node's machine.

    Attributes
    ----------
    cores, resources
        At least these.
    learns
        Whether the node has a learner. It takes all cores, or the first GPU, and home's learner has those of home.
    """

    cores: int
    resources: Resources = ()
    learns: bool = False

    def fits(self, machine: Machine) -> bool:
        """Whether a machine may stand for the node."""
        has_all = machine.cores >= self.cores and set(self.resources) <= set(machine.resources)
        return has_all and not (self.learns and machine.is_home)


def nodes_wanted(config: Config, num_workers: int) -> list[Wanted]:
    """Requirements of each node of a run, given the number of rollout workers. Nodes with a learner come last.

    On the first an evaluator may play, with a core of its own. One with a learner must have one core, and takes all
    that its machine has.
    """
    lanes = _named(config.nodes, config.num_nodes)
    learners = _named(config.learner_nodes, config.num_learner_nodes)
    of_learner = (GPU,) if config.device.startswith("cuda") else ()
    plays = config.evaluator == "node"
    return [
        *(Wanted(num_workers + (plays and number == 0), names) for number, names in enumerate(lanes)),
        *(Wanted(1, tuple(dict.fromkeys((*names, *of_learner))), learns=True) for names in learners),
    ]


def choose(machines: Sequence[Machine], wanted: Sequence[Wanted], taken: Collection[str] = ()) -> dict[int, Machine]:
    """Find a machine for as many nodes as can have one, each for one of them; home's only where no others will do.

    Parameters
    ----------
    machines
        Those there are.
    wanted
        What each node must have.
    taken
        Ids of those that are not to be chosen.

    Returns
    -------
    dict of int to Machine
        By the place in `wanted`; those for which there is none are missing.
    """
    left = [machine for machine in machines if machine.id not in taken]
    chosen: dict[int, Machine] = {}
    # Where there are too few, who asks for a resource, or for more cores, comes first.
    places = sorted(range(len(wanted)), key=lambda place: (-len(wanted[place].resources), -wanted[place].cores))
    for offered in ([machine for machine in left if not machine.is_home], left):
        for place in places:
            if place not in chosen:
                _seat(place, offered, wanted, chosen)
    return chosen


def cores_at_home(config: Config, machines: Sequence[Machine]) -> int:
    """Cores of home that a run's nodes have, for lanes and an evaluator: home may stand for one of them."""
    wanted = nodes_wanted(config, config.workers_per_node)
    return sum(wanted[place].cores for place, machine in choose(machines, wanted).items() if machine.is_home)


def _seat(place: int, offered: Sequence[Machine], wanted: Sequence[Wanted], chosen: dict[int, Machine]) -> None:
    """Give a place a machine, if need be one whose holder can have another: an augmenting path, breadth first."""
    holders = {machine.id: holder for holder, machine in chosen.items()}
    asked_by: dict[str, int] = {}
    asking, has_asked = deque([place]), set()
    while asking:
        asks = asking.popleft()
        if wanted[asks] in has_asked:  # another who wants the same has come no further
            continue
        has_asked.add(wanted[asks])
        for machine in offered:
            if machine.id in asked_by or not wanted[asks].fits(machine):
                continue
            asked_by[machine.id] = asks
            if machine.id in holders:
                asking.append(holders[machine.id])
                continue
            while True:
                holder = asked_by[machine.id]
                before = chosen.get(holder)
                chosen[holder] = machine
                if before is None:
                    return
                machine = before


def _named(wanted: int | str | dict[str, int], count: int) -> list[Resources]:
    """The resource that the user has named for each of so many nodes."""
    if isinstance(wanted, dict):
        return [(name,) for name, of_name in wanted.items() for _ in range(of_name)]
    return [()] * count


Bundle = dict[str, float]
"""Resources that one machine must have, by Ray's names."""
SHARE = 1e-3  # of a resource that a host takes: nodes are told apart by it, not used up


def bundles_of(wanted: Sequence[Wanted], there: Mapping[int, Machine]) -> list[Bundle]:
    """Resource bundles that a cluster must have room for, one per node of a run.

    A machine that stands for a node is asked for as a whole. So nothing that is missing is thought to have room there.

    Parameters
    ----------
    wanted
        What each node must have.
    there
        Machines that stand for nodes, by the place in `wanted`.
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
    """Requested bundles in words: "1 node with 8 cores", "2 nodes with 8 cores and sampler"."""
    kinds: dict[str, int] = {}
    for bundle in bundles:
        others = "".join(f" and {name}" for name in bundle if name != "CPU")
        kind = f"{bundle['CPU']:g} {'core' if bundle['CPU'] == 1 else 'cores'}{others}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{count} {'node' if count == 1 else 'nodes'} with {kind}" for kind, count in kinds.items())


def missing(bundles: Sequence[Bundle], there: Mapping[int, Machine]) -> list[Bundle]:
    """Those of them for which no machine stands."""
    return [bundle for place, bundle in enumerate(bundles) if place not in there]
