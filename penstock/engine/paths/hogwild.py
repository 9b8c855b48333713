"""Hogwild: rollout workers that learn, each by itself, from parameters that all of them share without locks.

The parameters and the optimiser's state lie in the arena (arXiv:1106.5730, arXiv:1602.01783). Each worker acts with a
copy of its own, taken when its segments begin; when they are full it computes their gradient on that copy, applies it
to the shared parameters and copies them anew. The learner's role is left with showing what has come of them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.algorithms.arithmetic.optimizers import as_if_made
from penstock.algorithms.arithmetic.rmsprop import RMSProp
from penstock.algorithms.bases.segment import SegmentAlgorithm, not_finite
from penstock.config import tunable_settings, tuned
from penstock.engine.acting.inference import Inference
from penstock.engine.contracts import LearnerState
from penstock.engine.messages import Diverged, LearnedInWorker, Tell
from penstock.engine.paths.base import DataPath
from penstock.engine.roles.learner import REPORT_INTERVAL, skipped_again
from penstock.experience.arena import Contribution, Control, ExperienceArena, Tunables
from penstock.experience.batch import Batch, BatchReader
from penstock.experience.requests import NOT_ASKED, Pending
from penstock.ipc import fence, taking_turns
from penstock.nn import ActorCritic, PolicyNetwork, buffer_in, flatten_, foreign_buffers, place_, places_in


class SharedParameters:
    """The parameters that all rollout workers train, as one process sees them.

    Parameters
    ----------
    algorithm
        Builds the network and its optimiser, a `RMSProp`.
    arena
        Where both lie.

    Attributes
    ----------
    model : ActorCritic
        Its tensors are the shared ones.
    optimizer : RMSProp
        Its state is the shared one.
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
        algorithm.set_learning_rate(optimizer, algorithm.config.learning_rate, 0.0)
        squares = places_in(self.model, torch.from_numpy(arena.square_averages))
        for parameter, square in zip(self.model.parameters(), squares, strict=False):  # behind them are the buffers'
            self.optimizer.state[parameter] = {"square_average": square}


def begin(
    algorithm: SegmentAlgorithm,
    arena: ExperienceArena,
    model: PolicyNetwork,
    state: LearnerState,
    learning: dict[str, Any] | None,
) -> None:
    """Lay out what the workers share, before there are any: weights, optimiser's state, and how far the run is."""
    shared = SharedParameters(algorithm, arena)
    shared.model.load_state_dict(model.state_dict())
    if learning is not None:
        take_squares(shared, learning)
    before = arena.contributions[-1]
    before[Contribution.STEPS], before[Contribution.UPDATES] = state.steps, state.updates
    arena.control[Control.WEIGHTS_SET] = state.version - state.updates


def take_squares(shared: SharedParameters, learning: dict[str, Any]) -> None:
    """Let the shared optimiser go on from what another had gathered."""
    saved = learning["optimizer"]["state"]
    for number, parameter in enumerate(shared.model.parameters()):
        shared.optimizer.state[parameter]["square_average"].copy_(saved[number]["square_average"])


class Copy:
    """A worker's own copy of the shared parameters: for acting, and for computing gradients.

    Parameters
    ----------
    model
        The network that holds the copy.
    arena
        Where the shared parameters lie.

    Attributes
    ----------
    version, steps, updates, weights_set
        Of the shared parameters when they were copied.
    """

    def __init__(self, model: ActorCritic, arena: ExperienceArena) -> None:
        self._arena = arena
        self._shared = torch.from_numpy(arena.shared_weights)
        self._bytes = flatten_(model)
        self.pull()

    def pull(self) -> None:
        """Copy the shared parameters as they are now."""
        totals, self.weights_set = self._arena.contributions.sum(0), int(self._arena.control[Control.WEIGHTS_SET])
        self.steps, self.updates = int(totals[Contribution.STEPS]), int(totals[Contribution.UPDATES])
        self.version = self.updates + self.weights_set
        with taking_turns(self._arena.arena):  # a value head and the moments that it goes with
            self._bytes.copy_(self._shared)

    def refresh(self) -> None:
        """Nothing: within a segment all actions are chosen, and its gradient computed, with the same parameters."""


