"""Gradients in the workers: each rollout worker learns from its own experience."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from penstock.engine.contracts import Actor, ExperienceWriter
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.segments import OwnSegmentWriter

if TYPE_CHECKING:
    from penstock.engine.contracts import Start
    from penstock.engine.messages import Tell
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class GradientPath(SegmentPath):
    """Data path of segments that their own worker learns from, on parameters shared by all workers (Hogwild)."""

    workers_learn: ClassVar[bool] = True

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """As `SegmentPath.numbers`, with one slot for each lane, and room for the shared parameters."""
        from penstock.nn import WeightsLayout

        own = {"slots_per_lane": 1, "shared_nbytes": WeightsLayout(model).nbytes}
        return super().numbers(algorithm, model) | own

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Write the shared parameters, the optimiser's state, and the progress of the run."""
        from penstock.engine.paths import hogwild

        hogwild.begin(algorithm, arena, model, start.state, start.learning)
        return cls(), None

    def actor(
        self, arena: ExperienceArena, algorithm: Any, device: str, worker: int | None = None, report: Tell | None = None
    ) -> Actor:
        """Make the actor that also learns."""
        from penstock.engine.paths.hogwild import ActorLearner

        assert worker is not None and report is not None, "no policy worker acts where rollout workers learn"
        return ActorLearner(arena, algorithm, worker, self, report)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Make the writer that passes full slots to the actor."""

        def learn(slots: np.ndarray) -> bool:
            clock.switch("learn")
            has_learned: bool = actor.learn(slots)
            return has_learned

        return OwnSegmentWriter(arena, worker, lanes, first_lane, is_wanted=actor.is_wanted, learn=learn)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.hogwild import HogwildLearner

        return HogwildLearner
