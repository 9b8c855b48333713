"""Hogwild: rollout workers learn on parameters that they share without locks, and the learner publishes them.

The parameters and the optimiser's state are in the arena (arXiv:1106.5730, arXiv:1602.01783). Each worker acts with a
copy of its own, taken when its segments begin; when they are full, it computes their gradient on that copy, applies it
to the shared parameters and copies them again.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.optimizers import copy_settings
from penstock.algorithms.arithmetic.rmsprop import RMSProp
from penstock.algorithms.bases.segment import SegmentAlgorithm, not_finite
from penstock.config import tunable_settings, tuned
from penstock.engine.acting.inference import Inference, MakeWeights, through_block
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Diverged, LearnedInWorker, Save, Tell
from penstock.engine.paths.base import DataPath
from penstock.engine.paths.segment_learner import BatchReader
from penstock.engine.roles.learner import REPORT_INTERVAL, Learner, Tunables, skipped_again
from penstock.experience.arena import NOT_ASKED, Control, ExperienceArena, Pending
from penstock.experience.batch import Batch
from penstock.ipc import fence, taking_turns
from penstock.nn import ActorCritic, PolicyNetwork, buffer_in, flatten_, foreign_buffers, place_, places_in

LONGEST_UPDATE = 5.0  # seconds


class Contribution(IntEnum):
    """Counters of a rollout worker that learns, in its row of ``contributions``."""

    STEPS = 0
    """Steps learned from."""
    UPDATES = 1
    """Gradients applied to the shared parameters."""
    SKIPPED = 2
    """Gradients skipped because they were not finite."""
    MASKED = 3
    """Steps not learned from."""
    IS_LEARNING = 4
    """1 while a gradient is computed and applied, else 0."""


class SharedParameters:
    """One process's view of the parameters that all rollout workers train.

    Parameters
    ----------
    algorithm
        Algorithm, which builds the network and its optimiser, a `RMSProp`.
    arena
        Arena of the policy.

    Attributes
    ----------
    model : ActorCritic
        Network with its tensors in the arena.
    optimizer : RMSProp
        Optimiser with its state in the arena.
    """

    def __init__(self, algorithm: SegmentAlgorithm, arena: ExperienceArena) -> None:
        self.model = algorithm.make_model()
        place_(self.model, torch.from_numpy(arena.shared_weights))
        optimizer = algorithm.build_optimizer(self.model)
        if not isinstance(optimizer, RMSProp):
            raise TypeError(
                f"{algorithm.name()} learns in its rollout workers, which share RMSProp's state: its build_optimizer "
                f"must return a penstock.algorithms.arithmetic.rmsprop.RMSProp, found a {type(optimizer).__name__}"
            )
        self.optimizer = optimizer
        algorithm.set_learning_rate(optimizer, progress=0.0)
        squares = places_in(self.model, torch.from_numpy(arena.square_averages))
        for parameter, square in zip(self.model.parameters(), squares, strict=False):  # places for buffers are last
            self.optimizer.state[parameter] = {"square_average": square}


def begin(
    algorithm: SegmentAlgorithm, arena: ExperienceArena, model: PolicyNetwork, state: LearnerState,
    learning: dict[str, Any] | None,
) -> None:  # fmt: skip
    """Initialise the workers' shared memory before they start: weights, optimiser's state, and counts."""
    shared = SharedParameters(algorithm, arena)
    shared.model.load_state_dict(model.state_dict())
    if learning is not None:
        take_squares(shared, learning)
    before = arena.contributions[-1]
    before[Contribution.STEPS], before[Contribution.UPDATES] = state.steps, state.updates
    arena.control[Control.WEIGHTS_SET] = state.version - state.updates


def take_squares(shared: SharedParameters, learning: dict[str, Any]) -> None:
    """Restore the shared optimiser's state from a saved one."""
    saved = learning["optimizer"]["state"]
    for number, parameter in enumerate(shared.model.parameters()):
        shared.optimizer.state[parameter]["square_average"].copy_(saved[number]["square_average"])


class ParameterCopy:
    """A worker's copy of the shared parameters, for acting and for gradients.

    Parameters
    ----------
    model
        Network that holds the copy.
    arena
        Arena of the shared parameters.

    Attributes
    ----------
    version, steps, updates, weights_set
        Counts of the shared parameters when they were copied.
    """

    def __init__(self, model: ActorCritic, arena: ExperienceArena) -> None:
        self._arena = arena
        self._shared = torch.from_numpy(arena.shared_weights)
        self._bytes = flatten_(model)
        self.pull()

    def pull(self) -> None:
        """Copy the shared parameters."""
        totals, self.weights_set = self._arena.contributions.sum(0), int(self._arena.control[Control.WEIGHTS_SET])
        self.steps, self.updates = int(totals[Contribution.STEPS]), int(totals[Contribution.UPDATES])
        self.version = self.updates + self.weights_set
        with taking_turns(self._arena.arena):  # a value head and its moments belong together
            self._bytes.copy_(self._shared)

    def refresh(self) -> None:
        """Do nothing: all actions of a segment, and its gradient, use the same parameters."""


