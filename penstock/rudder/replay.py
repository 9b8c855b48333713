"""Replayed transitions: lanes write an episode when it is over, with redistributed rewards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, ConfigError
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.nodes.transport import StepTransport
from penstock.engine.paths.replay import ReplayPath, make_replay, transition_buffer
from penstock.envs.lanes import Lanes
from penstock.experience.arena import ExperienceArena
from penstock.experience.layout import PathMemory, RunShape
from penstock.experience.outbox import Inbox, NodeReplay, Rows
from penstock.experience.run_replay import Replay, TransitionWriter
from penstock.replay import Field
from penstock.rudder.feed import Feed, Hold, RedistributedEpisodes
from penstock.rudder.settings import ROLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory

PIECE = 128  # steps of an episode that are fed at once, at most


@dataclass(frozen=True)
class RedistributedReplayPath(ReplayPath):
    """Transitions in a replay buffer, written with redistributed rewards; steps are fed to who predicts returns."""

    algorithm: ReplayAlgorithm
    feed: Feed
    predictor_saved_at: Path | None = None
    """Directory in which the redistributor saves itself beside the checkpoints; None: nowhere."""

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, Any]:
        """Return those of transitions, and memory for the predictor.

        Raises
        ------
        ConfigError
            The algorithm gives first priorities.
        """
        from penstock.rudder.predictor import predictor_block

        if algorithm.first_priorities() is not None:
            raise ConfigError(
                f"rewards='rudder' is not possible here: {algorithm.name()} finds first priorities when a step is "
                "taken, and redistributed rewards are known when its episode is over; use rewards='environment'"
            )
        return super().numbers(algorithm, model) | {"path_memory": PathMemory(predictor_block(algorithm))}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the replay buffer, or go on with what is saved of it, and the feed.

        Raises
        ------
        MemoryError
            One of them does not fit in memory; the message shows the arithmetic.
        """
        replay, note = make_replay(algorithm, start, saved, transition_buffer(algorithm, kind=Field((), "int8")))
        return cls(replay, algorithm, Feed.make(arena.shape, PIECE)), note

    def kept_in(self, run: RunDirectory, config: Config) -> Self:
        """The redistributor is saved beside the checkpoints, and with ``save_replay`` the buffer, too."""
        return replace(super().kept_in(run, config), predictor_saved_at=run.path / ROLE)

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """The redistributor."""
        from penstock.rudder.redistributor import RedistributorRole

        return (RedistributorRole(algorithm, self.feed, self.predictor_saved_at, policy),)

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Hold each episode until it is over; on a node write each step, and let home hold it."""
        if isinstance(self.replay, NodeReplay):
            return NumberedWriter(arena, worker, lanes, first_lane, self.replay)
        return RedistributedWriter(arena, worker, lanes, first_lane, self.replay, self.hold(arena))

    def hold(self, arena: ExperienceArena) -> Hold:
        """Constructor of the holder of episodes. Loads torch for redistribution even where a policy worker infers."""
        from penstock.rudder.redistribution import EpisodeRedistribution

        return partial(
            RedistributedEpisodes, self.replay, feed=self.feed, bell=arena.bells[ROLE],
            redistribute=EpisodeRedistribution(self.algorithm, arena),
            max_steps=self.algorithm.config.redistributor_max_steps,
        )  # fmt: skip

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.rudder.redistribution import RedistributedReader, RedistributedReplayLearner

        return partial(RedistributedReplayLearner, replay=self.replay, make_reader=RedistributedReader)

    @property
    def saving_apart(self) -> int:
        """The redistributor, where it is saved, and the learner, where the buffer is."""
        return super().saving_apart + (self.predictor_saved_at is not None)


class RewardsAsTheyAreWriter(TransitionWriter):
    """Hands each transition on with its reward as the environment gave it: who holds the episode makes it another."""

    def _store_reward(self) -> None:
        self._step["reward"][...] = self.lanes.reward


class RedistributedWriter(RewardsAsTheyAreWriter):
    """Writes an episode's transitions when the episode is over.

    What is held when learning could begin and nothing is written yet is written with its own rewards.

    Parameters
    ----------
    arena, worker, lanes, first_lane, replay
        As for `StepWriter`.
    hold
        Makes what holds the lanes' episodes.
    """

    def __init__(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay, hold: Hold
    ) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._writer = hold(self.lane_numbers, self._step)

    def _admit(self, num_steps: int) -> bool:
        """Whether the rate limiter has room; where learning waits for a first row, what is held is written for it."""
        if self._replay.limiter.try_insert(num_steps):
            return True
        if not len(self._replay.buffer):
            self._writer.write_held()
        return not len(self._replay.buffer)


class NumberedWriter(RewardsAsTheyAreWriter):
    """Writes each transition on a node, with its lane's number among all of the run."""

    def __init__(self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, replay: Replay) -> None:
        super().__init__(arena, worker, lanes, first_lane, replay)
        self._step["lane"] = arena.shape.first_lane + self.lane_numbers


class RedistributedInbox(Inbox):
    """Does at home with the steps of a node's lanes what `RedistributedWriter` does with those of lanes at home.

    Parameters
    ----------
    replay
        The run's.
    hold
        Makes what holds the episodes of some lanes.
    """

    _writers: dict[int, RedistributedEpisodes]

    def __init__(self, replay: Replay, hold: Hold) -> None:
        super().__init__(replay)
        self._hold = hold

    def add(self, calls: Rows) -> None:
        """Take calls, ``[K, ...]`` by field; where learning waits for a first row, write what is held for it."""
        super().add(calls)
        limiter = self._replay.limiter
        if not len(self._replay.buffer) and limiter.inserts >= limiter.min_size:
            for episodes in self._writers.values():
                episodes.write_held()

    def _writer_of(self, call: Rows) -> RedistributedEpisodes:
        return self._hold(call["lane"], call)


class RedistributedStepTransport(StepTransport):
    """Transport of steps whose episodes home holds until it redistributes their rewards."""

    def to_node(self) -> Self:
        """Write steps on the node as the environment gave them; buffer and feed stay at home."""
        nothing: Any = None
        path = replace(self.path, replay=NodeReplay.of(self.path.replay), feed=nothing, predictor_saved_at=None)
        return replace(self, path=path)

    def fields(self, shape: RunShape) -> dict[str, Field]:
        """Return the fields of one step, its lane among them."""
        return super().fields(shape) | {"lane": Field((), "int64")}

    def inbox(self, arena: ExperienceArena) -> Inbox:
        """Make the inbox that holds the episodes of a node's lanes at home."""
        return RedistributedInbox(self.path.replay, self.path.hold(arena))
