"""What each role is told, as plain data that travels, and how the role is made of it in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from penstock.engine.messages import Command, Tell
from penstock.engine.roles.rollout_worker import RolloutSpec, RolloutWorker
from penstock.envs.spec import EnvSpec
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import RoleKind
from penstock.ipc import Doorbell

if TYPE_CHECKING:
    from penstock.algorithms.bases.algorithm import Algorithm
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.paths import DataPath
    from penstock.engine.roles.learner import LearnerState
    from penstock.experience.feed import Feed


class Role(Protocol):
    """A part of the engine: a backend polls it, and lets it sleep on its bell when there is nothing to do."""

    bell: Doorbell

    def poll(self) -> bool:
        """Do one piece of work without waiting for anything; False if there was none."""
        ...

    def handle(self, command: Command) -> None:
        """Take a command of the supervisor."""
        ...

    def close(self) -> None:
        """Let go of what is held open."""
        ...


class RoleSpec(Protocol):
    """Makes a role; picklable."""

    @property
    def name(self) -> str:
        """Name of the role, such as "rollout-0"."""
        ...

    @property
    def num_threads(self) -> int:
        """Native threads that the role may use."""
        ...

    @property
    def is_vital(self) -> bool:
        """Whether the run ends with the role; others are replaced."""
        ...

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the role."""
        ...


@dataclass(frozen=True)
class RolloutRole:
    """A rollout worker; with an algorithm it infers itself, without one a policy worker does and torch stays out."""

    rollout: RolloutSpec
    algorithm: Algorithm | None
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
        if self.algorithm is None:
            return RolloutWorker(self.rollout, arena, report, None)
        actor = self.rollout.path.actor(arena, self.algorithm, self.rollout.worker, report)
        return RolloutWorker(self.rollout, arena, report, actor)


@dataclass(frozen=True)
class PolicyRole:
    """The policy worker."""

    algorithm: Algorithm
    path: DataPath
    num_threads: int
    name: str = f"{RoleKind.POLICY}-0"
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the policy worker and its model."""
        from penstock.engine.acting.inference import Inference
        from penstock.engine.roles.policy_worker import PolicyWorker

        return PolicyWorker(arena, Inference(arena, self.algorithm, self.algorithm.config.device, self.path))


@dataclass(frozen=True)
class LearnerRole:
    """The learner."""

    algorithm: Algorithm
    path: DataPath
    state: LearnerState
    learning: dict[str, Any] | None
    num_threads: int
    name: str = RoleKind.LEARNER
    is_vital: ClassVar[bool] = True

    def build(self, arena: ExperienceArena, report: Tell, weights: MakeWeights | None = None) -> Role:
        """Make the learner of the algorithm's data path, its model and its optimisers.

        Parameters
        ----------
        weights
            By which way its weights are published; None: by the arena's block.
        """
        from penstock.engine.acting.weights import through_block

        begin_on(self.algorithm.config.device)
        return self.path.learner(
            arena, self.algorithm, self.state, self.learning, report, weights or through_block
        )


@dataclass(frozen=True)
class EvaluatorRole:
    """The evaluator."""

    algorithm: Algorithm
    env: EnvSpec
    num_threads: int = 1
    name: str = RoleKind.EVALUATOR
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the evaluator and its lanes."""
        from penstock.engine.roles.evaluator import Evaluator

        return Evaluator(self.algorithm, self.env, arena, report)


@dataclass(frozen=True)
class RedistributorRole:
    """The redistributor."""

    algorithm: Algorithm
    feed: Feed
    saved_at: Path | None
    num_threads: int = 1
    name: str = RoleKind.REDISTRIBUTOR
    is_vital: ClassVar[bool] = False

    def build(self, arena: ExperienceArena, report: Tell) -> Role:
        """Make the redistributor and its predictor."""
        from penstock.engine.roles.redistributor import Redistributor

        return Redistributor(self.algorithm, self.feed, arena, report, self.saved_at)


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
