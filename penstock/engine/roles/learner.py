"""Base of learners: the model, its weights' publication, reports, checkpoints and tunable settings."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, tunable_settings, tuned
from penstock.engine.acting.inference import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import (
    Command,
    ContentsSaved,
    Copied,
    Copy,
    Diverged,
    Inherit,
    Learned,
    Note,
    Save,
    Saved,
    SetWeights,
    Tell,
    WeightsSet,
    unknown,
)
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import Control, ExperienceArena
from penstock.experience.layout import MOST_TUNABLES, RoleKind
from penstock.ipc import fence
from penstock.replay import ReplayBuffer, ReplayFileError
from penstock.runs.checkpoint import CheckpointError, save_checkpoint
from penstock.runs.store import CheckpointStore
from penstock.runs.tensors import as_bytes, from_bytes

MAX_SKIPPED_IN_A_ROW = 20
REPORT_INTERVAL = 0.1  # seconds
FEATURES_INTERVAL = 50  # updates
FEATURES_ROWS = 128
DEAD = 0.8  # share of constant features from which a network counts as dead
DEAD_LOOKS = 3  # measurements of a dead network in a row after which the user is warned


class LearningDiverged(RuntimeError):
    """Loss or gradient was not finite too many times in a row."""


def skipped_again(
    skipped_in_a_row: int, problem: str, updates: int, steps: int, config: Config, diverged: Callable[[str], object]
) -> int:
    """Return the number of updates skipped in a row, after the last one was skipped because of `problem`.

    At the limit, `diverged` is called for a policy of a population, and the count restarts at 0.

    Raises
    ------
    LearningDiverged
        The limit is reached, and there is no population.
    """
    if skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
        return skipped_in_a_row
    first = "" if updates else "the first loss was already not finite: check the loss and the network; or "
    story = (
        f"{skipped_in_a_row} updates in a row were not finite ({problem}) at update {updates}, step {steps}: {first}"
        f"lower learning_rate (now {config.learning_rate}), check the rewards' scale (reward_scale), or use float32"
    )
    if config.pbt is None:
        raise LearningDiverged(story)
    diverged(story)
    return 0


class Tunables:
    """Values of tunable settings in shared memory, with one writer and any number of readers.

    Parameters
    ----------
    row
        float64 ``[64]``: number of changes, odd while one is under way, and a value for each name; NaN: the config's
        value holds. Written by the supervisor's process.
    names
        Names of the settings, the same in every process.
    """

    def __init__(self, row: np.ndarray, names: Sequence[str]) -> None:
        self._row = row
        self._names = tuple(names)[:MOST_TUNABLES]
        self._seen = 0.0

    def write(self, values: Mapping[str, float]) -> None:
        """Replace all values; a setting without a value returns to that of the config."""
        self._row[0] += 1
        fence()
        for place, name in enumerate(self._names, start=1):
            self._row[place] = values.get(name, math.nan)
        fence()
        self._row[0] += 1

    def news(self) -> dict[str, float] | None:
        """Return the values by name if they have changed since the last call, at first if any was set; else None.

        A change under way is returned by a later call.
        """
        count = self._row[0]
        if count == self._seen or count % 2:
            return None
        fence()
        values = {name: float(value) for name, value in zip(self._names, self._row[1:], strict=False)}
        fence()
        if self._row[0] != count:
            return None
        self._seen = count
        return {name: value for name, value in values.items() if not math.isnan(value)}


class Learner:
    """Base of learners, which turn experience into updates.

    Parameters
    ----------
    algorithm
        Algorithm of the policy.
    arena
        Arena of the policy, with the weights to start from.
    state
        Progress of learning.
    report
        Function for reports: `Learned` after updates, at most ten times per second and at every goal.
    weights
        Constructor of the transport by which weights are published.

    Attributes
    ----------
    in_group
        Function of a batch that returns the context of its update, in which other ranks of a group take part.
    of_group
        Metrics of the learner group, reported beside `experience`.
    is_changed_apart
        Whether weights or statistics were changed other than by a batch: other ranks of a group lack the change.
    """

    ACTIVITIES = ("learn", "gather", "wait for data", "wait for goal")

    def __init__(
        self, algorithm: Algorithm, arena: ExperienceArena, state: LearnerState, report: Tell,
        weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
        config = algorithm.config
        self.bell = arena.learner_bell
        self._config: Any = config
        self._arena = arena
        self._report = report
        self._device = torch.device(config.device)
        self._model: Any = algorithm.make_model(self._device)
        self._algorithm: Any = algorithm
        self._untuned = config
        self._tunables = Tunables(arena.tunables, tunable_settings(type(config)))
        self._weights = weights(self._model, arena)
        self._weights.refresh()
        self._autocast = algorithm.autocast(self._device)
        self._clock = Clock(arena.gauges_of(RoleKind.LEARNER), self.ACTIVITIES)
        self._steps, self._version, self._updates = state.steps, state.version, state.updates
        self._skipped = self._skipped_in_a_row = 0
        self._next_report = 0.0
        self._reported_steps = state.steps
        self.in_group: Callable[[Any], AbstractContextManager[None]] = lambda batch: nullcontext()
        self.of_group: dict[str, float] = {}
        self.is_changed_apart = False
        self._tuned: dict[str, float] = {}
        self._metrics: dict[str, Tensor] = {}  # the last value of each metric
        self._features: dict[str, float] = {}
        self._features_due = self._updates  # number of updates at which the features are measured next
        self._dead_in_a_row = 0
        self._has_queued_report = False

    def poll(self) -> bool:
        """Learn from the next batch; return False if there is none, or while the goal is reached."""
        raise NotImplementedError

    def learning_state(self) -> dict[str, Any]:
        """Return the state that only the learner has, for checkpoints: tensors and plain values."""
        raise NotImplementedError

    def transferable_state(self) -> dict[str, Any]:
        """Return the part of `learning_state` that another learner may adopt: all but counters and random numbers."""
        return self.learning_state()

    def _inherit(self, learning: dict[str, Any]) -> None:
        """Adopt another learner's `transferable_state`; the model holds its weights already."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self._device

    def standing(self) -> dict[str, int]:
        """Return the counters of learning."""
        return {"steps": self._steps, "version": self._version, "updates": self._updates}

    def about_batch(self) -> dict[str, Any]:
        """Return the data that other ranks of a group need in order to learn from the same batch."""
        return {"standing": self.standing(), "tuned": self._tuned}

    def whole_state(self) -> dict[str, Any]:
        """Return the state that all ranks of a group share: weights, state of the learner, counters."""
        return {"weights": self._model.state_dict(), "learning": self.learning_state(), "standing": self.standing()}

    def published_state(self) -> dict[str, Any]:
        """Return a copy of `whole_state` with the counters of the weights published last."""
        standing = self.standing() | {"steps": self._weights.steps, "version": self._weights.version}
        return copy.deepcopy(self.whole_state()) | {"standing": standing}

    def take_state(self, state: dict[str, Any]) -> None:
        """Adopt the `whole_state` of another rank, in place of a learner that has died."""
        standing = state["standing"]
        self._steps, self._updates = standing["steps"], standing["updates"]
        # A version newer than any published one, so that actors load it.
        self._version = max(standing["version"], self._weights.version) + 1
        self._model.load_state_dict(state["weights"])
        self._inherit(state["learning"])
        self._weights.publish(self._version, self._steps)
        self._weights.show()

    def handle(self, command: Command) -> None:
        """Execute a command: `Save`, `SetWeights`, `Copy` or `Inherit`."""
        if isinstance(command, Save):
            self._save(command)
        elif isinstance(command, SetWeights):
            weights = {name: torch.from_numpy(array) for name, array in command.weights.items()}
            self._adopt(weights, steps=command.steps)
        elif isinstance(command, Copy):
            learned = {"weights": self._model.state_dict(), "learning": self.transferable_state()}
            self._report(Copied(as_bytes(learned), self._version, self._steps))
        elif isinstance(command, Inherit):
            self._skipped_in_a_row = 0
            self._adopt(**from_bytes(command.learned))
        else:
            raise unknown(RoleKind.LEARNER, command, Save, SetWeights, Copy, Inherit)

    def _adopt(
        self, weights: dict[str, Tensor], learning: dict[str, Any] | None = None, steps: int | None = None
    ) -> None:
        """Adopt weights, and another learner's `transferable_state`; publish them as learned from `steps` steps."""
        self.is_changed_apart = True
        self._model.load_state_dict(weights)
        self._version += 1
        self._weights_set()
        if learning is not None:
            self._inherit(learning)
        self._weights.publish(self._version, self._steps if steps is None else steps)
        self._weights.show()
        self._report(WeightsSet(self._version))

    def close(self) -> None:
        """Do nothing: nothing is held open."""

    def _weights_set(self) -> None:
        """Adjust the learner's state to weights that were set from outside."""

    def _apply_settings(self) -> None:
        """Apply changed values of tunable settings; called before every batch."""
        if (values := self._tunables.news()) is not None:
            self._config, self._tuned = tuned(self._untuned, values), values
            self._take_settings()

    def _take_settings(self) -> None:
        """Pass the config, with changed values of tunable settings, to the parts that use it."""
        self._algorithm.apply_settings(self._config)

    def experience(self) -> dict[str, float]:
        """Return the metrics of the data path by name."""
        return {}

    @property
    def step_size(self) -> float | None:
        """Learning rate of the last update; None: rollout workers report it."""
        return None

    @property
    def _has_reached_goal(self) -> bool:
        return self._steps >= self._arena.control[Control.GOAL]

    @property
    def _uses_clock(self) -> bool:
        """Whether decisions may depend on time: not in a serial run."""
        return bool(self._config.backend != "serial")

    def _updated(self) -> None:
        """Count an update."""
        self._version += 1
        self._updates += 1
        self._skipped_in_a_row = 0

    def _measure_features(self, observation: Tensor, *, is_time_major: bool) -> None:
        """Measure the share of constant features every `FEATURES_INTERVAL` updates; warn of a dead network.

        Parameters
        ----------
        observation
            Observations of a batch, ``[N, *shape]``; about the first `FEATURES_ROWS` are used.
        is_time_major
            Whether they are ``[T, B, *shape]`` instead.
        """
        if self._updates < self._features_due:
            return
        self._features_due = self._updates + FEATURES_INTERVAL
        if is_time_major:
            observation = observation[: 1 + FEATURES_ROWS // observation.shape[1]].flatten(0, 1)
        with self._autocast:
            share = self._model.constant_features(observation[:FEATURES_ROWS])
        if share is None:
            return
        self._features["constant_features"] = share.item()
        self._dead_in_a_row = self._dead_in_a_row + 1 if share >= DEAD else 0
        if self._dead_in_a_row == DEAD_LOOKS:
            self._report(
                Note(
                    f"warning: {share:.0%} of the encoder's features are the same for all observations, so that the "
                    f"network cannot tell them apart: start again with a smaller learning_rate (now "
                    f"{self._config.learning_rate}); see constant_features in the guide \"It does not learn\""
                )
            )

    def _skip(self, problem: str) -> None:
        """Count an update skipped because loss or gradient was not finite."""
        self._skipped += 1
        self._skipped_in_a_row = skipped_again(
            self._skipped_in_a_row + 1, problem, self._updates, self._steps, self._config,
            lambda story: self._report(Diverged(self._arena.policy, story)),
        )  # fmt: skip

    def _publish(self) -> None:
        if self._weights.version != self._version:
            self._weights.publish(self._version, self._steps)

    def _queue_report(self, metrics: dict[str, Tensor]) -> None:
        """Report the algorithm's remarks now, and the metrics of an update now or with a later one."""
        while self._algorithm.remarks:
            self._report(Note(self._algorithm.remarks.pop(0)))
        # An update that does not change the policy reports no metrics of it: the last ones are kept.
        self._metrics, self._has_queued_report = {**self._metrics, **metrics}, True
        if not self._uses_clock or time.monotonic() >= self._next_report or self._has_reached_goal:
            self._report_now()

    def _send_queued_report(self) -> None:
        if self._has_queued_report:
            self._report_now()

    def _report_now(self) -> None:
        """Report the progress of learning."""
        self._has_queued_report = False
        self._reported_steps = self._steps
        self._next_report = time.monotonic() + REPORT_INTERVAL
        self._weights.show()
        self._report(
            Learned(
                steps=self._steps, version=self._version, updates=self._updates, skipped_updates=self._skipped,
                losses={name: _mean(value) for name, value in self._metrics.items()},
                experience={**self.experience(), **self.of_group, **self._features}, learning_rate=self.step_size,
            )
        )

    def _save(self, command: Save) -> None:
        self._send_queued_report()  # the status shows the steps of the checkpoint
        counters = {"steps": self._steps, "version": self._version, "updates": self._updates}
        meta, destination = {**command.meta, **counters}, command.destination
        state = {**self.learning_state(), **counters, **self._arena.state()}
        weights = self._model.state_dict()
        error: Exception | None = None
        try:
            if isinstance(destination, CheckpointStore):
                steps = self._steps if command.steps is None else command.steps
                destination.save(steps, meta=meta, weights=weights, state=state)
            else:
                save_checkpoint(destination, meta=meta, weights=weights, state=state)
        except (OSError, ValueError, TypeError, CheckpointError) as problem:
            error = problem
        self._report(Saved(command.number, error))


def _mean(values: Tensor) -> float:
    return float((values.float().mean() if values.ndim else values).item())


def save_contents(buffers: Mapping[Path, ReplayBuffer], command: Save, report: Tell) -> None:
    """Save each buffer in its directory, and report the result: `ContentsSaved`, with the first error."""
    error: Exception | None = None
    for directory, buffer in buffers.items():
        try:
            if isinstance(command.destination, CheckpointStore):
                command.destination.require_run()
            buffer.save(directory, report=lambda text: report(Note(text)))
        except (OSError, CheckpointError, ReplayFileError) as problem:
            error = error or problem
    report(ContentsSaved(command.number, error))
