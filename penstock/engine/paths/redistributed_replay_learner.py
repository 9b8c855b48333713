"""Redistributing whole episodes where they are written, and the learner that draws what comes of it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.redistribution import Account, redistribute
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.rudder import TOLD, build_predictor, contributions, predictor_metrics
from penstock.engine.acting.weights import MakeWeights, SharedWeights
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Tell
from penstock.engine.paths.replay_learner import ReplayLearner
from penstock.experience.arena import ExperienceArena
from penstock.experience.redistributed import REDISTRIBUTED, UNTRUSTED
from penstock.experience.run_replay import Replay
from penstock.experience.transition_batch import TransitionReader


class EpisodeRedistribution:
    """Redistributes the rewards of whole episodes, by the newest predictor when each of them is over.

    Parameters
    ----------
    algorithm
        The policy's algorithm.
    arena
        The run's arena.
    """

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena) -> None:
        config: Any = algorithm.config
        self._chunk = config.redistributor_chunk
        self._points = config.redistribution_points * (config.redistribution_attribution == "integrated_gradients")
        self._observation = arena.shape.observation
        self._predictor = build_predictor(algorithm)
        self._weights = SharedWeights(self._predictor, arena.redistribution)

    @torch.no_grad()
    def __call__(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, is_terminated: bool
    ) -> np.ndarray | None:
        """Redistributed rewards of an episode, float32 ``[T]``; None while predictions are not good enough.

        Parameters
        ----------
        obs, action
            ``[T, ...]``, as they lie in their columns.
        reward
            As it is learned from, float32 ``[T]``.
        is_terminated
            Whether the episode terminated; else it was truncated.
        """
        self._weights.refresh()
        quality = float(self._predictor.told[TOLD.index("quality")])
        if quality == 0.0:
            return None
        contribution = self._contributions(self._observation.newest_of(obs), action)
        first = torch.zeros(len(reward), 1, dtype=torch.bool)
        terminated = first.clone()
        first[0], terminated[-1] = True, is_terminated
        account = Account.empty(1)
        own, valid = torch.from_numpy(reward).unsqueeze(1), torch.ones_like(first)
        redistributed, _, _ = redistribute(contribution, own, first, terminated, valid, account, quality)
        return redistributed.squeeze(1).numpy()

    def _contributions(self, obs: np.ndarray, action: np.ndarray) -> Tensor:
        """Contribution of each step, float32 ``[T, 1]``, chunk by chunk."""
        predictor, length = self._predictor, len(obs)
        memory, predicted, found = predictor.initial_memory(1), torch.zeros(1), []
        for begin in range(0, length, self._chunk):
            rows = slice(begin, begin + self._chunk)
            seen, acted = (torch.from_numpy(values[rows]).unsqueeze(1) for values in (obs, action))
            before = torch.from_numpy(obs[max(0, begin - 1) : begin + 1][:1])
            first = torch.zeros(len(seen), 1, dtype=torch.bool)
            first[0] = begin == 0
            inputs = predictor.inputs(seen, before, first, acted)
            contribution, predicted, memory = contributions(
                predictor, inputs, first, torch.ones_like(first), memory, predicted, self._points
            )
            found.append(contribution)
        return torch.cat(found)


class RedistributedReader(TransitionReader):
    """Draws batches in which, once predictions are good enough, rewards from before weigh nothing.

    With them the delay would be in the buffer until they are overwritten.

    Attributes
    ----------
    is_trusted
        Whether predictions are good enough.
    share
        Share of the last batch's transitions whose reward is redistributed, 0-dimensional.
    """

    fields: ClassVar[tuple[str, ...]] = (*TransitionReader.fields, "kind")

    is_trusted = False
    share: Tensor | None = None

    def _batch(self, tensors: dict[str, Tensor], weights: Tensor, number: int, progress: float) -> Any:
        kind = tensors.pop("kind")
        self.share = (kind == REDISTRIBUTED).float().mean()
        if self.is_trusted:
            weights = torch.where((self.share > 0) & (kind == UNTRUSTED), 0.0, weights)
        return super()._batch(tensors, weights, number, progress)


class RedistributedReplayLearner(ReplayLearner):
    """Learns from redistributed rewards as they were written; parameters are those of `ReplayLearner`."""

    _reader: RedistributedReader

    def __init__(
        self,
        algorithm: ReplayAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        replay: Replay,
        weights: MakeWeights,
    ) -> None:
        super().__init__(algorithm, arena, state, learning, report, replay, weights, RedistributedReader)
        self._predictor = build_predictor(algorithm)
        self._predictor_weights = SharedWeights(self._predictor, arena.redistribution)

    def poll(self) -> bool:
        """Make one update, as far as predictions can be trusted now."""
        self._predictor_weights.refresh()
        self._reader.is_trusted = self._predictor.told[TOLD.index("quality")].item() > 0.0
        return super().poll()

    def experience(self) -> dict[str, float]:
        """Besides, how well returns are predicted, and what that has changed."""
        share = self._reader.share
        return super().experience() | predictor_metrics(self._predictor, 0.0 if share is None else share.item())