class ActorLearner(Inference):
    """Chooses the actions of one rollout worker, and learns from what comes of them.

    Parameters
    ----------
    arena
        The run's arena.
    algorithm
        How to act, and the loss.
    worker
        Number of the rollout worker.
    path
        The run's data path.
    report
        Called with `LearnedInWorker` after updates, at most ten times per second.
    """

    def __init__(
        self, arena: ExperienceArena, algorithm: SegmentAlgorithm, worker: int, path: DataPath, report: Tell
    ) -> None:
        super().__init__(arena, algorithm, "cpu", path.steps_taken, weights=Copy)
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
        self._brought = arena.contributions[worker]
        self._brought[Contribution.IS_LEARNING] = 0  # whoever had this worker's place may have died of it
        self._report = report
        self._next_report = 0.0
        self._lags: list[int] = []
        self._skipped_in_a_row = 0
        self._numbers: dict[int, int] = {}  # of the segments that each group was answered in last

    def answer(self, pending: Pending) -> None:
        """Choose actions; where segments begin, with the shared parameters of now."""
        group = int(pending.groups[0])
        row = self._arena.requests.rows[group].max()
        if row != NOT_ASKED:
            number = int(self._arena.slot_number[row // self._arena.shape.rows_per_slot])
            if self._numbers.get(group) != number:
                self._numbers[group] = number
                self._weights.pull()
        super().answer(pending)

    def is_wanted(self) -> bool:
        """Whether more is to be learned."""
        return bool(self._arena.contributions[:, Contribution.STEPS].sum() < self._arena.control[Control.GOAL])

    def learn(self, slots: np.ndarray) -> bool:
        """Apply the gradient of full segments, one of each lane, to the shared parameters.

        Parameters
        ----------
        slots
            int64 ``[B]``: written by this worker, and its own meanwhile.

        Returns
        -------
        bool
            Whether it was done: not at the goal.
        """
        # Raised before the goal is looked at: whoever sees the goal reached and nobody learning has seen all there is.
        self._brought[Contribution.IS_LEARNING] = 1
        fence()
        if is_wanted := self.is_wanted():
            self._learn(slots)
        fence()
        self._brought[Contribution.IS_LEARNING] = 0
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
        self._brought[Contribution.MASKED] += int(batch.valid.sum()) - learned
        self._brought[Contribution.STEPS] += learned

    def _take_settings(self, config: Any) -> None:
        """Go on with other values of tunable settings."""
        self._config = config
        self._algorithm.take_settings(config)
        as_if_made(self._shared.optimizer, self._algorithm.build_optimizer(self._model))

    def _apply_gradient(self, batch: Batch) -> bool:
        """Make the update of a batch, or skip it; False if the parameters that it is of are no more."""
        arena, algorithm, copy = self._arena, self._algorithm, self._weights
        with torch.no_grad(), self._autocast:
            algorithm.prepare(self._model, batch)
        self._model.zero_grad(set_to_none=True)
        minibatch = batch if algorithm.needs_segments else batch.flatten()
        with self._training:
            loss, metrics = algorithm.gradient(self._model, minibatch, self._autocast)
        if (problem := not_finite(loss, metrics["grad_norm"])) is not None:
            self._brought[Contribution.SKIPPED] += 1
            self._skipped_in_a_row = skipped_again(
                self._skipped_in_a_row + 1, problem, copy.updates, copy.steps, self._config,
                lambda story: self._report(Diverged(arena.policy, story)),
            )  # fmt: skip
            return True
        self._skipped_in_a_row = 0
        if arena.control[Control.WEIGHTS_SET] != copy.weights_set:
            return False
        lag = int(arena.contributions[:, Contribution.UPDATES].sum()) - copy.updates
        for parameter, own in zip(self._shared.model.parameters(), self._model.parameters(), strict=True):
            parameter.grad = own.grad
        optimizer = self._shared.optimizer
        algorithm.set_learning_rate(optimizer, self._config.learning_rate, batch.progress)
        optimizer.step()
        self._brought[Contribution.UPDATES] += 1
        algorithm.follow_statistics(self._model, batch)
        for place, own_place in self._buffers:
            buffer_in(place).copy_(buffer_in(own_place))
        with torch.no_grad(), taking_turns(arena.arena):
            algorithm.update_statistics(self._model, batch, into=self._shared.model)
        self._tell(metrics, lag)
        return True

    def _tell(self, metrics: dict[str, Tensor], lag: int) -> None:
        """Report now and then; the policy lag of a gradient is the number of others applied while it came about."""
        self._lags.append(lag)
        is_quiet = self._config.backend != "serial" and time.monotonic() < self._next_report
        if is_quiet:
            return
        self._next_report = time.monotonic() + REPORT_INTERVAL
        lags, self._lags = self._lags, []
        self._report(
            LearnedInWorker(
                worker=self._worker,
                losses={name: value.item() for name, value in metrics.items()},
                lag=(min(lags), float(np.mean(lags)), max(lags)),
                learning_rate=self._shared.optimizer.param_groups[0]["lr"],
                policy=self._arena.policy,
            )
        )
