"""Fresh segments: lanes feed each full slot to the redistributor, and redistribute its rewards in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.losses import normalize_advantage
from penstock.algorithms.bases.algorithm import Algorithm
from penstock.algorithms.bases.segment import SegmentAlgorithm
from penstock.config import Config
from penstock.engine.acting.weights import MakeWeights, SharedWeights
from penstock.engine.contracts import ExperienceWriter, LearnerState
from penstock.engine.messages import Tell
from penstock.engine.nodes.transport import SegmentTransport
from penstock.engine.paths.segment_learner import SegmentLearner
from penstock.engine.paths.segments import SegmentPath
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import Batch
from penstock.experience.layout import PathMemory
from penstock.experience.segments import SegmentWriter
from penstock.rudder.arithmetic import COLUMNS, Account, mixed_advantage, redistribute, trace
from penstock.rudder.feed import Feed, feed_segments
from penstock.rudder.predictor import (
    PREDICTOR,
    TOLD,
    build_predictor,
    contributions,
    predictor_block,
    predictor_metrics,
)
from penstock.rudder.redistributor import RedistributorRole
from penstock.rudder.settings import ROLE

if TYPE_CHECKING:
    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory



@dataclass(frozen=True)
class RedistributedPath(SegmentPath):
    """Segments that are fed to the role that predicts returns, and handed over with redistributed rewards."""

    algorithm: SegmentAlgorithm
    feed: Feed
    saved_at: Path | None = None
    """Directory in which the redistributor saves itself beside the checkpoints; None: nowhere."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, Any]:
        """Return those of segments, and memory for the predictor and for redistributed rewards beside original ones."""
        columns = COLUMNS if algorithm.config.mixes_advantages else ()
        return super().numbers(algorithm, model) | {"path_memory": PathMemory(predictor_block(algorithm), columns)}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the feed.

        Raises
        ------
        MemoryError
            It does not fit in memory; the message shows the arithmetic.
        """
        return cls(algorithm, Feed.make(arena.shape)), None

    def kept_in(self, run: RunDirectory, config: Config) -> RedistributedPath:
        """The redistributor is saved beside the checkpoints."""
        return replace(self, saved_at=run.path / ROLE)

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """The redistributor."""
        return (RedistributorRole(algorithm, self.feed, self.saved_at, policy),)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Fill slots, feed what they are filled with, and redistribute its rewards."""
        redistribution = self.redistribution(arena, range(first_lane, first_lane + lanes.num_lanes))

        def redistribute(slots: np.ndarray) -> None:
            clock.switch("redistribute")
            redistribution(slots)
            clock.switch("write")

        is_serial = self.algorithm.config.backend == "serial"
        return FeedingSegmentWriter(arena, worker, lanes, first_lane, self.feed, redistribute, gives_turn=is_serial)

    def redistribution(self, arena: ExperienceArena, lanes: range) -> Callable[[np.ndarray], None]:
        """Make the redistribution of the lanes' segments. Loads torch even where a policy worker infers."""
        return SegmentRedistribution(self.algorithm, arena, lanes)

    @classmethod
    def learner_class(cls) -> type[SegmentLearner]:
        """Learner class that also reports the quality of predicted returns."""
        return RedistributedLearner

    @property
    def saving_apart(self) -> int:
        """The redistributor, where it is saved."""
        return int(self.saved_at is not None)


