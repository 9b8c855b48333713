"""Specs of roles: picklable data, from which each role is made in its own process."""

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
    from penstock.engine.acting.inference import MakeWeights
    from penstock.engine.contracts import LearnerState
    from penstock.engine.groups.board import GroupSpec
    from penstock.engine.paths import DataPath


def name_of(kind: str, policy: int) -> str:
    """Return the name of a policy's role, for kinds with one role per policy: "learner", "learner-1"."""
    return f"{kind}-{policy}" if policy else str(kind)


def policy_of(role: str) -> int:
    """Return the number of the policy in a name from `name_of`."""
    _, _, number = role.partition("-")
    return int(number) if number else 0


@dataclass(frozen=True)
class RolloutRole:
    """Rollout worker, with local inference if `algorithms` has one for each policy.

    Without local inference its process imports torch only if a data path needs it.
    """

    rollout: RolloutSpec
    algorithms: tuple[Algorithm, ...] = ()
    num_threads: ClassVar[int] = 1
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "rollout-<number>"."""
        return f"rollout-{self.rollout.worker}"

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the rollout worker and its lanes."""
        actors = [
            path.actor(of_policy, algorithm, "cpu", self.rollout.worker, report)
            for path, of_policy, algorithm in zip(self.rollout.paths, arena.policies, self.algorithms, strict=False)
        ]
        return RolloutWorker(self.rollout, arena, report, actors)

    def successor(self, arena: ExperienceArena) -> RolloutRole:
        """Reset the worker's requests, and free its slots; return a spec with other random numbers.

        No policy worker may still be answering requests from before the worker's death.
        """
        for of_policy in arena.policies:
            of_policy.requests.reset(self.rollout.worker)
            of_policy.reclaim(self.rollout.worker)
        return replace(self, rollout=replace(self.rollout, incarnation=self.rollout.incarnation + 1))


@dataclass(frozen=True)
class PolicyRole(LeavesNothing):
    """Policy worker; `number` is its number among those of its policy."""

    algorithm: Algorithm
    path: DataPath
    num_threads: int
    policy: int = 0
    number: int = 0
    is_vital: ClassVar[bool] = False

    @property
    def name(self) -> str:
        """ "policy-<policy>", and for further policy workers "policy-<policy>.<number>"."""
        return policy_worker_name(self.policy, self.number)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the policy worker and its actor."""
        from penstock.engine.roles.policy_worker import PolicyWorker

        arena = arena.policies[self.policy]
        actor = self.path.actor(arena, self.algorithm, self.algorithm.config.device)
        return PolicyWorker(arena, actor, self.number)


@dataclass(frozen=True)
class LearnerRole:
    """Learner of a policy."""

    algorithm: Algorithm
    path: DataPath
    state: LearnerState
    learning: dict[str, Any] | None
    num_threads: int
    policy: int = 0
    group: GroupSpec | None = None
    weights: MakeWeights | None = None
    """Constructor of the transport by which weights are published; None: the arena's block."""

    @property
    def is_vital(self) -> bool:
        """True for a single learner: in a group, the other learners have the same state."""
        return self.group is None

    @property
    def name(self) -> str:
        """ "learner", and for further policies "learner-<number>"."""
        return name_of(RoleKind.LEARNER, self.policy)

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the learner of the data path, with its model and optimisers."""
        from penstock.engine.acting.inference import through_block

        begin_on(self.algorithm.config.device)
        arena = arena.policies[self.policy]
        weights = self.weights or through_block
        learner = self.path.learner(arena, self.algorithm, self.state, self.learning, report, weights)
        if self.group is None:
            return learner
        from penstock.engine.groups.leader import Leader

        return Leader(learner, self.group, arena, report)

    def successor(self, arena: ExperienceArena) -> Self:
        """Free the slots that the learner was reading; return a spec that takes its state from the other learners."""
        if self.group is None:
            return self
        arena.policies[self.policy].reclaim_read()
        return replace(self, group=replace(self.group, is_successor=True))


@dataclass(frozen=True)
class EvaluatorRole(LeavesNothing):
    """Evaluator of all policies, which play together."""

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
    """Set this process up for a device; on a GPU, allow TF32 in products of float32 matrices."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.set_device(torch.device(device).index or 0)
        torch.set_float32_matmul_precision("high")


@contextmanager
def left_as_found() -> Iterator[None]:
    """Restore, after the block, the settings that `begin_on` changes in this process."""
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
