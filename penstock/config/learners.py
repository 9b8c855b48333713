"""Several learners of one policy: which numbers of them are legal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penstock.config.checking import ConfigError, require

if TYPE_CHECKING:
    from penstock.config.base import Config


def require_legal_learners(config: Config) -> None:
    """Raise `ConfigError` where so many learners cannot share the updates of such a run; the message says which can."""
    size = config.num_learners
    require(size > 0, "num_learners", size, "1 or more")
    _require_legal_nodes(config)
    if size == 1:
        return
    if config.backend == "serial":
        raise ConfigError(
            f'num_learners={size} needs as many processes, and backend="serial" has one: use backend="local", or '
            "num_learners=1"
        )
    if (count := len(config.policies) or config.num_policies) > 1:
        raise ConfigError(
            f"num_learners={size} is for one policy, found {count}: each of several has a learner of its own already; "
            "use num_learners=1"
        )
    shared = config.shared_by_learners
    most = math.gcd(*shared.values()) or size  # nothing is shared by a config of one's own: any number will do
    legal = [number for number in range(1, most + 1) if most % number == 0]
    near = [*[number for number in legal if number < size][-1:], *[number for number in legal if number > size][:1]]
    for what, count in shared.items():
        if count % size:
            raise ConfigError(
                f"num_learners={size} is {'more than' if size > count else 'no divisor of'} the {count} {what}, of "
                f"which each learner has the same share: use {' or '.join(map(str, near))}"
            )


def _require_legal_nodes(config: Config) -> None:
    nodes = config.learner_nodes
    counts = nodes.values() if isinstance(nodes, dict) else [nodes]
    is_legal = bool(counts) and all(type(n) is int and n >= isinstance(nodes, dict) for n in counts)
    legal = 'a number of nodes, or such as {"learner": 2}: how many have a resource, by its name'
    require(is_legal, "learner_nodes", nodes, legal)
    if config.num_learner_nodes and config.backend != "ray":
        raise ConfigError(
            f'learner_nodes={nodes!r} is for backend="ray", found backend="{config.backend}", which has no nodes: use '
            'backend="ray", or leave it out'
        )
    if config.num_learner_nodes >= config.num_learners:
        raise ConfigError(
            f"learner_nodes={nodes!r} puts {config.num_learner_nodes} of num_learners={config.num_learners} learners "
            f"on nodes, and the first is at home: use num_learners={config.num_learner_nodes + 1} or more, or fewer "
            "learner_nodes"
        )
