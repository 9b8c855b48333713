"""Which machines of a cluster stand for the nodes of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.config import Config

GPU = "GPU"  # Ray's name for them
Resources = tuple[str, ...]
"""What a machine must have, by Ray's names."""


@dataclass(frozen=True)
class Machine:
    """A node of the cluster, as Ray sees it, and where its raylet listens."""

    id: str
    host: str
    cores: int
    resources: Collection[str]
    address: str = ""

    def __str__(self) -> str:
        return f"{self.host} ({self.cores} cores)"


def resources_wanted(config: Config) -> list[Resources]:
    """The resources that each node of a run must have. Nodes with a learner come last."""
    of_learner = (GPU,) if config.device.startswith("cuda") else ()
    named = _named(config.learner_nodes, config.num_learner_nodes)
    return [*_named(config.nodes, config.num_nodes), *(tuple(dict.fromkeys((*names, *of_learner))) for names in named)]


def cores_wanted(config: Config, num_workers: int) -> list[int]:
    """The cores that each node of a run must have, for so many rollout workers; on the first an evaluator may play.

    One with a learner must have one. It takes all that its machine has.
    """
    more = config.evaluator == "node"
    of_lanes = [num_workers + (more and not number) for number in range(config.num_nodes)]
    return of_lanes + [1] * config.num_learner_nodes


def choose(
    machines: Sequence[Machine], wanted: Sequence[Resources], cores: Sequence[int], taken: Collection[str] = ()
) -> dict[int, Machine]:
    """Find a machine for each that is wanted, each for one of them.

    Parameters
    ----------
    machines
        Those there are.
    wanted
        The resources that each must have.
    cores
        The cores that each must have, by its place in `wanted`.
    taken
        Ids of those that are not to be chosen.

    Returns
    -------
    dict of int to Machine
        By the place in `wanted`; those for which there is none are missing.
    """
    left = [machine for machine in machines if machine.id not in taken]
    chosen: dict[int, Machine] = {}
    # Who asks for a resource, or for more cores, chooses first.
    for place in sorted(range(len(wanted)), key=lambda place: (-len(wanted[place]), -cores[place])):
        fit = (each for each in left if each.cores >= cores[place] and set(wanted[place]) <= set(each.resources))
        machine = next(fit, None)
        if machine is not None:
            left.remove(machine)
            chosen[place] = machine
    return chosen


def _named(wanted: int | str | dict[str, int], count: int) -> list[Resources]:
    """The resource that the user has named for each of so many nodes."""
    if isinstance(wanted, dict):
        return [(name,) for name, of_name in wanted.items() for _ in range(of_name)]
    return [()] * count
