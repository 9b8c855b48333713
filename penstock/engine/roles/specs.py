"""Specs of roles as plain data that travels, and the construction of each role in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from penstock.engine.contracts import LeavesNothing, Role
from penstock.engine.messages import Tell
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RoleKind, policy_worker_name

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState
    from penstock.engine.groups.meeting import GroupSpec
    from penstock.engine.paths import DataPath


def name_of(kind: str, policy: int) -> str:
    """Name of a single role of a policy."""
    return f"{kind}-{policy}" if policy else str(kind)


def policy_of(role: str) -> int:
    """Number of the policy that a single role is of, by the role's name."""
    _, _, number = role.partition("-")
    return int(number) if number else 0


@dataclass(frozen=True)
class RolloutRole:
    """A rollout worker; with algorithms, one for each policy, it infers itself.

    Else torch stays out, but where a data path needs it.
    """

    rollout: RolloutSpec
    algorithms: tuple[Algorithm, ...] = ()
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "rollout-<number>"."""
        return f"rollout-{self.rollout.worker}"

    @property
    def num_threads(self) -> int:
        """As its lanes are told."""
        return self.rollout.num_threads

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the rollout worker and its lanes."""
        actors = [
            path.actor(of_policy, algorithm, "cpu", self.rollout.worker, report)
            for path, of_policy, algorithm in zip(self.rollout.paths, arena.policies, self.algorithms, strict=False)
        ]
        return RolloutWorker(self.rollout, arena, report, actors)

    def successor(self, arena: ExperienceArena) -> RolloutRole:
        """Take back its requests and slots; return one with random numbers of its own.

        No policy worker may be answering requests from before its death any more.
        """
        for of_policy in arena.policies:
            of_policy.requests.reset(self.rollout.worker)
            of_policy.reclaim(self.rollout.worker)
        return replace(self, rollout=replace(self.rollout, incarnation=self.rollout.incarnation + 1))


@dataclass(frozen=True)
class PolicyRole(LeavesNothing):
    """A policy worker: one of those of a policy, by its number."""

    algorithm: Algorithm
    path: DataPath
    num_threads: int
    policy: int = 0
    number: int = 0
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "policy-<policy>", and of further policy workers "policy-<policy>.<number>"."""
        return policy_worker_name(self.policy, self.number)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the policy worker and what chooses actions for it."""
        from penstock.engine.roles.policy_worker import PolicyWorker

        arena = arena.policies[self.policy]
        actor = self.path.actor(arena, self.algorithm, self.algorithm.config.device)
        return PolicyWorker(arena, actor, self.number)


@dataclass(frozen=True)
class LearnerRole:
    """The learner."""

    algorithm: Algorithm
    path: DataPath
    state: LearnerState
    learning: dict[str, Any] | None
    num_threads: int
    policy: int = 0
    group: GroupSpec | None = None

    @property
    def is_vital(self) -> bool:
        """True for a single learner: in a group, the others have the same state."""
        return self.group is None

    @property
    def name(self) -> str:
        """ "learner", and of further policies "learner-<number>"."""
        return name_of(RoleKind.LEARNER, self.policy)

    def build(self, arena: ExperienceArena, report: Tell, weights: MakeWeights | None = None) -> Role:
        """Make the learner of the algorithm's data path, its model and its optimisers.

        Parameters
        ----------
        weights
            By which way its weights are published; None: by the arena's block.
        """
        from penstock.engine.acting.weights import through_block

        begin_on(self.algorithm.config.device)
        arena = arena.policies[self.policy]
        learner = self.path.learner(arena, self.algorithm, self.state, self.learning, report, weights or through_block)
        if self.group is None:
            return learner
        from penstock.engine.groups.leading import Leader

        return Leader(learner, self.group, arena, report)

    def successor(self, arena: ExperienceArena) -> Self:
        """Take back the slots that it read; return one of a group that gets its state from the others."""
        if self.group is None:
            return self
        arena.policies[self.policy].reclaim_read()
        return replace(self, group=replace(self.group, is_successor=True))


@dataclass(frozen=True)
class EvaluatorRole(LeavesNothing):
    """The evaluator: of all policies, which play together."""

    algorithms: tuple[Algorithm, ...]
    env: EnvSpec
    num_threads: int = 1
    name: str = RoleKind.EVALUATOR
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the evaluator and its lanes."""
        from penstock.engine.roles.evaluator import Evaluator

        return Evaluator(self.algorithms, self.env, arena, report)


def begin_on(device: str) -> None:
    """Let this process compute on a device; on a GPU products of float32 matrices may be taken in TF32."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device).index or 0)
        torch.set_float32_matmul_precision("high")


@contextmanager
def left_as_found() -> Iterator[None]:
    """Put back at the end what `begin_on` has changed in this process meanwhile."""
    import torch

    device, precision = torch.cuda.current_device() if torch.cuda.is_initialized() else 0, None
    with suppress(RuntimeError):  # torch refuses to name a precision that the user has set for single backends
        precision = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        if precision is not None:
            torch.set_float32_matmul_precision(precision)
        if torch.cuda.is_initialized():
            torch.cuda.set_device(device)
