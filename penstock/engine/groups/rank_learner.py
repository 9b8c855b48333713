"""Learning of a further rank in a group, from batches that the first learner has collected or drawn."""

from __future__ import annotations

from typing import Any

import torch

from penstock.algorithms.bases.algorithm import Algorithm, NonFiniteUpdate
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.bases.segment import SegmentAlgorithm, SegmentUpdater
from penstock.config import Config, ConfigError, tuned
from penstock.engine.paths import DataPath, data_path, entry_of
from penstock.engine.paths.gradients import GradientPath
from penstock.engine.paths.replay import ReplayPath
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.batch import Batch
from penstock.nn import GroupBroken, flatten_, leave_group


class RankLearner:
    """Networks and optimisers of a rank, which makes every update that the group's first learner makes.

    Parameters
    ----------
    algorithm
        Algorithm of the policy; its config has the rank's device.

    Attributes
    ----------
    device
        Device of the networks.
    """

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm: Any = algorithm
        self._untuned = self._config = algorithm.config
        self.device = torch.device(algorithm.config.device)
        self._model: Any = algorithm.make_model(self.device)
        flatten_(self._model)
        self._autocast = algorithm.autocast(self.device)
        self._tuned: dict[str, float] = {}
        self._standing: dict[str, int] = {}

    def whole_state(self) -> dict[str, Any]:
        """Return weights, other learned state, and counters of learning."""
        return {"weights": self._model.state_dict(), "learning": self._learning(), "standing": self._standing}

    def take_state(self, state: dict[str, Any]) -> None:
        """Adopt the state of another learner."""
        self._model.load_state_dict(state["weights"])
        self._take_learning(state["learning"])
        self._standing = dict(state["standing"])

    def learn(self, batch: Any, about: dict[str, Any]) -> None:
        """Make all updates of a batch.

        Parameters
        ----------
        batch
            Batch of the data path's learner.
        about
            Result of that learner's `about_batch`.
        """
        self._standing = dict(about["standing"])
        if about["tuned"] != self._tuned:
            self._tuned = about["tuned"]
            self._config = tuned(self._untuned, self._tuned)
            self._take_settings()
        self._learn(batch, about)
        self._algorithm.remarks.clear()  # the first learner reports them

    def _learning(self) -> dict[str, Any]:
        """Return the state of the algorithm's learner, and of its optimisers."""
        learned: dict[str, Any] = self._algorithm.learning_state()
        return learned

    def _take_learning(self, learning: dict[str, Any]) -> None:
        raise NotImplementedError

    def _take_settings(self) -> None:
        """Apply changed values of tunable settings."""
        self._algorithm.apply_settings(self._config)

    def _learn(self, batch: Any, about: dict[str, Any]) -> None:
        raise NotImplementedError

    def _updated(self) -> None:
        """Count an update."""
        self._standing["version"] += 1
        self._standing["updates"] += 1


class SegmentRankLearner(RankLearner):
    """Rank learner from batches of segments."""

    def __init__(self, algorithm: SegmentAlgorithm) -> None:
        super().__init__(algorithm)
        self._updater = SegmentUpdater(algorithm, self._model)

    def _learning(self) -> dict[str, Any]:
        return self._updater.state()

    def _take_learning(self, learning: dict[str, Any]) -> None:
        self._updater.load_state(learning)

    def _take_settings(self) -> None:
        self._updater.apply_settings(self._config)

    def _learn(self, batch: Batch, about: dict[str, Any]) -> None:
        self._updater.generator.set_state(about["generator"])
        self._updater.learn(batch, updated=self._updated)

    def _updated(self) -> None:
        super()._updated()
        self._algorithm.after_update(self._model, self._standing["updates"])


class ReplayRankLearner(RankLearner):
    """Rank learner from batches that were drawn from replay."""

    def __init__(self, algorithm: ReplayAlgorithm) -> None:
        super().__init__(algorithm)
        algorithm.begin(self._model)
        self._training = algorithm.training_mode(self._model)

    def _take_learning(self, learning: dict[str, Any]) -> None:
        self._algorithm.inherit(learning)
        self._algorithm.generator.set_state(learning["generator"].cpu())

    def _learn(self, batch: Any, about: dict[str, Any]) -> None:
        self._algorithm.schedule_learning_rates(batch.progress)
        batch, _ = self._algorithm.prepare(self._model, batch)
        try:
            with self._training, self._autocast:
                try:
                    self._algorithm.update(self._model, batch)
                except GroupBroken:
                    leave_group()
                    self._algorithm.update(self._model, batch)
        except NonFiniteUpdate:
            return
        self._updated()
        if self._config.normalize_observations:
            self._model.update_observation_statistics(*batch.observed)


RANK_LEARNERS: dict[type[DataPath], type[RankLearner] | str] = {
    DataPath: "its learner cannot share its batches",
    SegmentPath: SegmentRankLearner,
    GradientPath: "its rollout workers learn, each on its own: use more num_workers",
    ReplayPath: ReplayRankLearner,
}
"""Class of the rank learner of each data path, or the reason why there is none."""


def require_rank_learner(algorithm: type[Algorithm], config: Config) -> None:
    """Raise `ConfigError` if several learners cannot learn from the same batches."""
    found = entry_of(RANK_LEARNERS, data_path(algorithm, config))
    if isinstance(found, str):
        raise ConfigError(
            f"{algorithm.name()} cannot use num_learners={config.num_learners}: {found}; use num_learners=1"
        )


def rank_learner(algorithm: Algorithm) -> RankLearner:
    """Make the rank learner of an algorithm's data path."""
    found = entry_of(RANK_LEARNERS, data_path(algorithm))
    if isinstance(found, str):
        raise TypeError(f"{algorithm.name()} has no rank learner: {found}")
    return found(algorithm)
