"""Replayed transitions: lanes write into a replay buffer, and the learner draws batches from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.config import Config, ReplayConfig
from penstock.engine.contracts import ExperienceWriter
from penstock.engine.paths.base import DataPath
from penstock.experience.run_replay import Replay, TransitionWriter, transition_fields
from penstock.experience.shards import ShardedBuffer, ShardedReplay
from penstock.replay import Field, NStep, RateLimiter, ReplayBuffer, ReplayFileError
from penstock.runs.checkpoint import unreadable

if TYPE_CHECKING:
    from penstock.algorithms.bases.replay import ReplayAlgorithm
    from penstock.engine.acting.inference import StepsTaken
    from penstock.engine.contracts import Start
    from penstock.engine.roles.learner import Learner
    from penstock.experience.arena import ExperienceArena
    from penstock.nn import PolicyNetwork
    from penstock.runs.run_directory import RunDirectory

ROUNDING = 1e-9  # relative: without it a rounded band could be one insert too narrow


@dataclass(frozen=True)
class ReplayPath(DataPath):
    """Data path of transitions in a replay buffer, with the rate limiter between steps and updates."""

    replay: Replay

    @classmethod
    def numbers(cls, algorithm: Any, model: PolicyNetwork) -> dict[str, int]:
        """Return numbers for two rows per lane: its current observation, and the previous one."""
        return {"segment_length": 1, "slots_per_lane": 1, "segments_per_batch": 1}

    @classmethod
    def create(
        cls, arena: ExperienceArena, algorithm: Any, model: PolicyNetwork, start: Start, saved: Path | None
    ) -> tuple[Self, str | None]:
        """Make the replay buffer, with its saved contents if there are any.

        Raises
        ------
        MemoryError
            The buffer does not fit in memory; the message shows the arithmetic.
        """
        replay, note = make_replay(algorithm, start, saved)
        return cls(replay), note

    def kept_in(self, run: RunDirectory, config: Config) -> Self:
        """Return this data path; with ``save_replay`` its buffer is saved beside the checkpoints."""
        assert isinstance(config, ReplayConfig)
        return replace(self, replay=replace(self.replay, saved_at=run.replay_path)) if config.save_replay else self

    def _writer_class(self) -> Callable[..., ExperienceWriter]:
        return partial(TransitionWriter, replay=self.replay)

    def _learner_class(self) -> Callable[..., Learner]:
        from penstock.engine.paths.replay_learner import ReplayLearner

        return partial(ReplayLearner, replay=self.replay)

    @property
    def steps_taken(self) -> StepsTaken:
        """Function that returns the steps taken so far; on a node, the steps learned from."""
        return self.replay.steps_of_exploration

    @property
    def saving_apart(self) -> int:
        """1, for the learner, if the buffer is saved; else 0."""
        return int(self.replay.saved_at is not None)


def make_replay(
    algorithm: ReplayAlgorithm, start: Start, saved: Path | None, make_buffer: partial[ReplayBuffer] | None = None
) -> tuple[Replay, str | None]:
    """Make the replay of a run, with its saved contents if there are any.

    Parameters
    ----------
    algorithm
        Algorithm of the policy.
    start
        Start of the run.
    saved
        Directory that may hold the buffer's contents; None: not saved.
    make_buffer
        Constructor of the empty buffer; None: a buffer of transitions.

    Returns
    -------
    replay : Replay
    note : str or None
        Text for the user, if the buffer has to be filled again.

    Raises
    ------
    MemoryError
        The buffer does not fit in memory; the message shows the arithmetic.
    """
    config, state = algorithm.config, (start.learning or {}).get("replay")
    initial_priorities = algorithm.initial_priorities()
    make_buffer = make_buffer or transition_buffer(algorithm)
    num_shards = config.num_shards
    buffer: Any = ShardedBuffer(make_buffer, num_shards) if num_shards else make_buffer()
    limiter = RateLimiter(
        samples_per_insert=config.updates_per_step * config.batch_size,
        min_size=config.min_steps,
        tolerance=config.slack * config.batch_size * (1.0 + ROUNDING),
    )
    replay = (ShardedReplay if num_shards else Replay)(
        buffer, limiter, config.batch_size, config.updates_per_step,
        reward_scale=config.reward_scale, reward_clip=config.reward_clip, initial_priorities=initial_priorities,
        return_discount=config.gamma if algorithm.scales_rewards else None,
    )  # fmt: skip
    if state is None:
        return replay, None
    why = "its contents were not saved (save_replay=False)"
    if config.save_replay and saved is not None:
        why = f"none was saved in {saved}"
    if config.save_replay and saved is not None and saved.exists():
        why = load_contents(buffer, saved)
        if len(buffer):
            return replay.going_on(state, start.state.steps), None
        why = why or f"the one saved in {saved} is empty"
    note = (
        f"the replay buffer is empty: {why}. {config.min_steps:,} steps are played before learning continues, "
        f"{min(config.min_steps, start.state.steps):,} of them uncounted"
    )
    return replay.refilled(start.state.steps), note


def transition_buffer(algorithm: ReplayAlgorithm, **fields: Field) -> partial[ReplayBuffer]:
    """Return the constructor of an algorithm's buffer of transitions; `fields` are added or replace others."""
    config, with_values = algorithm.config, algorithm.initial_priorities() is not None
    return partial(
        ReplayBuffer,
        capacity=config.buffer_size,
        fields=transition_fields(
            algorithm.observation, algorithm.action, with_values=with_values, with_returns=algorithm.scales_rewards
        )
        | fields,
        sampler=algorithm.sampler(),
        n_step=NStep(config.n_step, config.gamma),
        seed=config.seed,
    )


def load_contents(buffer: ReplayBuffer, directory: Path) -> str:
    """Load the saved contents of a buffer; return "", or the reason why there are none.

    Raises
    ------
    UnreadableCheckpointError
        The operating system refuses to read them. An empty buffer would replace the contents at the next save.
    """
    try:
        buffer.load(directory)
    except ReplayFileError as error:
        return str(error)
    except (FileNotFoundError, NotADirectoryError) as error:
        return f"{error.filename} does not exist"
    except OSError as error:
        raise unreadable(directory, error) from error
    return ""
