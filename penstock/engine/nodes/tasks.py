"""Tasks for hosts: the roles of each node, derived from those that the run would have on one machine."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.config import Config
from penstock.engine.contracts import RoleSpec
from penstock.engine.groups.following import RankRole
from penstock.engine.nodes.evaluation import EvaluationsThere
from penstock.engine.nodes.home_learner import HomeLearnerRole
from penstock.engine.nodes.host import HostTask
from penstock.engine.nodes.learning import RankThereRole
from penstock.engine.nodes.sender import Home, Sender, SenderRole
from penstock.engine.nodes.steps import StepSender
from penstock.engine.nodes.transport import SegmentTransport, transport_of
from penstock.engine.roles.specs import LearnerRole, PolicyRole, RolloutRole
from penstock.experience.layout import RunShape
from penstock.travelling import leaving_machine, packed

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
        self._ranks = {spec.rank: spec for spec in specs if isinstance(spec, RankRole)}
        config = next(spec for spec in specs if isinstance(spec, LearnerRole)).algorithm.config
        self._forgives_environments = config.on_env_error == "restart"

    def of_node(self, number: int, incarnation: int) -> bytes:
        """Make the task of a node's host, pickled; so many hosts have stood for the node, this one among them."""
        first = number * self._cores
        shapes = [self._of_node(shape, first) for shape in (self._shape, *self._shape.others)]
        shape = replace(shapes[0], others=tuple(shapes[1:]))
        home = replace(self._home, node=number, incarnation=incarnation)
        transports = [transport_of(path).to_node() for path in self._rollouts[0].rollout.paths]
        specs: list[RoleSpec] = []
        for worker, role in enumerate(self._rollouts[first : first + self._cores]):
            rollout = replace(
                role.rollout, worker=worker, paths=tuple(transport.path for transport in transports),
                incarnation=role.rollout.incarnation + (incarnation - 1) * STREAMS_OF_A_HOST,
            )  # fmt: skip
            specs.append(replace(role, rollout=rollout))
        for spec in self._policy_workers:
            specs.append(replace(spec, path=transports[spec.policy].path, algorithm=_on_cpu(spec.algorithm)))
        if self._evaluations is not None and number == 0:
            specs.append(self._evaluations.role())
        for policy, transport in enumerate(transports):
            make = StepSender if transport.unit == "steps" else Sender
            specs.append(SenderRole(home, transport.path, make, policy))
        return self._pickled(shape, specs, transports)

    def of_learner(self, rank: int, num_threads: int) -> bytes:
        """Make the task of a learner's host, pickled: the learner may use so many threads."""
        role = self._ranks[rank]
        groups = self._shape.num_groups  # an arena as small as can be: no lane is stepped there
        shape = replace(self._of_node(self._shape, 0), num_workers=1, num_envs_per_worker=groups, slots_per_lane=1)
        there = RankThereRole(_on_first_gpu(role.algorithm), role.group, rank, num_threads)
        return self._pickled(shape, [there])

    def _of_node(self, shape: RunShape, first_worker: int) -> RunShape:
        """The numbers of a policy's arena on a node."""
        return replace(shape, num_workers=self._cores, first_worker=first_worker, others=())

    def _pickled(
        self, shape: RunShape, specs: Sequence[RoleSpec], transports: Sequence[SegmentTransport] = ()
    ) -> bytes:
        with leaving_machine():
            return packed(HostTask(shape, specs, self._forgives_environments, transports))


def roles_at_home(specs: Sequence[RoleSpec], config: Config) -> list[RoleSpec]:
    """The roles of a run that stay at home."""
    first_away = config.learners_at_home
    return [
        HomeLearnerRole(**vars(spec)) if isinstance(spec, LearnerRole) else spec
        for spec in specs
        if not isinstance(spec, RolloutRole | PolicyRole)
        and not (isinstance(spec, RankRole) and spec.rank >= first_away)
    ]


def _on_cpu(algorithm: Any) -> Any:
    """An algorithm that acts on a CPU: the learner's device is at home."""
    return _on(algorithm, "cpu")


def _on_first_gpu(algorithm: Any) -> Any:
    """An algorithm that learns on the GPU that Ray has given a node's host, where the run has GPUs."""
    return _on(algorithm, algorithm.config.device.partition(":")[0])


def _on(algorithm: Any, device: str) -> Any:
    there = copy.copy(algorithm)
    there.config = replace(algorithm.config, device=device)
    return there
