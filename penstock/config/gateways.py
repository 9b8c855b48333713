"""The tree of gateways between home and its nodes, as the settings of a run define it."""

from __future__ import annotations

import itertools
import math

from penstock.config.checking import ConfigError

NODES_PER_GATEWAY = 64
FAN_OUT = 8  # largest number of nodes without gateways, and of gateways that home, or one of them, sends weights to


def parts_of(whole: range, count: int) -> list[range]:
    """Cut a range into `count` parts of as many numbers, to one."""
    cuts = [whole.start + len(whole) * place // count for place in range(count + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(cuts)]


def levels_of(num_nodes: int, nodes_per_gateway: int | None) -> list[list[range]]:
    """Return the numbers of the nodes below each gateway, level by level from home on; empty: no gateways.

    Parameters
    ----------
    num_nodes
        Nodes of the run that step lanes.
    nodes_per_gateway
        Largest number of nodes of a gateway; None: `NODES_PER_GATEWAY`, and no gateway for up to `FAN_OUT` nodes.
    """
    if nodes_per_gateway is None and num_nodes <= FAN_OUT:
        return []
    levels = [parts_of(range(num_nodes), math.ceil(num_nodes / (nodes_per_gateway or NODES_PER_GATEWAY)))]
    while len(levels[0]) > FAN_OUT:
        below = levels[0]
        groups = parts_of(range(len(below)), math.ceil(len(below) / FAN_OUT))
        levels.insert(0, [range(below[group.start].start, below[group.stop - 1].stop) for group in groups])
    return levels


def require_shards(backend: str, *, saves: bool) -> None:
    """Raise `ConfigError` if the replay of a run with these settings cannot lie in shards at gateways."""
    shown = 'replay_at="gateways"'
    if backend != "ray":
        raise ConfigError(
            f'{shown} is for backend="ray", found backend="{backend}", which has no gateways: use replay_at="home"'
        )
    if saves:
        raise ConfigError(
            f"{shown} is not possible with save_replay=True: rows lie on other machines than the checkpoints; use "
            'replay_at="home", or save_replay=False, with which a resumed run fills its shards anew'
        )
