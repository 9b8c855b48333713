"""Roles of home and of each node of a run, derived from the roles that it would have on one machine."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

import torch

from penstock.config import Config
from penstock.engine.acting.inference import SharedWeights
from penstock.engine.contracts import RoleSpec
from penstock.engine.groups.follower import RankRole
from penstock.engine.nodes.dispatcher import WEIGHTS_INTERVAL
from penstock.engine.nodes.evaluation import EvaluationShares
from penstock.engine.nodes.host import HostTask
from penstock.engine.nodes.learning import NodeRankRole
from penstock.engine.nodes.receiver import ReceiverRole
from penstock.engine.nodes.sender import Home, SenderRole
from penstock.engine.nodes.shards import ShardRole
from penstock.engine.nodes.transport import SegmentTransport, transport_of
from penstock.engine.roles.specs import EvaluatorRole, LearnerRole, PolicyRole, RolloutRole
from penstock.engine.roster import on_device
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RunShape
from penstock.serialization import leaving_machine, packed

STREAMS_OF_A_HOST = 1_000  # incarnations of rollout workers reserved for each host


class AnnouncedWeights(SharedWeights):
    """A learner's end of the weights block, which also wakes the receiver to send nodes new versions.

    Parameters
    ----------
    model, arena
        As for `penstock.engine.acting.inference.through_block`.
    """

    def __init__(self, model: torch.nn.Module, arena: ExperienceArena) -> None:
        super().__init__(model, arena.weights)
        self._arena, self._next_ring = arena, 0.0

    def publish(self, version: int, steps: int) -> None:
        """Publish the model's weights, and ring the receiver's bells as often as it sends versions."""
        super().publish(version, steps)
        if (now := time.monotonic()) >= self._next_ring:
            self._next_ring = now + WEIGHTS_INTERVAL
            self._arena.ring_rollout_workers()


class Tasks:
    """Maker of the roles of home, and of the tasks of hosts.

    Parameters
    ----------
    specs
        Roles of the run on one machine.
    shape
        Shape of the run.
    cores
        Rollout workers of each node.
    evaluations
        Home's end of the evaluators on nodes; None: the evaluator is at home.
    """

    def __init__(
        self, specs: Sequence[RoleSpec], shape: RunShape, cores: int, evaluations: EvaluationShares | None
    ) -> None:
        self._shape, self._cores, self._evaluations = shape, cores, evaluations
        self._specs = specs
        self._rollouts = [spec for spec in specs if isinstance(spec, RolloutRole)]
        self._transports = tuple(map(transport_of, self._rollouts[0].rollout.paths))
        self._policy_workers = [spec for spec in specs if isinstance(spec, PolicyRole)]
        self._ranks = {spec.rank: spec for spec in specs if isinstance(spec, RankRole)}
        learners = [spec for spec in specs if isinstance(spec, LearnerRole)]
        self._takes_turns = tuple(learner.algorithm.synchronous for learner in learners)
        self._config: Config = learners[0].algorithm.config

    def of_home(
        self, ip: str, token: bytes, run: int, nodes: Sequence[range], missing: Collection[int]
    ) -> list[RoleSpec]:
        """Return the roles at home, the receiver included; parameters as for `ReceiverRole` and `of_gateway`."""
        workers = self._workers_of(nodes)
        stays = [
            replace(spec, weights=AnnouncedWeights) if isinstance(spec, LearnerRole) else spec
            for spec in self._specs if self._stays_at_home(spec)
        ]  # fmt: skip
        return [*stays, ReceiverRole(ip, token, run, workers, self._transports, self._takes_turns, missing)]

    def of_node(self, home: Home, number: int) -> bytes:
        """Return the pickled task of the host of node `number`, which connects to `home`."""
        incarnation = home.incarnation
        first = number * self._cores
        shapes = [self._of_node(shape, first) for shape in (self._shape, *self._shape.others)]
        shape = replace(shapes[0], others=tuple(shapes[1:]))
        transports = [each.to_node() for each in self._transports]
        specs: list[RoleSpec] = []
        for worker, role in enumerate(self._rollouts[first : first + self._cores]):
            rollout = replace(
                role.rollout, worker=worker, paths=tuple(transport.path for transport in transports),
                incarnation=role.rollout.incarnation + (incarnation - 1) * STREAMS_OF_A_HOST,
            )  # fmt: skip
            specs.append(replace(role, rollout=rollout))
        for spec in self._policy_workers:
            specs.append(replace(spec, path=transports[spec.policy].path, algorithm=on_device(spec.algorithm, "cpu")))
        if self._evaluations is not None and number < self._evaluations.count:
            specs.append(self._evaluations.role(number))
        for policy, transport in enumerate(transports[: len(self._takes_turns)]):
            specs.append(SenderRole(home, transport.path, transport.unit, policy))
        return self._pickled(shape, specs, transports)

    def of_gateway(
        self, home: Home, ip: str, nodes: Sequence[range], missing: Collection[int], shard: int | None
    ) -> bytes:
        """Return the pickled task of the host of a gateway, which has roles of a node and of home.

        Parameters
        ----------
        home
            Address that its senders connect to, and identity of the gateway there.
        ip
            Address of its machine, at which its receiver listens.
        nodes
            For each node, or gateway, that connects to it: numbers of the nodes of the run.
        missing
            Those among them that it does not wait for.
        shard
            Number of its shard, if replay is kept in shards; None: gateways connect to it.
        """
        first, end = nodes[0].start, nodes[-1].stop
        of_policies = (self._shape, *self._shape.others)
        shapes = [self._of_node(shape, first * self._cores, end - first) for shape in of_policies]
        transports = [each.to_node() for each in self._transports]
        specs = relay_roles(home, ip, self._workers_of(nodes), transports, self._takes_turns, missing)
        for policy, each in enumerate(self._transports):
            if each.is_sharded and shard is not None:
                specs.append(ShardRole(ip, home.token, home.run, each.path.replay.buffer.maker_of(shard), policy))
        return self._pickled(replace(shapes[0], others=tuple(shapes[1:])), specs, transports)

    def of_learner(self, rank: int, num_threads: int) -> bytes:
        """Return the pickled task of the host of a learner, which may use `num_threads` threads."""
        role = self._ranks[rank]
        groups = self._shape.num_groups  # the smallest arena: no lane is stepped there
        shape = replace(
            self._of_node(self._shape, 0), num_workers=1, num_envs_per_worker=groups, slots_per_lane=1, split=None
        )
        device = role.algorithm.config.device.partition(":")[0]  # the GPU that Ray has given the host, or the CPU
        there = NodeRankRole(on_device(role.algorithm, device), role.group, rank, num_threads)
        return self._pickled(shape, [there])

    def _stays_at_home(self, spec: RoleSpec) -> bool:
        if isinstance(spec, RankRole):
            return spec.rank < self._config.learners_at_home
        return not isinstance(spec, RolloutRole | PolicyRole) and not (
            isinstance(spec, EvaluatorRole) and self._evaluations is not None
        )

    def _workers_of(self, nodes: Sequence[range]) -> list[range]:
        """Return the rollout workers of the ends that connect, in the arena of the end that they connect to."""
        first = nodes[0].start
        return [range((part.start - first) * self._cores, (part.stop - first) * self._cores) for part in nodes]

    def _of_node(self, shape: RunShape, first_worker: int, num_nodes: int = 1) -> RunShape:
        """Shape of a policy's arena on a node, or at the gateway of several."""
        return replace(shape, num_workers=num_nodes * self._cores, first_worker=first_worker, others=())

    def _pickled(
        self, shape: RunShape, specs: Sequence[RoleSpec], transports: Sequence[SegmentTransport] = ()
    ) -> bytes:
        with leaving_machine():
            return packed(HostTask(shape, specs, self._config.on_env_error == "restart", transports))


def relay_roles(
    home: Home, ip: str, workers: Sequence[range], transports: Sequence[SegmentTransport],
    takes_turns: tuple[bool, ...], missing: Collection[int] = (),
) -> list[RoleSpec]:  # fmt: skip
    """Return the roles of a gateway: a node's towards `home`, and home's towards the gateway's nodes.

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
