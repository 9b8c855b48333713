"""Clusters that grow: an autoscaler adds machines while what is asked of Ray has no room on those that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.engine.nodes.choosing import GPU, Machine, Wanted

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