class FeedingSegmentWriter(SegmentWriter):
    """Segments that are fed, besides, to a role that learns from them in its own time, and are changed then.

    Nobody waits for that role, but in a serial run: there it has its turn before slots are handed over.

    Parameters
    ----------
    arena, worker, lanes, first_lane
        As for `SegmentWriter`.
    feed
        Where they go.
    redistribute
        Called with the slots when they are full and fed: changes the rewards in them.
    gives_turn
        Whether full slots are kept until that role has published anew, as in a serial run, where all have their turn.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, feed: Feed,
        redistribute: Callable[[np.ndarray], None], *, gives_turn: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(arena, worker, lanes, first_lane)
        self._feed = feed
        self._feed_writer = feed.buffer.writer(lanes.num_lanes)
        self._redistribute = redistribute
        self._gives_turn = gives_turn
        self._fed_at: int | None = None  # version of the predictor when the full slots were fed; None: none are kept

    def open(self) -> bool:
        """Begin new segments as `SegmentWriter` does.

        Full ones that are kept are handed over before, if it is time. Then the learner has its turn first: False.
        """
        if self._fed_at is None:
            return super().open()
        if self.arena.blocks[PREDICTOR].version != self._fed_at:
            self._hand_over()
        return False

    def _deliver(self) -> None:
        feed_segments(self.arena, self._feed, self._feed_writer, self.slots)
        if self._gives_turn:
            self._fed_at = self.arena.blocks[PREDICTOR].version
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        self._fed_at = None
        self._redistribute(self.slots)
        super()._deliver()


READ = ("action", "reward", "first", "terminated", "truncated", "valid")


class SegmentRedistribution:
    """Redistributes the rewards of some lanes' segments, whatever parts of episodes they hold.

    A step's contribution depends on what came before it alone. So nothing waits for the end of an episode: kept of each
    lane are the predictor's memory, its last prediction, the last observation, and what of the running episode was
    earned and handed out. Segments of a lane are numbered. Where one is missing, as one that a fence has begun anew,
    the episode keeps its original rewards from there to its end.

    Rewards lie in their slots as they are learned from: scaled, clipped and redistributed. Where values learn from
    original ones, redistributed rewards lie beside them (`COLUMNS`).

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
        self._weights = SharedWeights(self._predictor, arena.blocks[PREDICTOR])
        self._first_lane = lanes.start
        self._next_numbers = np.full(len(lanes), -1, np.int64)
        self._account = Account.empty(len(lanes))
        self._memory = self._predictor.initial_memory(len(lanes))
        self._predicted = torch.zeros(len(lanes))

        def steps_of(column: np.ndarray) -> Tensor:
            """``[num_slots, T, ...]``, where they lie."""
            return torch.from_numpy(column).unflatten(0, (-1, shape.rows_per_slot))[:, :-1]

        self._obs = steps_of(shape.observation.newest_of(arena.columns["obs"]))
        self._columns = {name: steps_of(arena.columns[name]) for name in READ}
        self._beside = [steps_of(arena.columns[column.name]) for column in shape.path_memory.columns]
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
    """Split segments of lanes into as few groups as it takes for each to hold no lane twice: int64 each, in order."""
    turns: list[list[int]] = []
    seen: Counter[int] = Counter()
    for number, lane in enumerate(lanes.tolist()):
        if seen[lane] == len(turns):
            turns.append([])
        turns[seen[lane]].append(number)
        seen[lane] += 1
    yield from map(np.array, turns)


class RedistributedLearner(SegmentLearner):
    """Shows how well returns are predicted, too; parameters are those of `SegmentLearner`."""

    rewards_are_as_learned: ClassVar[bool] = True

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
        self._predictor = build_predictor(algorithm)
        self._predictor_weights = SharedWeights(self._predictor, arena.blocks[PREDICTOR])
        self._redistributed = 0  # steps of the last batch

    def _read(self, slots: np.ndarray) -> tuple[Batch, Tensor]:
        self._redistributed = int(self._arena.slot_altered[slots].sum())
        return super()._read(slots)

    def experience(self) -> dict[str, float]:
        """Besides, how well returns are predicted, and what that has changed."""
        self._predictor_weights.refresh()
        return super().experience() | predictor_metrics(self._predictor, self._redistributed / max(1, len(self._lag)))


class RedistributedSegmentTransport(SegmentTransport):
    """Transport of segments whose rewards home redistributes."""

    def to_node(self) -> Self:
        """Fill slots on the node."""
        return replace(self, path=SegmentPath())

    def on_arrival(self, arena: ExperienceArena) -> Callable[[np.ndarray], None]:
        """Feed the redistributor, and redistribute; slots that arrive together may hold several segments of a lane."""
        feed, writer = self.path.feed, self.path.feed.buffer.writer()
        redistribute = self.path.redistribution(arena, range(arena.shape.num_lanes))

        def take(slots: np.ndarray) -> None:
            slots = slots[arena.slot_number[slots].argsort(kind="stable")]
            feed_segments(arena, feed, writer, slots)
            for turn in each_lane_once(arena.lane_of(slots)):
                redistribute(slots[turn])

        return take


class MixedAdvantages:
    """Change of targets: advantages mixed with redistributed rewards, where values are learned from original ones.

    Parameters
    ----------
    config
        Settings, of which ``redistribution_share`` counts.
    """

    def __init__(self, config: Any) -> None:
        self._share = config.redistribution_share

    def __call__(self, batch: Batch, targets: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return targets with mixed advantages, where the batch has redistributed rewards."""
        if not batch.altered:
            return targets
        advantage = normalize_advantage(targets["advantage"], batch.learn)
        reward, quality = (batch.altered[column.name] for column in COLUMNS)
        return {**targets, "advantage": mixed_advantage(advantage, reward, quality, self._share)}