class ActorLearner(Inference):
    """Actor of one rollout worker, which also learns from the worker's segments.

    Parameters
    ----------
    arena, algorithm
        Arena and algorithm of the policy.
    worker
        Number of the rollout worker.
    path
        Data path of the run.
    report
        Function for reports: `LearnedInWorker` after updates, at most ten times per second.
    """

    _algorithm: SegmentAlgorithm

    def __init__(
        self, arena: ExperienceArena, algorithm: SegmentAlgorithm, worker: int, path: DataPath, report: Tell
    ) -> None:
        super().__init__(arena, algorithm, "cpu", path.steps_taken, weights=ParameterCopy)
        config = algorithm.config
        self._config = self._untuned = config
        self._tunables = Tunables(arena.tunables, tunable_settings(type(config)))
        self._worker = worker
        self._shared = SharedParameters(algorithm, arena)
        self._reader = BatchReader(
            arena, config.lanes_per_worker, self._device,
            reward_scale=config.reward_scale, reward_clip=config.reward_clip, max_policy_lag=None,
            burn_in=config.burn_in,
        )  # fmt: skip
        self._training = algorithm.training_mode(self._model)
        self._buffers = list(zip(foreign_buffers(self._shared.model), foreign_buffers(self._model), strict=True))
        self._contribution = arena.contributions[worker]
        self._contribution[Contribution.IS_LEARNING] = 0  # a predecessor may have died during an update
        self._report = report
        self._next_report = 0.0
        self._lags: list[int] = []
        self._skipped_in_a_row = 0
        self._numbers: dict[int, int] = {}  # number of each group's segments at the last answer

    def answer(self, pending: Pending) -> None:
        """Choose actions, and copy the shared parameters where segments begin."""
        group = int(pending.groups[0])
        row = self._arena.requests.rows[group].max()
        if row != NOT_ASKED:
            number = int(self._arena.slot_number[row // self._arena.shape.rows_per_slot])
            if self._numbers.get(group) != number:
                self._numbers[group] = number
                self._weights.pull()
        super().answer(pending)

    def is_wanted(self) -> bool:
        """Return whether the goal is not yet reached."""
        return bool(self._arena.contributions[:, Contribution.STEPS].sum() < self._arena.control[Control.GOAL])

    def learn(self, slots: np.ndarray) -> bool:
        """Apply the gradient of full segments, one of each lane, to the shared parameters.

        Parameters
        ----------
        slots
            int64 ``[B]``: slots that this worker owns and has written.

        Returns
        -------
        bool
            False at the goal, where nothing is learned.
        """
        # Set before the goal is read: once it is reached and no worker is learning, all counts are final.
        self._contribution[Contribution.IS_LEARNING] = 1
        fence()
        if is_wanted := self.is_wanted():
            self._learn(slots)
        fence()
        self._contribution[Contribution.IS_LEARNING] = 0
        if not self.is_wanted():
            self._arena.learner_bell.ring()
        return is_wanted

    def _learn(self, slots: np.ndarray) -> None:
        arena, copy = self._arena, self._weights
        if (values := self._tunables.news()) is not None:
            self._take_settings(tuned(self._untuned, values))
        batch, _ = self._reader.read(slots, copy.version, copy.steps / self._config.total_steps)
        learned = int(batch.learn.sum())
        is_fenced_off = (arena.slot_epoch[slots] != arena.control[Control.RUN_EPOCH]).any()
        if is_fenced_off or (learned and not self._apply_gradient(batch)):
            learned = 0
        self._contribution[Contribution.MASKED] += int(batch.valid.sum()) - learned
        self._contribution[Contribution.STEPS] += learned

    def _take_settings(self, config: Any) -> None:
        """Apply changed values of tunable settings."""
        self._config = config
        self._algorithm.apply_settings(config)
        copy_settings(self._shared.optimizer, self._algorithm.build_optimizer(self._model))

    def _apply_gradient(self, batch: Batch) -> bool:
        """Apply or skip the gradient of a batch; return False if the parameters have been replaced meanwhile."""
        arena, algorithm, copy = self._arena, self._algorithm, self._weights
        with torch.no_grad(), self._autocast:
            algorithm.prepare(self._model, batch)
        self._model.zero_grad(set_to_none=True)
        minibatch = batch if algorithm.needs_segments else batch.flatten()
        with self._training:
            loss, metrics = algorithm.gradient(self._model, minibatch, self._autocast)
        if (problem := not_finite(loss, metrics["grad_norm"])) is not None:
            self._contribution[Contribution.SKIPPED] += 1
            self._skipped_in_a_row = skipped_again(
                self._skipped_in_a_row + 1, problem, copy.updates, copy.steps, self._config,
                lambda story: self._report(Diverged(arena.policy, story)),
            )  # fmt: skip
            return True
        self._skipped_in_a_row = 0
        if arena.control[Control.WEIGHTS_SET] != copy.weights_set:
            return False
        lag = int(arena.contributions[:, Contribution.UPDATES].sum()) - copy.updates
        optimizer = self._shared.optimizer
        self._set_gradients(of_value_head=False)
        algorithm.set_learning_rate(optimizer, batch.progress)
        optimizer.step()
        self._contribution[Contribution.UPDATES] += 1
        algorithm.update_layer_statistics(self._model, batch)
        for place, own_place in self._buffers:
            buffer_in(place).copy_(buffer_in(own_place))
        self._set_gradients(of_value_head=True)
        with torch.no_grad(), taking_turns(arena.arena):
            # The value head moves within the turn: otherwise its step could overwrite another worker's rescaling.
            optimizer.step()
            algorithm.update_statistics(self._model, batch, into=self._shared.model)
        self._report_update(metrics, lag)
        return True

    def _set_gradients(self, *, of_value_head: bool) -> None:
        """Give the shared parameters this worker's gradients: those of the value head, or of all others."""
        head = set(self._shared.model.value_head.parameters())
        for parameter, own in zip(self._shared.model.parameters(), self._model.parameters(), strict=True):
            parameter.grad = own.grad if (parameter in head) is of_value_head else None

    def _report_update(self, metrics: dict[str, Tensor], lag: int) -> None:
        """Report at intervals; the policy lag of a gradient is the number of others applied during its computation."""
        self._lags.append(lag)
        if self._config.backend != "serial" and time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + REPORT_INTERVAL
        lags, self._lags = self._lags, []
        self._report(
            LearnedInWorker(
                worker=self._worker, losses={name: value.item() for name, value in metrics.items()}, lags=lags,
                learning_rate=self._shared.optimizer.param_groups[0]["lr"], policy=self._arena.policy,
            )
        )


class HogwildLearner(Learner):
    """Publishes, saves and reports the parameters that rollout workers train; it learns nothing itself.

    Parameters
    ----------
    algorithm, arena, state, report, weights
        As for `Learner`.
    learning
        Not used: the shared parameters and the optimiser's state are in the arena (see `begin`).
    """

    def __init__(
        self, algorithm: SegmentAlgorithm, arena: ExperienceArena, state: LearnerState,
        learning: dict[str, Any] | None, report: Tell, weights: MakeWeights = through_block,
    ) -> None:  # fmt: skip
        super().__init__(algorithm, arena, state, report, weights)
        self._shared = SharedParameters(algorithm, arena)
        self._masked = 0
        self._next_look = 0.0

    def poll(self) -> bool:
        """Publish new parameters, at most ten times per second; return False if there are none."""
        steps = int(self._arena.contributions[:, Contribution.STEPS].sum())
        is_early = self._uses_clock and time.monotonic() < self._next_look
        is_too_early = self._is_worker_learning() if steps >= self._arena.control[Control.GOAL] else is_early
        if steps == self._steps or is_too_early:  # at the goal the counts are final before they are reported
            self._send_queued_report()
            self._clock.switch("wait for goal" if self._has_reached_goal else "wait for data")
            return False
        self._clock.switch("gather")
        self._next_look = time.monotonic() + REPORT_INTERVAL
        self._publish_shared()
        self._queue_report({})
        return True

    def learning_state(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        return {"optimizer": self._shared.optimizer.state_dict()}

    def _publish_shared(self) -> None:
        self._count()
        with taking_turns(self._arena.arena):
            self._model.load_state_dict(self._shared.model.state_dict())
        self._publish()

    def _count(self) -> None:
        """Add up the workers' contributions."""
        totals = self._arena.contributions.sum(0)
        self._steps, self._updates = int(totals[Contribution.STEPS]), int(totals[Contribution.UPDATES])
        self._skipped, self._masked = int(totals[Contribution.SKIPPED]), int(totals[Contribution.MASKED])
        self._version = self._updates + int(self._arena.control[Control.WEIGHTS_SET])

    def _save(self, command: Save) -> None:
        if self._has_reached_goal:  # the checkpoint of a run that ends holds all that was learned
            self._wait_for_workers()
        self._publish_shared()
        self._report_now()  # the status shows the steps of the checkpoint
        super()._save(command)

    def _weights_set(self) -> None:
        # A worker that reads the new count drops its gradient; one that read the old count is waited for. Copies of the
        # old parameters made from here on belong to segments that the next run epoch fences off.
        self._arena.control[Control.WEIGHTS_SET] += 1
        self._wait_for_workers()
        with taking_turns(self._arena.arena):
            self._shared.model.load_state_dict(self._model.state_dict())
        self._count()  # no gradient was applied since: the published weights have these updates

    def _inherit(self, learning: dict[str, Any]) -> None:
        take_squares(self._shared, learning)

    def _wait_for_workers(self) -> None:
        """Wait until no worker is within an update, `LONGEST_UPDATE` at most: one may have been killed in it."""
        end = time.monotonic() + LONGEST_UPDATE
        while self._is_worker_learning() and time.monotonic() < end:
            time.sleep(0.001)

    def _is_worker_learning(self) -> bool:
        fence()
        return bool(self._arena.contributions[:, Contribution.IS_LEARNING].any())

    def experience(self) -> dict[str, float]:
        """Return the number of steps not learned from; workers report policy lag."""
        return {"masked_steps": self._masked}
