"""Redistribution of rewards, in full slots and in whole episodes, and the learners that report it. Loads torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import normalize_advantage
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.engine.paths.replay_learner import ReplayLearner, TransitionReader
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch
from penstock.rudder.arithmetic import Account, as_learned, mixed_advantage, redistribute, trace
from penstock.rudder.feed import COLUMNS, REDISTRIBUTED, UNTRUSTED
from penstock.rudder.learning import Episode, LessonBatch, contributions_in
from penstock.rudder.predictor import PublishedPredictor, contributions

READ = ("action", "reward", "first", "terminated", "truncated", "valid")


class SegmentRedistribution:
    """Redistribution of the rewards of some lanes' segments, which may hold any parts of episodes.

    The contribution of a step depends only on earlier steps, so no segment waits for the end of an episode. The state
    of a lane is the predictor's memory, the last prediction and observation, and the sums of the running episode.
    Segments of a lane are numbered. After a missing one, such as a segment restarted by a fence, an episode keeps its
    original rewards.

    Rewards are scaled, clipped and redistributed in their slots. If values learn from original rewards, redistributed
    ones are written to columns of their own (`COLUMNS`).

    Parameters
    ----------
    algorithm, arena
        Algorithm and arena of the policy.
    lanes
        Range of the lanes' numbers in the arena.
    """

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena, lanes: range) -> None:
        config: Any = algorithm.config
        shape = arena.shape
        self._arena = arena
        self._scale, self._clip = config.reward_scale, config.reward_clip
        self._trace = config.redistribution_trace
        self._points = config.points_of_attribution
        self._published = PublishedPredictor(algorithm, arena)
        self._predictor = self._published.network
        self._first_lane = lanes.start
        self._next_numbers = np.full(len(lanes), -1, np.int64)
        self._account = Account.empty(len(lanes))
        self._memory = self._predictor.initial_memory(len(lanes))
        self._predicted = torch.zeros(len(lanes))

        def steps_of(column: np.ndarray) -> Tensor:
            """Return a view of a column's steps, ``[num_slots, T, ...]``."""
            return torch.from_numpy(column).unflatten(0, (-1, shape.rows_per_slot))[:, :-1]

        self._obs = steps_of(shape.observation.newest_of(arena.columns["obs"]))
        self._columns = {name: steps_of(arena.columns[name]) for name in READ}
        self._beside = [steps_of(arena.columns[column.name]) for column in shape.path_memory.columns]
        self._before = torch.zeros(len(lanes), *self._obs.shape[2:], dtype=self._obs.dtype)

    @torch.no_grad()
    def __call__(self, slots: np.ndarray) -> None:
        """Redistribute the rewards in full slots (int64 ``[K]``) of different lanes with the newest predictor."""
        quality = self._published.refresh()
        numbers = self._arena.lane_of(slots) - self._first_lane
        self._close_after_gaps(numbers, self._arena.slot_number[slots])
        index, lanes = torch.from_numpy(slots), torch.from_numpy(numbers)
        reward = as_learned(self._of("reward", index), self._scale, self._clip)
        redistributed, qualities = reward, torch.zeros_like(reward)
        goes_on = self._account.quality[lanes] > 0  # while the quality is 0, only these are redistributed
        if quality > 0.0 or goes_on.all():
            redistributed, qualities = self._redistribute(index, lanes, reward, quality)
        elif goes_on.any():
            redistributed = reward.clone()
            redistributed[:, goes_on], qualities[:, goes_on] = self._redistribute(
                index[goes_on], lanes[goes_on], reward[:, goes_on], quality
            )
        self._put(slots, index, reward, redistributed, qualities)

    def _close_after_gaps(self, lanes: np.ndarray, numbers: np.ndarray) -> None:
        """Keep the original rewards of running episodes that miss a segment."""
        has_gap = numbers != self._next_numbers[lanes]
        self._next_numbers[lanes] = numbers + 1
        if has_gap.any():
            self._account.close(torch.from_numpy(lanes[has_gap]))

    def _of(self, name: str, slots: Tensor) -> Tensor:
        """Return a column's steps, ``[T, K, ...]``."""
        return self._columns[name][slots].transpose(0, 1)

    def _redistribute(self, slots: Tensor, lanes: Tensor, reward: Tensor, quality: float) -> tuple[Tensor, Tensor]:
        """Return redistributed rewards and their quality, ``[T, K]``."""
        first, valid, terminated = (self._of(name, slots) for name in ("first", "valid", "terminated"))
        first = first & valid  # rows without a step hold leftovers of their last use
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
            has_steps = valid.any(0).nonzero()[:, 0]  # a lane whose agent had no turn has none
            self._before[lanes[has_steps]] = obs[last_step[has_steps], has_steps]
        return redistributed, of_step

    def _put(
        self, numbers: np.ndarray, slots: Tensor, reward: Tensor, redistributed: Tensor, qualities: Tensor
    ) -> None:
        """Write rewards and qualities, ``[T, K]``, to the slots."""
        counts = (qualities > 0).sum(0)
        self._arena.slot_altered[numbers] = counts.numpy()
        if self._beside:
            if counts.any():
                goes_on = ~(self._of("terminated", slots) | self._of("truncated", slots))
                redistributed = trace(redistributed, goes_on, self._trace)
            for column, found in zip(self._beside, (redistributed, qualities), strict=True):
                column[slots] = found.T
            redistributed = reward
        self._columns["reward"][slots] = redistributed.T


