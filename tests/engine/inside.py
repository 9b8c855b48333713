"""The inside of a running trainer, for tests that look at it: private attributes of trainers are read here alone."""

from typing import Any


def supervisor_of(trainer) -> Any:
    """The supervisor of a trainer."""
    return trainer._supervisor


def policies_of(trainer) -> Any:
    """The policies of a trainer, in their order."""
    return trainer._policies


def policy_of(trainer, number=0) -> Any:
    """One policy of a trainer."""
    return trainer._policies[number]


def arena_of(trainer) -> Any:
    """The arena of a trainer's first policy."""
    return trainer._policies[0].arena


def role_of(trainer, name) -> Any:
    """A role of a serial run, such as "learner"."""
    return trainer._supervisor.backend._roles[name]


def learner_of(trainer, policy=0) -> Any:
    """The learner of one policy of a serial run."""
    return role_of(trainer, "learner" if policy == 0 else f"learner-{policy}")


def nodes_of(trainer) -> Any:
    """The nodes of a run on a cluster."""
    return trainer._supervisor.backend._nodes


def gateways_of(trainer) -> Any:
    """The gateways of a run on a cluster."""
    return trainer._supervisor.backend._gateways


def opponents_of(trainer) -> Any:
    """The pools of past versions of a run."""
    return trainer._supervisor._opponents


def population_of(trainer) -> Any:
    """The members of a run's population."""
    return trainer._supervisor._exploits._population
