"""What hosts are told: the roles of each node, made of those that the run would have on one machine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from penstock.engine.nodes.evaluation import EvaluationsThere
from penstock.engine.nodes.home_learner import HomeLearnerRole
from penstock.engine.nodes.host import HostTask
from penstock.engine.nodes.sender import Home, SenderRole
from penstock.engine.roles.specs import LearnerRole, PolicyRole, RoleSpec, RolloutRole
from penstock.experience.layout import RunShape

STREAMS_OF_A_HOST = 1_000  # incarnations of rollout workers that each host has for itself


class Tasks:
    """Makes the tasks of hosts.

    Parameters
    ----------
    specs
        The roles of the run, as if it had one machine.
    shape
        The run's numbers.
    cores
        Rollout workers of each node.
    home
        Where senders find home.
    evaluations
        Of an evaluator on the first node; None: it plays at home.
    """

    def __init__(
        self, specs: Sequence[RoleSpec], shape: RunShape, cores: int, home: Home, evaluations: EvaluationsThere | None
    ) -> None:
        self._shape, self._cores, self._home, self._evaluations = shape, cores, home, evaluations
        self._rollouts = [spec for spec in specs if isinstance(spec, RolloutRole)]
        self._policy_workers = [spec for spec in specs if isinstance(spec, PolicyRole)]
        config = next(spec for spec in specs if isinstance(spec, LearnerRole)).algorithm.config
        self._forgives_environments = config.on_env_error == "restart"

    def of_node(self, number: int, incarnation: int) -> bytes:
        """Make the task of a node's host, pickled; so many hosts have stood for the node, this one among them."""
        first = number * self._cores
        shapes = [self._of_node(shape, first) for shape in (self._shape, *self._shape.others)]
        shape = replace(shapes[0], others=tuple(shapes[1:]))
        home = replace(self._home, node=number, incarnation=incarnation)
        specs: list[RoleSpec] = []
        for worker, role in enumerate(self._rollouts[first : first + self._cores]):
            rollout = replace(
                role.rollout, worker=worker, paths=tuple(path.away() for path in role.rollout.paths),
                incarnation=role.rollout.incarnation + (incarnation - 1) * STREAMS_OF_A_HOST,
            )  # fmt: skip
            specs.append(replace(role, rollout=rollout))
        for spec in self._policy_workers:
            specs.append(replace(spec, path=spec.path.away(), algorithm=_on_cpu(spec.algorithm)))
        if self._evaluations is not None and number == 0:
            specs.append(self._evaluations.role())
        specs += [SenderRole(home, path.away(), policy) for policy, path in enumerate(self._rollouts[0].rollout.paths)]
        return self._pickled(shape, specs)

    def _of_node(self, shape: RunShape, first_worker: int) -> RunShape:
        """The numbers of a policy's arena on a node."""
        return replace(shape, num_workers=self._cores, first_worker=first_worker, others=())

    def _pickled(self, shape: RunShape, specs: Sequence[RoleSpec]) -> bytes:
        task: bytes = cloudpickle.dumps(HostTask(shape, specs, self._forgives_environments))
        return task


def roles_at_home(specs: Sequence[RoleSpec]) -> list[RoleSpec]:
    """The roles of a run that stay at home."""
    return [
        HomeLearnerRole(**vars(spec)) if isinstance(spec, LearnerRole) else spec
        for spec in specs
        if not isinstance(spec, RolloutRole | PolicyRole)
    ]


def _on_cpu(algorithm: Any) -> Any:
    """An algorithm that acts on a CPU: the learner's device is at home."""
    there = copy.copy(algorithm)
    there.config = replace(algorithm.config, device="cpu")
    return there
