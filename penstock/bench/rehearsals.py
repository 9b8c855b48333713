"""Rehearsals: a run's learning alone, repeated to measure its cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.bases.segment import SegmentAlgorithm, SegmentUpdater
from penstock.engine.paths.segment_learner import BatchReader
from penstock.engine.roles.specs import begin_on
from penstock.experience.arena import ExperienceArena
from penstock.experience.batch import SequenceBatch, TransitionBatch
from penstock.experience.segment_store import segments_in
from penstock.nn import flatten_

A = TypeVar("A", bound=Algorithm)

HALF_WAY = 0.5  # progress at which schedules are evaluated


class SegmentRehearsal:
    """Makes all updates of a batch of segments, with step size 0, so that it can be repeated.

    In a mixed batch, replayed segments are copies of fresh ones. If a batch is used several times, so is each step.
    """

    def __init__(self, arena: ExperienceArena, algorithm: SegmentAlgorithm, num_segments: int, uses: int = 1) -> None:
        config = algorithm.config
        device = torch.device(config.device)
        model, _ = model_on(device, algorithm)
        self._updater = SegmentUpdater(at_rate_0(algorithm), model)
        num_fresh = min(num_segments, arena.shape.segments_per_batch)
        self._reader = BatchReader(
            arena, num_segments, device,
            reward_scale=config.reward_scale, reward_clip=config.reward_clip, max_policy_lag=None,
            burn_in=config.burn_in, num_replayed=num_segments - num_fresh,
        )  # fmt: skip
        others = np.arange(num_fresh, num_segments) % arena.shape.num_slots
        copies = [segments_in(arena, others)] if len(others) else []
        self._batch, _ = self._reader.read(np.arange(num_fresh), 0, HALF_WAY, copies)
        self._steps = self._batch.learn[:, :num_fresh].sum().item() / uses

    def do(self) -> float:
        """Learn once; return the number of the run's steps that it covers."""
        batch = dataclasses.replace(self._batch, targets={})
        self._updater.learn(batch)
        wait_for(batch.reward.device)
        return self._steps

    def close(self) -> None:
        """Release the arena."""
        self._reader.close()


class ReplayRehearsal:
    """Makes an update of a batch from replay, with step sizes 0, so that it can be repeated.

    Parameters
    ----------
    arena, algorithm
        As for every rehearsal.
    batch_in
        Makes the batch from an arena.
    """

    def __init__(
        self, arena: ExperienceArena, algorithm: ReplayAlgorithm,
        batch_in: Callable[[ExperienceArena, Any, torch.device], Any],
    ) -> None:  # fmt: skip
        self._algorithm, self._config = algorithm, algorithm.config
        device = torch.device(self._config.device)
        self._model, self._autocast = model_on(device, algorithm)
        at_rate_0(algorithm).begin(self._model)
        self._batch = batch_in(arena, self._config, device)

    def do(self) -> float:
        """Learn once; return the number of the run's steps that it covers."""
        self._batch = dataclasses.replace(self._batch, number=self._batch.number + 1)
        with self._autocast:
            td_error, _ = self._algorithm.update(self._model, self._batch)
        if self._config.normalize_observations:
            self._model.update_observation_statistics(*self._batch.observed)
        wait_for(td_error.device)
        return 1.0 / self._config.updates_per_step

    def close(self) -> None:
        """Do nothing: there are no resources."""


def transitions_in(arena: ExperienceArena, config: Any, device: torch.device) -> TransitionBatch:
    """Return a batch of transitions between the arena's rows."""
    size = config.batch_size
    return TransitionBatch(
        obs=first_rows(arena, "obs", size, device), next_obs=first_rows(arena, "obs", size + 1, device)[1:],
        action=first_rows(arena, "action", size, device), reward=first_rows(arena, "reward", size, device),
        discount=torch.full((size,), config.gamma**config.n_step, device=device),
        weights=torch.ones(size, device=device), number=0, progress=HALF_WAY,
    )  # fmt: skip


def sequences_in(arena: ExperienceArena, config: Any, device: torch.device) -> SequenceBatch:
    """Return a batch of sequences between the arena's rows."""
    size, num_steps = config.batch_size, config.burn_in + config.sequence_length

    def rows(name: str, count: int) -> Tensor:
        """Return rows of a column, ``[count, B, ...]``."""
        return first_rows(arena, name, count * size, device).unflatten(0, (count, size))

    return SequenceBatch(
        obs=rows("obs", num_steps + 1), first=torch.zeros(num_steps + 1, size, dtype=torch.bool, device=device),
        action=rows("action", num_steps), reward=rows("reward", num_steps),
        discount=torch.full((num_steps, size), config.gamma, device=device),
        valid=torch.ones(num_steps, size, dtype=torch.bool, device=device),
        memory=first_rows(arena, "memory", size, device), weights=torch.ones(size, device=device), number=0,
        progress=HALF_WAY,
    )  # fmt: skip


def model_on(device: torch.device, algorithm: Any) -> tuple[Any, AbstractContextManager[object]]:
    """Return a network in the engine's memory layout, and its autocast context."""
    begin_on(str(device))
    model = algorithm.make_model(device)
    flatten_(model)
    return model, algorithm.autocast(device)


def at_rate_0(algorithm: A) -> A:
    """Set an algorithm's learning rates to 0 for good, so that updates can be repeated; return the algorithm."""
    algorithm.learning_rate = lambda base, progress: 0.0  # type: ignore[method-assign]
    return algorithm


def first_rows(arena: ExperienceArena, name: str, count: int, device: torch.device) -> Tensor:
    """Return a copy of the first rows of a column, repeated if there are too few."""
    column = arena.columns[name]
    return torch.from_numpy(column[np.arange(count) % len(column)]).to(device)


def wait_for(device: torch.device) -> None:
    """Sleep until a GPU has finished, so that waiting does not count as work."""
    if device.type == "cuda":
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(device))
        event.synchronize()
