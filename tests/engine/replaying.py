"""The roles of a small run that learns from replay, polled by hand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.dqn import DQN
from penstock.engine.contracts import LearnerState, Start
from penstock.engine.paths.replay import ReplayPath, make_replay
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.engine.trainer import Trainer
from penstock.experience.arena import Control
from penstock.experience.run_replay import Replay
from tests.engine.collecting import FIRST_VERSION, Polled
from tests.engine.inside import supervisor_of
from tests.engine.processes import FOR_EVER
from tests.replay.buffers import priorities_of

TINY: dict[str, Any] = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 1, "hidden_sizes": (8,), "batch_size": 4,
    "learning_starts": 10, "buffer_size": 1_000, "updates_per_step": 1.0, "total_steps": 10_000, "backend": "serial",
}  # fmt: skip


class Replaying(Polled):
    """A run from replay, the learner made when it is first wanted."""

    def __init__(self, algorithm: type[ReplayAlgorithm] = DQN, **settings: Any) -> None:
        of_dqn = {"n_step": 1, "learning_rate_schedule": "constant"} if algorithm is DQN else {}
        super().__init__(algorithm, {**TINY, **of_dqn, **settings})
        self.arena.control[Control.GOAL] = FOR_EVER

    def begin(self) -> ReplayPath:
        self.replay, _ = make_replay(self.algorithm, Start(), None)
        return ReplayPath(self.replay)

    @cached_property
    def learner(self) -> ReplayLearner:
        """The learner of this run."""
        state = LearnerState(version=FIRST_VERSION)
        return ReplayLearner(self.algorithm, self.arena, state, None, self.reports.append, self.replay)

    @property
    def batches(self) -> int:
        """Batches that were learned from."""
        return self.learner.learning_state()["replay"]["batches"]

    @property
    def steps(self) -> int:
        """Steps learned from as the learner counts them, reported or not."""
        return self.learner._steps

    def learn(self, updates: int) -> None:
        """Continue until a number of further batches is learned from."""
        goal = self.batches + updates
        while self.batches < goal:
            polled = self.poll()
            assert self.learner.poll() or polled

    def rows(self) -> dict[str, np.ndarray]:
        """All transitions, oldest first."""
        return self.replay.buffer.get_all()

    def priorities(self) -> np.ndarray:
        """Of all rows, oldest first, as they are drawn by: ``(p + eps) ** alpha``."""
        return priorities_of(self.replay.buffer)

    def close(self) -> None:
        """Close environments and learner."""
        super().close()
        if "learner" in vars(self):
            self.learner.close()


def replay_of(trainer: Trainer) -> Replay:
    """The replay of a run as the supervisor hands it out."""
    specs: Any = supervisor_of(trainer).backend._specs
    specs = specs.values() if isinstance(specs, dict) else specs
    return next(spec.path.replay for spec in specs if spec.name == "learner")
