"""Gradients in the workers: experience stays where it was made, and who stepped learns from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from penstock.config import Config
from penstock.engine.contracts import Actor, ExperienceWriter
from penstock.engine.paths.base import Rehearsal
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.segments import OwnSegmentWriter

if TYPE_CHECKING:
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState, Start
    from penstock.engine.messages import Tell
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class GradientPath(SegmentPath):
    """Segments that their own worker learns from, on parameters that all workers share (Hogwild)."""

    workers_learn: ClassVar[bool] = True

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """One slot for each lane, and room for the shared parameters."""
        from penstock.nn import WeightsLayout

        own = {"slots_per_lane": 1, "shared_nbytes": WeightsLayout(model).nbytes}
        return super().numbers(algorithm, model) | own

    @classmethod
    def lanes_of_batch(cls, config: Config) -> int | None:
        """Those of one worker."""
        return config.lanes_per_worker

    @classmethod
    def why_at_home(cls) -> str:
        """Machines share no memory."""
        return "its rollout workers learn on parameters that all of them share in the memory of one machine"

    @classmethod
    def why_one_learner(cls) -> str:
        """Nothing is handed out."""
        return "its rollout workers learn, each by itself: use more num_workers"

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """The gradient of a segment of each lane of a worker, applied."""
        from penstock.engine.paths.rehearsals import SegmentRehearsal

        return SegmentRehearsal(arena, algorithm, algorithm.config.lanes_per_worker)

    def begin(self, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start) -> None:
        """Lay out the shared parameters, the optimiser's state, and how far the run is."""
        from penstock.engine.paths import hogwild

        hogwild.begin(algorithm, arena, model, start.state, start.learning)

    def actor(self, arena: ExperienceArena, algorithm: Any, worker: int, report: Tell) -> Actor:
        """Choose actions, and learn from what comes of them."""
        from penstock.engine.paths.hogwild import ActorLearner

        return ActorLearner(arena, algorithm, worker, self, report)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Fill slots, and have them learned from."""

        def learn(slots: np.ndarray) -> bool:
            clock.switch("learn")
            has_learned: bool = actor.learn(slots)
            return has_learned

        return OwnSegmentWriter(arena, worker, lanes, first_lane, is_wanted=actor.is_wanted, learn=learn)

    def learner(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> Learner:
        """Show what the workers have made of the parameters."""
        from penstock.engine.paths.hogwild_learner import HogwildLearner

        return HogwildLearner(algorithm, arena, state, report)
