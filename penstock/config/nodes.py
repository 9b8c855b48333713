"""The nodes of a run, and the tree of gateways between home and them, as its settings define them."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from typing import Any

from penstock.config.checking import ConfigError, require

OF_RAY = {
    "nodes": 1, "nodes_per_gateway": None, "node_weights": "float32", "address": None, "evaluator": "home",
    "num_evaluators": 1, "learner_nodes": 0,
}  # fmt: skip
"""Settings only for backend="ray", in addition to `replay_at`, with their defaults."""
_BOUNDS = re.compile(r"(\d+):(\d+)")  # least and largest number of nodes
NODES_PER_GATEWAY = 64
FAN_OUT = 8  # largest number of nodes without gateways, and of gateways that home, or one of them, sends weights to


def parts_of(whole: range, count: int) -> list[range]:
    """Cut a range into `count` parts whose lengths differ by at most one."""
    cuts = [whole.start + len(whole) * place // count for place in range(count + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(cuts)]


def levels_of(num_nodes: int, nodes_per_gateway: int | None) -> list[list[range]]:
    """Return the numbers of the nodes below each gateway, level by level from home on; empty: no gateways.

    Parameters
    ----------
    num_nodes
        Nodes of the run that step lanes.
    nodes_per_gateway
        Largest number of nodes per gateway; None: `NODES_PER_GATEWAY`, and no gateway for up to `FAN_OUT` nodes.
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
    """Raise `ConfigError` if the replay of a run with these settings cannot be in shards at gateways."""
    shown = 'replay_at="gateways"'
    if backend != "ray":
        raise ConfigError(
            f'{shown} is for backend="ray", found backend="{backend}", which has no gateways: use replay_at="home"'
        )
    if saves:
        raise ConfigError(
            f"{shown} is not possible with save_replay=True: rows are on other machines than the checkpoints; use "
            'replay_at="home", or save_replay=False, with which a resumed run refills its shards'
        )


def require_nodes(config: Any) -> None:
    """Raise `ConfigError` if the nodes, gateways or evaluators of a config are not possible."""
    legal = 'a number of nodes, {}or the number of nodes with a resource by its name, such as {{"sampler": 2}}'
    nodes, learners = config.nodes, config.learner_nodes
    if isinstance(nodes, str) and (bounds := _BOUNDS.fullmatch(nodes)):
        is_range = 1 <= int(bounds[1]) <= int(bounds[2])
        require(is_range, "nodes", nodes, '"LEAST:MOST", where LEAST is 1 or more, and MOST is not below LEAST')
    else:
        others = '"all", "LEAST:MOST" such as "2:64", '
        require(nodes == "all" or _are_counts(nodes, 1), "nodes", nodes, legal.format(others))
    if config.evaluator == "node" and config.least_nodes < config.num_nodes:
        raise ConfigError(
            f'evaluator="node" plays on the first node, which may leave with nodes={nodes!r}: use evaluator="home", '
            "or a fixed number of nodes"
        )
    _require_evaluators(config)
    is_legal = _are_counts(learners, 1 if isinstance(learners, dict) else 0)
    require(is_legal, "learner_nodes", learners, legal.format(""))
    most = config.nodes_per_gateway
    require(most is None or most >= 2, "nodes_per_gateway", most, "2 or more, or None")
    given = [name for name, value in OF_RAY.items() if getattr(config, name) != value]
    if given and config.backend != "ray":
        raise ConfigError(
            f'{given[0]}={getattr(config, given[0])!r} is for backend="ray", found backend="{config.backend}", which '
            'runs on this machine only: use backend="ray", or leave it out'
        )


def left_on_nodes(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for backend="ray" that a run resumed with another backend drops, with their defaults."""
    if before.get("backend") != "ray" or changes.get("backend", "ray") == "ray":
        return {}
    defaults = {**OF_RAY, "replay_at": "home"}
    return {name: value for name, value in defaults.items() if before.get(name, value) != value and name not in changes}


def _require_evaluators(config: Any) -> None:
    """Raise `ConfigError` if evaluators outnumber nodes or episodes, or are not on nodes."""
    count = config.num_evaluators
    require(count > 0, "num_evaluators", count, "1 or more")
    if count == 1 or config.backend != "ray":
        return
    if config.evaluator != "node":
        raise ConfigError(
            f'num_evaluators={count} need a node each, but evaluator="{config.evaluator}" is one at home: use '
            'evaluator="node", or num_evaluators=1'
        )
    most = min(config.eval_episodes, config.num_nodes if config.nodes != "all" else count)
    if count > most:
        raise ConfigError(
            f"num_evaluators={count} need a node each and share the episodes, found nodes={config.nodes!r} and "
            f"eval_episodes={config.eval_episodes}: use num_evaluators={most} or fewer, or more nodes or episodes"
        )


def counts_of(nodes: Any) -> list[Any]:
    """Return the numbers of nodes of a setting, one per resource."""
    return list(nodes.values()) if isinstance(nodes, dict) else [nodes]


def _are_counts(nodes: Any, least: int) -> bool:
    """Return whether a setting has numbers of nodes, none below `least`."""
    counts = counts_of(nodes)
    return bool(counts) and all(type(count) is int and count >= least for count in counts)
