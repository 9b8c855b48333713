"""Gateways: ends of the tree between home and its nodes, each a node to the end above and home to those below it.

A gateway has an arena with the lanes of its nodes, a receiver and senders (`relay_roles`). Slots that home grants
become free there, are granted to nodes, arrive full, and are sent on, several nodes' segments as one block. The
receiving thread of a sender publishes weights in the gateway's arena, whose dispatcher sends them to its nodes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

from penstock.engine.contracts import RoleSpec
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.sender import Home, SenderRole
from penstock.engine.nodes.transport import SegmentTransport

NODES_PER_GATEWAY = 64
FAN_OUT = 8  # largest number of gateways that home, or a gateway of gateways, sends weights to


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
        Largest number of nodes of a gateway; None: `NODES_PER_GATEWAY`, and no gateway for one's worth of nodes.
    """
    most = nodes_per_gateway or NODES_PER_GATEWAY
    if nodes_per_gateway is None and num_nodes <= most:
        return []
    levels = [parts_of(range(num_nodes), math.ceil(num_nodes / most))]
    while len(levels[0]) > FAN_OUT:
        below = levels[0]
        groups = parts_of(range(len(below)), math.ceil(len(below) / FAN_OUT))
        levels.insert(0, [range(below[group.start].start, below[group.stop - 1].stop) for group in groups])
    return levels


def relay_roles(
    home: Home, ip: str, workers: Sequence[range], transports: Sequence[SegmentTransport],
    takes_turns: tuple[bool, ...], missing: Collection[int] = (),
) -> list[RoleSpec]:  # fmt: skip
    """Return the roles of a gateway: those of a node to `home`, and those of home to its nodes.

    Parameters
    ----------
    home
        Address of the end above, and identity of the gateway there.
    ip
        Address of this machine to listen at.
    workers
        For each node, or gateway, that connects: the rollout workers of the gateway's arena whose lanes it has.
    transports, takes_turns
        Transport of each policy's experience in its form for nodes, and whether each batch is a segment of every lane.
    missing
        Numbers of nodes that the gateway does not wait for.
    """
    receiver = ReceiverRole(ip, home.token, home.run, workers, tuple(transports), takes_turns, missing, relays=True)
    learned = enumerate(transports[: len(takes_turns)])
    senders = [SenderRole(home, each.path, each.unit, n, relays=True) for n, each in learned]
    return [receiver, *senders]
