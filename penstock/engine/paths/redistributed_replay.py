"""Replayed transitions whose rewards are redistributed: rollout workers write an episode when it is over."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, ConfigError
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.redistributed import predictor_numbers
from penstock.engine.paths.replay import ReplayPath, make_replay, transition_buffer
from penstock.experience.feed import Feed
from penstock.experience.outbox import NodeReplay
from penstock.experience.redistributed import (
    Hold,
    NumberedWriter,
    RedistributedEpisodes,
    RedistributedWriter,
)
from penstock.replay import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.engine.contracts import RoleSpec, Start
    from penstock.engine.paths.replay_learner import ReplayLearner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
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
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """As for transitions, and the size of the predictor.

        Raises
        ------
        ConfigError
            The algorithm gives first priorities.
        """
        if algorithm.first_priorities() is not None:
            raise ConfigError(
                f"rewards='rudder' is not possible here: {algorithm.name()} finds first priorities when a step is "
                "taken, and redistributed rewards are known when its episode is over; use rewards='environment'"
            )
        return super().numbers(algorithm, model) | predictor_numbers(algorithm)

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
        return replace(super().kept_in(run, config), predictor_saved_at=run.redistributor_path)

    def roles(self, algorithm: Any, policy: int) -> Sequence[RoleSpec]:
        """The redistributor."""
        from penstock.engine.roles.specs import RedistributorRole

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
        from penstock.engine.paths.redistributed_replay_learner import EpisodeRedistribution

        return partial(
            RedistributedEpisodes, self.replay, feed=self.feed, bell=arena.redistributor_bell,
            redistribute=EpisodeRedistribution(self.algorithm, arena),
            max_steps=self.algorithm.config.redistributor_max_steps,
        )  # fmt: skip

    @classmethod
    def learner_class(cls) -> type[ReplayLearner]:
        """Learner class that also reports the quality of predicted returns."""
        from penstock.engine.paths.redistributed_replay_learner import RedistributedReplayLearner

        return RedistributedReplayLearner

    @property
    def saving_apart(self) -> int:
        """The redistributor, where it is saved, and the learner, where the buffer is."""
        return super().saving_apart + (self.predictor_saved_at is not None)
