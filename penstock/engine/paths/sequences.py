"""Replayed sequences, for networks with memory: the rows of the replay buffer are successive steps of an episode."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import Rehearsal
from penstock.engine.paths.replay import ReplayPath, make_replay
from penstock.experience.outbox import Inbox
from penstock.experience.sequences import SequenceWriter, give_priorities, sequence_fields
from penstock.replay import Field, ReplayBuffer, Sequences

if TYPE_CHECKING:
    from penstock.algorithms.bases.recurrent_q import RecurrentQLearning
    from penstock.engine.acting.weights import MakeWeights
    from penstock.engine.contracts import LearnerState, Start
    from penstock.engine.messages import Tell
    from penstock.engine.roles.learner import Learner
    from penstock.engine.watching.clock import Clock
    from penstock.envs.lanes import Lanes
    from penstock.experience.arena import ExperienceArena
    from penstock.experience.layout import RunShape


@dataclass(frozen=True)
class SequencePath(ReplayPath):
    """Sequences in a replay buffer; the rate limiter counts steps, as it does for transitions."""

    burn_in: int
    gamma: float

    @classmethod
    def rehearsal(cls, arena: ExperienceArena, algorithm: Any) -> Rehearsal:
        """One update."""
        from penstock.engine.paths.rehearsals import ReplayRehearsal, sequences_in

        return ReplayRehearsal(arena, algorithm, sequences_in)

    @classmethod
    def open(cls, algorithm: Any, shape: RunShape, start: Start, saved: Path | None) -> tuple[Self, str | None]:
        """Make the replay buffer, or go on with what is saved of it.

        Raises
        ------
        MemoryError
            The buffer does not fit in memory; the message shows the arithmetic.
        """
        replay, note = make_replay(algorithm, start, saved, sequence_buffer(algorithm))
        return cls(replay, algorithm.config.burn_in, algorithm.config.gamma), note

    def writer(
        self, arena: ExperienceArena, worker: int, lanes: Lanes, first_lane: int, actor: Any, clock: Clock
    ) -> ExperienceWriter:
        """Add steps to the buffer, which makes sequences of them."""
        return SequenceWriter(arena, worker, lanes, first_lane, self.replay, self.burn_in, self.gamma)

    @property
    def calls_of_step(self) -> int:
        """A step may be an episode's first, with its padding, and its last, with the final row."""
        return self.burn_in + 2

    def fields_of_step(self, shape: RunShape) -> dict[str, Field]:
        """Fields written per step; the signals of transitions are no fields."""
        with_values = self.replay.first_priorities is not None
        return sequence_fields(shape.observation, shape.action, shape.state_size, with_values=with_values)

    def inbox(self, arena: ExperienceArena) -> Inbox:
        """Make what writes another node's steps at home."""
        return Inbox(self.replay, give_priorities)

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
        from penstock.engine.paths.replay_learner import ReplayLearner
        from penstock.experience.sequence_batch import SequenceReader

        return ReplayLearner(algorithm, arena, state, learning, report, self.replay, weights, SequenceReader)


def sequence_buffer(algorithm: RecurrentQLearning) -> ReplayBuffer:
    """Make the replay buffer of an algorithm over sequences.

    A sequence holds one row more than it has steps: the last step's successor. Successive ones of an episode begin
    ``sequence_period`` steps apart, so the buffer has as many of them as ``buffer_size`` steps come to.

    Raises
    ------
    MemoryError
        The buffer does not fit in memory; the message shows the arithmetic.
    """
    config = algorithm.config
    return ReplayBuffer(
        -(-config.buffer_size // config.sequence_period),
        sequence_fields(
            algorithm.observation, algorithm.action, algorithm.state_size,
            with_values=algorithm.first_priorities() is not None,
        ),
        sampler=algorithm.sampler(),
        sequences=Sequences(config.burn_in + config.sequence_length + 1, config.sequence_period),
        seed=config.seed,
    )  # fmt: skip
