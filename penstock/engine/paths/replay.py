"""Replayed transitions: lanes write into a replay buffer, and the learner draws from it again and again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, ReplayConfig
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath
from penstock.engine.paths.contents import load_contents
from penstock.experience import transitions
from penstock.experience.outbox import NodeReplay
from penstock.experience.run_replay import Replay, transition_fields
from penstock.replay import Field, NStep, RateLimiter, ReplayBuffer

if TYPE_CHECKING:
    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState, Start
    from penstock.engine.messages import Tell
    from penstock.engine.paths.replay_learner import ReplayLearner
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory

ROUNDING = 1e-9  # a band of exactly so many samples would, rounded, be one insert too narrow


@dataclass(frozen=True)
class ReplayPath(DataPath):
    """Transitions in a replay buffer, and the rate limiter that keeps learning in step with them."""

    replay: Replay

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """Each lane has two rows: what it shows now, and what it showed before."""
        return {"segment_length": 1, "slots_per_lane": 1, "segments_per_batch": 1}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the replay buffer, or go on with what is saved of it.

        Raises
        ------
        MemoryError
            The buffer does not fit in memory; the message shows the arithmetic.
        """
        replay, note = make_replay(algorithm, start, saved)
        return cls(replay), note

    def kept_in(self, run: RunDirectory, config: Config) -> Self:
        """With ``save_replay`` the buffer is saved beside the checkpoints."""
        assert isinstance(config, ReplayConfig)
        return replace(self, replay=replace(self.replay, saved_at=run.replay_path)) if config.save_replay else self

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Add transitions to the buffer."""
        return transitions.TransitionWriter(arena, worker, lanes, first_lane, self.replay)

    def learner(
        self,
        arena: ExperienceArena,
        algorithm: Any,
        state: LearnerState,
        learning: dict[str, Any] | None,
        report: Tell,
        weights: MakeWeights,
    ) -> Learner:
        """Draw batches from the buffer."""
        return self.learner_class()(algorithm, arena, state, learning, report, self.replay, weights)

    @classmethod
    def learner_class(cls) -> type[ReplayLearner]:
        """Learner class."""
        from penstock.engine.paths.replay_learner import ReplayLearner

        return ReplayLearner

    def steps_taken(self, learned: int, asked: int) -> int:
        """Those in the buffer; the steps that are asked for have been let in already. On a node: those learned from."""
        if isinstance(self.replay, NodeReplay):
            return learned
        return max(0, self.replay.steps_taken - asked)

    @property
    def saving_apart(self) -> int:
        """The learner, where the buffer is saved."""
        return int(self.replay.saved_at is not None)


def make_replay(
    algorithm: ReplayAlgorithm, start: Start, saved: Path | None, buffer: ReplayBuffer | None = None
) -> tuple[Replay, str | None]:
    """Make the replay of a run, or go on with what is saved of it.

    Parameters
    ----------
    algorithm
        Says what is stored, and how it is drawn.
    start
        Where the run starts.
    saved
        Directory of the buffer's contents, if they may have been saved.
    buffer
        An empty one; None: of transitions.

    Returns
    -------
    replay : Replay
    note : str or None
        What the user is to be told: the buffer has to be filled again.

    Raises
    ------
    MemoryError
        The buffer does not fit in memory; the message shows the arithmetic.
    """
    config, state = algorithm.config, (start.learning or {}).get("replay")
    first_priorities = algorithm.first_priorities()
    if buffer is None:
        buffer = transition_buffer(algorithm)
    limiter = RateLimiter(
        samples_per_insert=config.updates_per_step * config.batch_size,
        min_size=config.min_steps,
        tolerance=config.slack * config.batch_size * (1.0 + ROUNDING),
    )
    replay = Replay(
        buffer, limiter, config.batch_size, config.updates_per_step,
        reward_scale=config.reward_scale, reward_clip=config.reward_clip, first_priorities=first_priorities,
    )  # fmt: skip
    if state is None:
        return replay, None
    why = "its contents were not saved (save_replay=False)"
    if config.save_replay and saved is not None:
        why = f"there is none in {saved}"
    if config.save_replay and saved is not None and saved.exists():
        why = load_contents(buffer, saved)
        if len(buffer):
            return replay.going_on(state, start.state.steps), None
        why = why or f"what was saved in {saved} holds nothing"
    note = (
        f"the replay buffer is empty: {why}. {config.min_steps:,} steps are played before learning goes on, "
        f"{min(config.min_steps, start.state.steps):,} of them uncounted"
    )
    return replay.refilled(start.state.steps), note


def transition_buffer(algorithm: ReplayAlgorithm, **fields: Field) -> ReplayBuffer:
    """Make an empty replay buffer of an algorithm's transitions; `fields` are stored beside, or in place of others.

    Raises
    ------
    MemoryError
        The buffer does not fit in memory; the message shows the arithmetic.
    """
    config, with_values = algorithm.config, algorithm.first_priorities() is not None
    return ReplayBuffer(
        config.buffer_size,
        transition_fields(algorithm.observation, algorithm.action, with_values=with_values) | fields,
        sampler=algorithm.sampler(),
        n_step=NStep(config.n_step, config.gamma),
        seed=config.seed,
    )
