"""Base of learners: they hold the model, publish its weights, report and save."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from penstock.algorithms.bases.algorithm import Algorithm
from penstock.config import Config, tunable_settings, tuned
from penstock.engine.acting.weights import MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import (
    Command,
    Copied,
    Copy,
    Diverged,
    Inherit,
    Learned,
    Save,
    Saved,
    SetWeights,
    Tell,
    WeightsSet,
    unknown,
)
from penstock.engine.watching.clock import Clock
from penstock.experience.arena import Control, ExperienceArena, Tunables
from penstock.experience.layout import RoleKind
from penstock.runs.checkpoint import CheckpointError, as_bytes, from_bytes, save_checkpoint
from penstock.runs.store import CheckpointStore

MAX_SKIPPED_IN_A_ROW = 20
REPORT_INTERVAL = 0.1  # seconds


class LearningDiverged(RuntimeError):
    """Loss or gradient was not finite too many times in a row."""


def skipped_again(
    skipped_in_a_row: int, problem: str, updates: int, steps: int, config: Config, diverged: Callable[[str], object]
) -> int:
    """Return how many updates in a row count as skipped, after so many were, the last one because of `problem`.

    Where they are too many, a policy of a population is reported with `diverged`, and 0 count.

    Raises
    ------
    LearningDiverged
        They are too many, and there is no population.
    """
    if skipped_in_a_row < MAX_SKIPPED_IN_A_ROW:
        return skipped_in_a_row
    story = (
        f"{skipped_in_a_row} updates in a row were not finite ({problem}) at update {updates}, step {steps}: lower "
        f"learning_rate (now {config.learning_rate}), check the rewards' scale (reward_scale), or use float32"
    )
    if config.pbt is None:
        raise LearningDiverged(story)
    diverged(story)
    return 0


class Learner:
    """Turns experience into updates; from what, and how, its subclasses say.

    Parameters
    ----------
    algorithm
        What learns.
    arena
        The run's arena, holding the weights to start from.
    state
        Where learning stands.
    report
        Called with `Learned` after updates, at most ten times per second and at every goal.
    weights
        By which way they are published.

    Attributes
    ----------
    together
        Makes the context in which a batch is learned from; in a group the others learn from it there, too.
    of_group
        What is shown of the group beside `experience`.
    is_changed_apart
        Whether weights or statistics were changed otherwise than by a batch: others of a group do not have that yet.
    """

    ACTIVITIES = ("learn", "gather", "wait for data", "wait for goal")

    def __init__(
        self,
        algorithm: Algorithm,
        arena: ExperienceArena,
        state: LearnerState,
        report: Tell,
        weights: MakeWeights = through_block,
    ) -> None:
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
        self.together: Callable[[Any], AbstractContextManager[None]] = lambda batch: nullcontext()
        self.of_group: dict[str, float] = {}
        self.is_changed_apart = False
        self._tuned: dict[str, float] = {}
        self._brought: dict[str, Tensor] = {}  # what the last update reported
        self._has_queued_report = False

    def poll(self) -> bool:
        """Learn, if there is something to learn from; False if there is not, or while the goal is reached."""
        raise NotImplementedError

    def learning_state(self) -> dict[str, Any]:
        """State that only the learner has, saved in checkpoints: tensors and plain values."""
        raise NotImplementedError

    def transferable_state(self) -> dict[str, Any]:
        """Part of `learning_state` that another learner may adopt: all but counters and random numbers."""
        return self.learning_state()

    def _inherit(self, learning: dict[str, Any]) -> None:
        """Go on from another learner's `transferable_state`, whose weights the model has by now."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self._device

    def standing(self) -> dict[str, int]:
        """Counters of learning."""
        return {"steps": self._steps, "version": self._version, "updates": self._updates}

    def about_batch(self) -> dict[str, Any]:
        """Data that other ranks of a group need in order to learn from the same batch."""
        return {"standing": self.standing(), "tuned": self._tuned}

    def whole_state(self) -> dict[str, Any]:
        """All that others of a group have to go on with: weights, what else is learned, and where learning stands."""
        return {"weights": self._model.state_dict(), "learning": self.learning_state(), "standing": self.standing()}

    def published_state(self) -> dict[str, Any]:
        """`whole_state` of a new learner that has only the weights published last."""
        standing = self.standing() | {"steps": self._weights.steps, "version": self._weights.version}
        return copy.deepcopy(self.whole_state()) | {"standing": standing}

    def take_state(self, state: dict[str, Any]) -> None:
        """Go on, in the place of a learner that has died, with what another of its group has."""
        standing = state["standing"]
        self._steps, self._updates = standing["steps"], standing["updates"]
        # Newer than any that was published: who acts is to take them.
        self._version = max(standing["version"], self._weights.version) + 1
        self._model.load_state_dict(state["weights"])
        self._inherit(state["learning"])
        self._weights.publish(self._version, self._steps)
        self._weights.show()

    def handle(self, command: Command) -> None:
        """Take a command: `Save`, `SetWeights`, `Copy` or `Inherit`."""
        self.is_changed_apart |= isinstance(command, SetWeights | Inherit)
        if isinstance(command, Save):
            self._save(command)
        elif isinstance(command, SetWeights):
            weights, steps = command.weights, command.steps
            self._model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
            self._version += 1
            self._weights_set()
            self._weights.publish(self._version, self._steps if steps is None else steps)
            self._weights.show()
            self._report(WeightsSet(self._version))
        elif isinstance(command, Copy):
            learned = {"weights": self._model.state_dict(), "learning": self.transferable_state()}
            self._report(Copied(as_bytes(learned), self._version, self._steps))
        elif isinstance(command, Inherit):
            learned = from_bytes(command.learned)
            self._model.load_state_dict(learned["weights"])
            self._version += 1
            self._skipped_in_a_row = 0
            self._weights_set()
            self._inherit(learned["learning"])
            self._weights.publish(self._version, self._steps)
            self._weights.show()
            self._report(WeightsSet(self._version))
        else:
            raise unknown(RoleKind.LEARNER, command, Save, SetWeights, Copy, Inherit)

    def close(self) -> None:
        """Nothing is held open."""

    def _weights_set(self) -> None:
        """The model has got weights from outside."""

    def _heed_settings(self) -> None:
        """Go on with the settings that hold now, wherever they are used; called before every batch."""
        if (values := self._tunables.news()) is not None:
            self._config, self._tuned = tuned(self._untuned, values), values
            self._take_settings()

    def _take_settings(self) -> None:
        """The config has other values of tunable settings."""
        self._algorithm.take_settings(self._config)

    def experience(self) -> dict[str, float]:
        """Metrics of the data path, by name."""
        return {}

    @property
    def step_size(self) -> float | None:
        """Learning rate of the last update; None where rollout workers tell it."""
        return None

    @property
    def _has_reached_goal(self) -> bool:
        return self._steps >= self._arena.control[Control.GOAL]

    @property
    def _uses_clock(self) -> bool:
        """Whether time may decide something: in a serial run nothing that is decided depends on it."""
        return bool(self._config.backend != "serial")

    def _updated(self) -> None:
        """Count an update."""
        self._version += 1
        self._updates += 1
        self._skipped_in_a_row = 0

    def _skip(self, problem: str) -> None:
        """Count an update that was left out because loss or gradient was not finite."""
        self._skipped += 1
        self._skipped_in_a_row = skipped_again(
            self._skipped_in_a_row + 1, problem, self._updates, self._steps, self._config,
            lambda story: self._report(Diverged(self._arena.policy, story)),
        )  # fmt: skip

    def _publish(self) -> None:
        if self._weights.version != self._version:
            self._weights.publish(self._version, self._steps)

    def _queue_report(self, metrics: dict[str, Tensor]) -> None:
        """Report the metrics of an update, now or with a later one."""
        # What an update does not report, as one without a step of the policy does, stands as it was.
        self._brought, self._has_queued_report = {**self._brought, **metrics}, True
        if not self._uses_clock or time.monotonic() >= self._next_report or self._has_reached_goal:
            self._send_queued_report()

    def _report_now(self) -> None:
        """Report where learning stands, though no update calls for it."""
        self._has_queued_report = True
        self._send_queued_report()

    def _send_queued_report(self) -> None:
        if not self._has_queued_report:
            return
        self._has_queued_report = False
        self._reported_steps = self._steps
        self._next_report = time.monotonic() + REPORT_INTERVAL
        self._weights.show()
        self._report(
            Learned(
                steps=self._steps,
                version=self._version,
                updates=self._updates,
                skipped_updates=self._skipped,
                losses={name: _mean(value) for name, value in self._brought.items()},
                experience={**self.experience(), **self.of_group},
                learning_rate=self.step_size,
            )
        )

    def _save(self, command: Save) -> None:
        self._send_queued_report()  # the status is to know the steps of the checkpoint
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
        except (OSError, CheckpointError) as problem:
            error = problem
        self._report(Saved(command.number, error))


def _mean(values: Tensor) -> float:
    return float((values.float().mean() if values.ndim else values).item())
