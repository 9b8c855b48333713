"""Redistributing the rewards of full slots, in their place and before they are handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.redistribution import Account, redistribute, trace
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.algorithms.rudder import TOLD, build_predictor, contributions
from penstock.engine.acting.weights import SharedWeights
from penstock.experience.arena import ExperienceArena

COLUMNS = ("action", "reward", "first", "terminated", "truncated", "valid")


class SegmentRedistribution:
    """Redistributes the rewards of some lanes' segments, whatever parts of episodes they hold.

    A step's contribution depends on what came before it alone. So nothing waits for the end of an episode: kept of each
    lane are the predictor's memory, its last prediction, the last observation, and what of the running episode was
    earned and handed out. Segments of a lane are numbered. Where one is missing, as one that a fence has begun anew,
    the episode keeps its original rewards from there to its end.

    Rewards lie in their slots as they are learned from: scaled, clipped and redistributed. Where values learn from
    original ones, redistributed rewards lie beside them (`RunShape.keeps_original`).

    Parameters
    ----------
    algorithm
        The policy's algorithm.
    arena
        The policy's arena.
    lanes
        Numbers of the lanes in the arena, successive ones.
    """

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena, lanes: range) -> None:
        config: Any = algorithm.config
        shape = arena.shape
        self._arena = arena
        self._scale, self._clip = config.reward_scale, config.reward_clip
        self._trace = config.redistribution_trace
        self._points = config.redistribution_points * (config.redistribution_attribution == "integrated_gradients")
        self._predictor = build_predictor(algorithm)
        self._weights = SharedWeights(self._predictor, arena.redistribution)
        self._first_lane = lanes.start
        self._next_numbers = np.full(len(lanes), -1, np.int64)
        self._account = Account.empty(len(lanes))
        self._memory = self._predictor.initial_memory(len(lanes))
        self._predicted = torch.zeros(len(lanes))

        def steps_of(column: np.ndarray) -> Tensor:
            """``[num_slots, T, ...]``, where they lie."""
            return torch.from_numpy(column).unflatten(0, (-1, shape.rows_per_slot))[:, :-1]

        self._obs = steps_of(shape.observation.newest_of(arena.columns["obs"]))
        self._columns = {name: steps_of(arena.columns[name]) for name in COLUMNS}
        beside = [column.name for column in shape.redistribution_columns()]
        self._beside = [steps_of(arena.columns[name]) for name in beside]
        self._before = torch.zeros(len(lanes), *self._obs.shape[2:], dtype=self._obs.dtype)

    @torch.no_grad()
    def __call__(self, slots: np.ndarray) -> None:
        """Redistribute the rewards in full slots (int64 ``[K]``) of different lanes, by the newest predictor."""
        self._weights.refresh()
        quality = float(self._predictor.told[TOLD.index("quality")])
        numbers = self._arena.lane_of(slots) - self._first_lane
        self._heed_gaps(numbers, self._arena.slot_number[slots])
        index, lanes = torch.from_numpy(slots), torch.from_numpy(numbers)
        reward = self._as_learned(self._of("reward", index))
        redistributed, qualities = reward, torch.zeros_like(reward)
        goes_on = self._account.quality[lanes] > 0  # alone, while predictions are not good enough
        if quality > 0.0 or goes_on.all():
            redistributed, qualities = self._redistribute(index, lanes, reward, quality)
        elif goes_on.any():
            redistributed = reward.clone()
            redistributed[:, goes_on], qualities[:, goes_on] = self._redistribute(
                index[goes_on], lanes[goes_on], reward[:, goes_on], quality
            )
        self._put(slots, index, reward, redistributed, qualities)

    def _heed_gaps(self, lanes: np.ndarray, numbers: np.ndarray) -> None:
        """Let the running episodes of lanes of which a segment is missing keep their original rewards."""
        has_gap = numbers != self._next_numbers[lanes]
        self._next_numbers[lanes] = numbers + 1
        if has_gap.any():
            self._account.close(torch.from_numpy(lanes[has_gap]))

    def _as_learned(self, reward: Tensor) -> Tensor:
        """Rewards as they are learned from."""
        scaled = reward * self._scale
        return scaled if self._clip is None else scaled.clamp(-self._clip, self._clip)

    def _of(self, name: str, slots: Tensor) -> Tensor:
        """A column's steps, ``[T, K, ...]``."""
        return self._columns[name][slots].transpose(0, 1)

    def _redistribute(self, slots: Tensor, lanes: Tensor, reward: Tensor, quality: float) -> tuple[Tensor, Tensor]:
        """Redistributed rewards and their quality, ``[T, K]``."""
        first, valid, terminated = (self._of(name, slots) for name in ("first", "valid", "terminated"))
        first = first & valid  # rows of no step hold what their last use has left there
        obs = self._obs[slots].transpose(0, 1)
        inputs = self._predictor.inputs(obs, self._before[lanes], first, self._of("action", slots))
        contribution, self._predicted[lanes], self._memory[lanes] = contributions(
            self._predictor, inputs, first, valid, self._memory[lanes], self._predicted[lanes], self._points,
        )  # fmt: skip
        redistributed, of_step, account = redistribute(
            contribution, reward, first, terminated, valid, self._account.of(lanes), quality
        )
        self._account.put(lanes, account)
        if valid.all():
            self._before[lanes] = obs[-1]
        else:
            last_step = (valid * torch.arange(1, len(valid) + 1).unsqueeze(1)).argmax(0)
            has_steps = valid.any(0).nonzero()[:, 0]  # a lane that only waits for its turn has none
            self._before[lanes[has_steps]] = obs[last_step[has_steps], has_steps]
        return redistributed, of_step

    def _put(
        self, numbers: np.ndarray, slots: Tensor, reward: Tensor, redistributed: Tensor, qualities: Tensor
    ) -> None:
        """Write what was found, ``[T, K]``, into the slots."""
        counts = (qualities > 0).sum(0)
        self._arena.slot_redistributed[numbers] = counts.numpy()
        if self._beside:
            if counts.any():
                goes_on = ~(self._of("terminated", slots) | self._of("truncated", slots))
                redistributed = trace(redistributed, goes_on, self._trace)
            for column, found in zip(self._beside, (redistributed, qualities), strict=True):
                column[slots] = found.T
            redistributed = reward
        self._columns["reward"][slots] = redistributed.T


def each_lane_once(lanes: np.ndarray) -> Iterator[np.ndarray]:
    """Split segments of lanes into as few groups as it takes for each to hold no lane twice: int64 each, in order."""
    turns: list[list[int]] = []
    seen: Counter[int] = Counter()
    for number, lane in enumerate(lanes.tolist()):
        if seen[lane] == len(turns):
            turns.append([])
        turns[seen[lane]].append(number)
        seen[lane] += 1
    yield from map(np.array, turns)