def each_lane_once(lanes: np.ndarray) -> Iterator[np.ndarray]:
    """Yield groups of segments (indices, int64), as few as possible without a lane twice in one, in lane order."""
    turns: list[list[int]] = []
    seen: Counter[int] = Counter()
    for number, lane in enumerate(lanes.tolist()):
        if seen[lane] == len(turns):
            turns.append([])
        turns[seen[lane]].append(number)
        seen[lane] += 1
    yield from map(np.array, turns)


class RedistributedLearner(SegmentLearner):
    """Learner from redistributed segments that reports their quality; parameters are those of `SegmentLearner`."""

    rewards_are_as_learned: ClassVar[bool] = True

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._predictor = PublishedPredictor(self._algorithm, self._arena)
        self._redistributed = 0  # steps of the last batch

    def _read(self, slots: np.ndarray, late: np.ndarray | None = None) -> tuple[Batch, Tensor]:
        self._redistributed = int(self._arena.slot_altered[slots if late is None else slots[~late]].sum())
        return super()._read(slots, late)

    def experience(self) -> dict[str, float]:
        """As in the base class, with metrics of the predictor."""
        self._predictor.refresh()
        return super().experience() | self._predictor.metrics(self._redistributed / max(1, len(self._lag)))


class MixedAdvantages:
    """Change of targets: advantages mixed with redistributed rewards, while values are learned from original ones.

    Parameters
    ----------
    config
        Settings with ``redistribution_share``.
    """

    def __init__(self, config: Any) -> None:
        self._share = config.redistribution_share

    def __call__(self, batch: Batch, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return targets with mixed advantages, if the batch has redistributed rewards."""
        if not batch.altered:
            return targets
        advantage = normalize_advantage(targets["advantage"], batch.learn)
        reward, quality = (batch.altered[column.name] for column in COLUMNS)
        return {**targets, "advantage": mixed_advantage(advantage, reward, quality, self._share)}


class EpisodeRedistribution:
    """Redistribution of the rewards of whole episodes with the newest predictor."""

    def __init__(self, algorithm: Algorithm, arena: ExperienceArena) -> None:
        config: Any = algorithm.config
        self._chunk = config.redistributor_chunk
        self._points = config.points_of_attribution
        self._observation = arena.shape.observation
        self._predictor = PublishedPredictor(algorithm, arena)

    @torch.no_grad()
    def __call__(
        self, obs: np.ndarray, action: np.ndarray, reward: np.ndarray, is_terminated: bool
    ) -> np.ndarray | None:
        """Return the redistributed rewards of an episode, float32 ``[T]``; None while the quality is 0.

        Parameters
        ----------
        obs, action
            Observations and actions as in their columns, ``[T, ...]``.
        reward
            Rewards, scaled and clipped, float32 ``[T]``.
        is_terminated
            Whether the episode terminated; False: it was truncated.
        """
        quality = self._predictor.refresh()
        if quality == 0.0:
            return None
        batch = LessonBatch([Episode(self._observation.newest_of(obs), action, 0.0)])
        contribution = contributions_in(self._predictor.network, batch, self._points, self._chunk)
        terminated = torch.zeros_like(batch.valid)
        terminated[-1] = is_terminated
        own, account = torch.from_numpy(reward).unsqueeze(1), Account.empty(1)
        redistributed, _, _ = redistribute(contribution, own, batch.first, terminated, batch.valid, account, quality)
        return redistributed.squeeze(1).numpy()


class RedistributedReader(TransitionReader):
    """Reader of batches that gives original rewards weight 0 once predictions are used.

    Otherwise delayed rewards would be learned from until they are overwritten.

    Attributes
    ----------
    is_trusted
        Whether predictions are used.
    share
        Share of transitions with redistributed rewards in the last batch, 0-dimensional.
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
    """Learner from redistributed transitions that reports their quality; parameters are those of `ReplayLearner`."""

    _reader: RedistributedReader

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._predictor = PublishedPredictor(self._algorithm, self._arena)

    def poll(self) -> bool:
        """Make one update, with weights that depend on the current quality of predictions."""
        self._reader.is_trusted = self._predictor.refresh() > 0.0
        return super().poll()

    def experience(self) -> dict[str, float]:
        """As in the base class, with metrics of the predictor."""
        share = self._reader.share
        return super().experience() | self._predictor.metrics(0.0 if share is None else share.item())
