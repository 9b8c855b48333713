"""Replayed sequences, for networks with memory: rows of the replay buffer are successive steps of an episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.replay import ReplayPath, make_replay
from penstock.experience.sequences import SequenceWriter, sequence_fields
from penstock.replay import ReplayBuffer, Sequences

if TYPE_CHECKING:
    from penstock.algorithms.bases.q_learning import QLearning
    from penstock.engine.contracts import Start
    from penstock.engine.roles.learner import Learner
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork


@dataclass(frozen=True)
class SequencePath(ReplayPath):
    """Data path of sequences in a replay buffer; the rate limiter counts steps, as for transitions."""

    burn_in: int
    gamma: float

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """As `ReplayPath.create`, with a buffer of sequences."""
        replay, note = make_replay(algorithm, start, saved, sequence_buffer(algorithm))
        return cls(replay, algorithm.config.burn_in, algorithm.config.gamma), note

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        return partial(SequenceWriter, replay=self.replay, burn_in=self.burn_in, gamma=self.gamma)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.replay_learner import ReplayLearner, SequenceReader

        return partial(ReplayLearner, replay=self.replay, make_reader=SequenceReader)


def sequence_buffer(algorithm: QLearning) -> partial[ReplayBuffer]:
    """Return the constructor of the replay buffer of an algorithm that learns from sequences.

    A sequence holds one row more than it has steps: the last step's successor. Successive sequences of an episode begin
    ``sequence_period`` steps apart, so ``buffer_size`` steps need a capacity of ``buffer_size / sequence_period``.
    """
    config = algorithm.config
    return partial(
        ReplayBuffer,
        capacity=-(-config.buffer_size // config.sequence_period),
        fields=sequence_fields(
            algorithm.observation, algorithm.action, algorithm.state_size,
            with_values=algorithm.initial_priorities() is not None,
        ),
        sampler=algorithm.sampler(),
        sequences=Sequences(config.burn_in + config.sequence_length + 1, config.sequence_period),
        seed=config.seed,
    )  # fmt: skip
