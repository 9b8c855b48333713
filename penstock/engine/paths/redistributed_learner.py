"""The learner of segments whose rewards it redistributes when it takes them, by the newest predictor of returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.redistribution import Account, redistribute, trace
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.algorithms.rudder import TOLD, build_predictor, contributions, told_by
from penstock.engine.acting.weights import MakeWeights, SharedWeights
from penstock.engine.messages import Tell
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.roles.learner import LearnerState
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch


class RedistributedLearner(SegmentLearner):
    """Learns from redistributed rewards; parameters are those of `SegmentLearner`."""

    def __init__(
        self,
        algorithm: SegmentAlgorithm,
        arena: ExperienceArena,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> None:
        super().__init__(algorithm, arena, state, learning, report, weights)
        self._redistribution = Redistribution(algorithm, arena, self._device)

    def _read(self, slots: np.ndarray) -> tuple[Batch, Tensor]:
        numbers = self._arena.slot_number[slots]  # before the slots may be written again
        batch, lag = super()._read(slots)
        self._redistribution.apply(batch, numbers)
        return batch, lag

    def experience(self) -> dict[str, float]:
        """Besides, how well returns are predicted, and what that has changed."""
        return super().experience() | self._redistribution.told()


class Redistribution:
    """Redistributes the rewards of batches, whatever parts of episodes they hold.

    A step's contribution depends on what came before it alone. So nothing waits for the end of an episode: of each
    lane the learner keeps the predictor's memory, its last prediction, and what of the running episode was earned and
    handed out. Segments of a lane are numbered. Where one is missing, as behind a fence, the episode keeps its original
    rewards from there to its end.

    Parameters
    ----------
    algorithm
        The policy's algorithm.
    arena
        The run's arena.
    device
        Where batches lie.
    """

    def __init__(self, algorithm: SegmentAlgorithm, arena: ExperienceArena, device: torch.device) -> None:
        config: Any = algorithm.config
        shape = arena.shape
        self._device = device
        self._replaces = config.redistribution_value == "redistributed"
        self._trace = config.redistribution_trace
        self._points = config.redistribution_points * (config.redistribution_attribution == "integrated_gradients")
        self._observation = shape.observation
        self._predictor = build_predictor(algorithm).to(device)
        self._weights = SharedWeights(self._predictor, arena.redistribution)
        self._next_numbers = np.full(shape.num_lanes, -1, np.int64)
        self._account = Account.empty(shape.num_lanes, device)
        self._memory = self._predictor.initial_memory(shape.num_lanes)
        self._predicted = torch.zeros(shape.num_lanes, device=device)
        newest = shape.observation.newest
        self._before = torch.zeros(shape.num_lanes, *newest.shape, dtype=getattr(torch, newest.dtype), device=device)
        self._share = 0.0

    @torch.no_grad()
    def apply(self, batch: Batch, numbers: np.ndarray) -> None:
        """Redistribute a batch's rewards: in their place, or beside them where values learn from original ones.

        Parameters
        ----------
        batch
            Fresh segments, those of a lane in their order.
        numbers
            int64 ``[B]``: which of its lane each of them is.
        """
        self._weights.refresh()
        quality = float(self._predictor.told[TOLD.index("quality")])
        reward, qualities = batch.reward.clone(), torch.zeros_like(batch.reward)
        lanes = batch.lane.cpu().numpy()
        for columns in each_lane_once(lanes):
            self._heed_gaps(lanes[columns], numbers[columns])
            index = torch.from_numpy(columns).to(self._device)
            if quality == 0.0:  # only what is under way goes on
                index = index[self._account.quality[batch.lane[index]] > 0]
            if len(index) == len(lanes):
                reward, qualities = self._redistribute(batch, quality)
            elif len(index):
                reward[:, index], qualities[:, index] = self._redistribute(batch.segments(index), quality)
        self._share = float((qualities > 0).sum() / batch.valid.sum().clamp(min=1))
        if self._replaces:
            batch.reward = reward
        elif self._share:
            goes_on = ~(batch.terminated | batch.truncated)
            batch.redistribution = {"reward": trace(reward, goes_on, self._trace), "quality": qualities}

    def told(self) -> dict[str, float]:
        """What is known of the predictor, and the share of the last batch's steps whose rewards were redistributed."""
        return told_by(self._predictor, self._share)

    def _heed_gaps(self, lanes: np.ndarray, numbers: np.ndarray) -> None:
        """Let the running episodes of lanes of which a segment is missing keep their original rewards."""
        has_gap = numbers != self._next_numbers[lanes]
        self._next_numbers[lanes] = numbers + 1
        if has_gap.any():
            self._account.close(torch.from_numpy(lanes[has_gap]).to(self._device))

    def _redistribute(self, batch: Batch, quality: float) -> tuple[Tensor, Tensor]:
        """Redistributed rewards and their quality, ``[T, B]``, of segments of different lanes."""
        lanes, valid, first = batch.lane, batch.valid, batch.first[:-1]
        obs = self._observation.newest_of(batch.obs[:-1])
        inputs = self._predictor.inputs(obs, self._before[lanes], first, batch.action)
        contribution, self._predicted[lanes], self._memory[lanes] = contributions(
            self._predictor, inputs, first, valid, self._memory[lanes], self._predicted[lanes], self._points,
        )  # fmt: skip
        reward, of_step, account = redistribute(
            contribution, batch.reward, first, batch.terminated, valid, self._account.of(lanes), quality
        )
        self._account.put(lanes, account)
        if valid.all():
            self._before[lanes] = obs[-1]
        else:
            last_step = (valid * torch.arange(1, len(valid) + 1, device=valid.device).unsqueeze(1)).argmax(0)
            has_steps = valid.any(0).nonzero()[:, 0]  # a lane that only waits for its turn has none
            self._before[lanes[has_steps]] = obs[last_step[has_steps], has_steps]
        return reward, of_step


def each_lane_once(lanes: np.ndarray) -> Iterator[np.ndarray]:
    """Split columns into as few groups as it takes for each to hold no lane twice, int64 each, in their order."""
    turns: list[list[int]] = []
    seen: Counter[int] = Counter()
    for column, lane in enumerate(lanes.tolist()):
        if seen[lane] == len(turns):
            turns.append([])
        turns[seen[lane]].append(column)
        seen[lane] += 1
    yield from map(np.array, turns)
