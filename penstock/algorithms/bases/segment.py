"""Base of algorithms that learn from fresh segments: acting, batches, updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import copy_settings, fused_adam, load_moments
from penstock.algorithms.arithmetic.returns import gae
from penstock.algorithms.arithmetic.similarity import Projection
from penstock.algorithms.bases.algorithm import Algorithm, Metrics, Request, clip_norm_
from penstock.algorithms.bases.planned import PlannedGradient
from penstock.config import Config, FreshConfig, SegmentConfig, find_object, require, require_whole_segments, value_at
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import Batch
from penstock.experience.layout import Column
from penstock.nn import (
    ActorCritic,
    Distribution,
    GroupBroken,
    average_gradients_,
    evaluating,
    joined_if_adjacent,
    leave_group,
    num_parameters,
    numbers_of,
    recorded_distribution,
)


class SegmentAlgorithm(Algorithm):
    """Base of algorithms over fresh segments: a subclass has a `Config` and a `loss`."""

    Config: ClassVar[type[Config]] = SegmentConfig
    config: Any  # a SegmentConfig, or a FreshConfig if the network has no policy
    data_path: str | type = "segments"
    records: tuple[str, ...] = ()
    """Extra columns recorded while acting: "logits", the parameters of the sampled distribution; "value", the predicted
    return; "features", the inputs of the policy's head."""
    needs_segments: bool = False
    """True: the loss needs whole segments ``[T, B]``, not transitions in random order."""
    freezes_statistics: ClassVar[bool] = True
    targets_for: tuple[Literal["batch", "update"], ...] = ("update",)
    """When `targets` are computed: "batch", once for all updates of a batch; "update", in each one, from segments."""

    @property
    def batch_timeout(self) -> float | None:
        """Seconds that a synchronous learner waits for others after a batch's first segment; None: without limit."""
        return None

    def __init__(self, config: FreshConfig, observation: ObservationSpec, action: ActionSpec) -> None:
        super().__init__(config, observation, action)
        elite = next((source for source in config.replayed_sources if source.kind == "elite"), None)
        self._projected = Projection(elite.projection if elite is not None else 0, config.seed)
        if elite is not None:
            self.records = (*self.records, "features")
        self.records = (*self.records, *config.further_records)
        self._target_changes = [find_object(place, "target_changes")(config) for place in config.target_changes]
        has_targets_of_updates = "update" in self.targets_for and type(self).targets is not SegmentAlgorithm.targets
        self.needs_segments = self.needs_segments or has_targets_of_updates or config.memory != "none"

    def build_model(self) -> Any:
        """Make the actor-critic. For another network, override `act` and `evaluate`, too."""
        names = ("memory", "memory_size", "memory_span", "burn_in", "shared_encoder", "normalize_returns",
                 "continuous_actions", "initial_log_std", "log_std_lr_scale")  # fmt: skip
        return self.build_network(ActorCritic, {name: getattr(self.config, name) for name in names})

    def build_optimizer(self, model: Any) -> torch.optim.Optimizer:
        """Make the optimiser. `set_learning_rate` sets its learning rate afterwards, and once per batch."""
        return fused_adam(list(model.parameters()), eps=1e-5)

    def record_columns(self) -> tuple[Column, ...]:
        shapes: dict[str, tuple[int, ...]] = {"logits": (num_parameters(self.action),), "value": ()}
        if "features" in self.records:
            with torch.random.fork_rng(devices=[]):
                shapes["features"] = (self._projected.width or self.build_model().num_features,)
        legal = "a tuple of 'logits', 'value' and 'features'; for other columns, override record_columns and act"
        require({*self.records} <= {"logits", "value", "features"}, "records", self.records, legal)
        return tuple(Column(name, shapes[name], "float32") for name in self.records)

    def recorded_policy(self, flat: Tensor) -> Distribution:
        """Return the distributions whose parameters were recorded as "logits", ``[..., P]``."""
        return recorded_distribution(self.action, flat, numbers_of(self.action, self.config.continuous_actions))

    def act(self, model: Any, request: Request) -> tuple[dict[str, Tensor], Tensor]:
        """Sample an action in each lane, and record its log-probability and `records`."""
        more: dict[str, Tensor] = {}
        if "value" in self.records or "features" in self.records:
            needs_features = "features" in self.records
            distribution, value, features, memory = model.observe(
                request.obs, request.first, request.memory, needs_features=needs_features
            )
            more["value"] = model.denormalize_value(value)
            if needs_features:
                more["features"] = self._projected(features)
        else:
            distribution, memory = model.act(request.obs, request.first, request.memory)
        if "logits" in self.records:
            more["logits"] = distribution.flat
        action, log_prob = distribution.sample_with_log_prob(request.noise)
        columns = {"action": action, "log_prob": log_prob}
        return columns | {name: more[name] for name in self.records}, memory

    def begin(self, model: Any, learning: dict[str, Any] | None = None) -> None:
        """Create the learner's own state, or restore it from a `learning_state`. Does nothing by default."""

    def learning_state(self) -> dict[str, Any]:
        """Return the learner's own state, as tensors and plain values."""
        return {}

    def auxiliary_networks(self) -> Sequence[torch.nn.Module]:
        """Return the networks, other than the model, that the loss reads: the same ones throughout a run."""
        return ()

    def after_update(self, model: Any, updates: int) -> None:
        """Hook after each update of the model, with the number of updates so far. Does nothing by default."""

    def targets(self, model: ActorCritic, batch: Batch, policy: Distribution, values: Tensor) -> dict[str, Tensor]:
        """Compute the targets of the loss, without gradient, by name; they become ``batch.targets``.

        A target "return" is in units of the value head, as from `estimate_advantages`.

        Parameters
        ----------
        batch
            Segments ``[T, B]``.
        policy
            Distributions of the model at every step, ``[T, B]``.
        values
            Values of the model for all observations, in units of the value head: float32 ``[T + 1, B]``.
        """
        return {}

    @torch.no_grad()
    def prepare(self, model: Any, batch: Batch) -> None:
        """Compute targets that hold for all updates of a batch, before the first update."""
        if "batch" in self.targets_for:
            policy, values = model.evaluate(batch.obs, batch.first, batch.memory)
            batch.targets = self._changed(self.targets(model, batch, policy[:-1], values), batch)

    def _changed(self, targets: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Return targets after the changes of ``config.target_changes``."""
        for change in self._target_changes:
            targets = change(batch, targets)
        return targets

    def update_statistics(self, model: Any, batch: Batch, into: Any = None) -> None:
        """Update the running normalisations with a batch, after its last update; within its updates they are fixed.

        Parameters
        ----------
        model
            Model that learned from the batch.
        into
            Model that holds the normalisations; None: `model`.
        """
        into = into or model
        into.update_observation_statistics(batch.obs[:-1], batch.valid & ~batch.replayed)  # each step counts once
        if "return" in batch.targets:
            into.update_return_statistics(model.denormalize_value(batch.targets["return"]), batch.valid)

    @torch.no_grad()
    def update_layer_statistics(self, model: Any, batch: Batch) -> None:
        """Update the running statistics of layers with a batch, after its last update."""
        model.update_layer_statistics(batch.obs[:-1], batch.valid & ~batch.replayed)

    def minibatches(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the minibatch of each update: by default the whole batch, once.

        Parameters
        ----------
        batch
            Segments ``[T, B]``.
        generator
            Random numbers of the learner.
        """
        yield batch if self.needs_segments else batch.flatten()

    def should_stop_early(self, metrics: Metrics) -> bool:
        """Return whether to skip the batch's remaining updates, given the metrics of the last one."""
        return False

    def shuffled_minibatches(
        self, batch: Batch, size: int, generator: torch.Generator, passes: int = 1
    ) -> Iterator[Batch]:
        """Split a batch into random minibatches of `size` steps, drawn anew in each of several passes."""
        if self.needs_segments:
            require_whole_segments(size, self.config.segment_length)
            pool, number, count, select = batch, batch.num_segments, size // self.config.segment_length, batch.segments
        else:
            pool = batch.flatten()
            number, count, select = len(pool.reward), size, pool.transitions
        for _ in range(passes):
            if count >= number:
                yield pool
                continue
            order = torch.randperm(number, generator=generator, device="cpu")
            for index in order.split(count):
                yield select(index.to(batch.obs.device))

    def estimate_advantages(self, model: ActorCritic, batch: Batch, value: Tensor, lambda_: float) -> dict[str, Tensor]:
        """Return targets by GAE: "advantage", "return" and "old_value", in units of the value head.

        Parameters
        ----------
        batch
            Segments ``[T, B]``.
        value
            Values of the model for all observations, float32 ``[T + 1, B]``.
        lambda_
            Weight of longer returns.
        """
        advantage, target = gae(
            batch.reward, model.denormalize_value(value), batch.terminated, batch.truncated,
            gamma=self.config.gamma, lambda_=lambda_, valid=batch.valid,
        )  # fmt: skip
        return {
            "advantage": model.normalize_difference(advantage),
            "return": model.normalize_return(target),
            "old_value": value[:-1],
        }

    def gradient(
        self, model: Any, batch: Batch, autocast: AbstractContextManager[object],
        trained: Sequence[nn.Parameter] | None = None,
    ) -> tuple[Tensor, Metrics]:  # fmt: skip
        """Compute the loss's gradient, clipped to ``max_grad_norm``, into the parameters; return loss and metrics.

        Parameters
        ----------
        model, batch, autocast
            Model, minibatch, and context in which the networks run.
        trained
            The model's parameters, or one parameter over the memory of all (`penstock.nn.joined_if_adjacent`).
        """
        trained = list(model.parameters()) if trained is None else trained
        for parameter in trained:
            if parameter.grad is not None:
                parameter.grad.zero_()
        with autocast:
            loss, metrics = self.evaluate(model, batch)
        loss.backward()
        found = {name: value.detach() for name, value in metrics.items()}
        if self.config.num_learners > 1:
            average_gradients_(trained, loss, *found.values())
        norm = clip_norm_(trained, self.config.max_grad_norm)
        return loss.detach(), found | {"grad_norm": norm.detach()}

    def evaluate(self, model: Any, batch: Batch) -> tuple[Tensor, Metrics]:
        """Evaluate the model on a minibatch, compute the update's targets if it has any, and return the `loss`.

        Parameters
        ----------
        batch
            Transitions ``[M]``, or segments ``[T, B]`` if `needs_segments`.
        """
        policy, values = model.evaluate(batch.obs, batch.first, batch.memory)
        value = values
        if self.needs_segments:
            policy, value = policy[:-1], values[:-1]
        if "update" in self.targets_for:
            with torch.no_grad(), evaluating(model) as differs:
                aim, seen = policy, values.detach()
                if differs:  # targets are computed without the random draws of training mode
                    whole, seen = model.evaluate(batch.obs, batch.first, batch.memory)
                    aim = whole[:-1]
                batch.targets = self._changed(self.targets(model, batch, aim, seen), batch)
        return self._with_tensors(self.loss(batch, policy, value))

    def _with_tensors(self, found: Any) -> tuple[Tensor, Metrics]:
        """Return a loss and its metrics, with numbers converted to tensors; raise TypeError for anything else."""
        loss, metrics = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
        if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad and isinstance(metrics, dict)):
            about = f"shape {tuple(loss.shape)}, gradient {loss.requires_grad}" if isinstance(loss, Tensor) else loss
            raise TypeError(
                f"{type(self).__name__}.loss() must return (loss, metrics): a tensor of shape () that depends on the "
                f"network, and a dict of numbers; found {about}, and {type(metrics).__name__}"
            )
        return loss, {name: torch.as_tensor(value) for name, value in metrics.items()}

    def loss(self, batch: Batch, policy: Distribution, value: Tensor) -> tuple[Tensor, Metrics]:
        """Return the loss of a minibatch and its metrics (0-dimensional tensors by name).

        Parameters
        ----------
        batch
            Transitions ``[M]``, or segments ``[T, B]`` if `needs_segments`, with their targets.
        policy
            Distributions of the model at each step.
        value
            Values of the model at each step, in units of the value head: float32 ``[M]`` or ``[T, B]``.
        """
        raise TypeError(
            f"{type(self).__name__} defines no loss: an algorithm has a Config and a loss(batch, policy, value)"
        )

    def entropy_coef(self, batch: Batch) -> float:
        """Return the weight of the entropy bonus at this point of the run."""
        start, end = self.config.entropy_coef, self.config.entropy_coef_final
        if isinstance(start, float) and end is None:
            return start
        start = value_at("entropy_coef", start, batch.progress)
        return start if end is None else start + (end - start) * min(1.0, batch.progress)


class SegmentUpdater:
    """Updates a model from batches of segments; holds the optimiser and its random numbers.

    Parameters
    ----------
    algorithm, model
        Algorithm, and the model that learns.
    learning
        `state` of another `SegmentUpdater` to continue from; None: a new optimiser.

    Attributes
    ----------
    optimizer, generator
        The optimiser; random numbers that split batches into minibatches.
    autocast
        Context in which the networks run.
    gradient
        Computes the gradient of a minibatch, as `SegmentAlgorithm.gradient` does.
    """

    def __init__(self, algorithm: SegmentAlgorithm, model: Any, learning: dict[str, Any] | None = None) -> None:
        self._algorithm, self._model = algorithm, model
        self.optimizer = algorithm.build_optimizer(model)
        algorithm.set_learning_rate(self.optimizer, progress=0.0)
        self.generator = torch.Generator().manual_seed(algorithm.config.seed)
        self.autocast = algorithm.autocast(next(model.parameters()).device)
        self._training = algorithm.training_mode(model)
        self.load_state(learning)
        trained = joined_if_adjacent(list(model.parameters()))
        self.gradient: Gradient = PlannedGradient(algorithm, model, self.autocast, trained)

    def learn(
        self, batch: Batch, *, begin: Callable[[], object] = lambda: None,
        updated: Callable[[], object] = lambda: None, skipped: Callable[[str], object] = lambda problem: None,
    ) -> Metrics:  # fmt: skip
        """Make all updates of a batch, except non-finite ones; return the means of their metrics.

        Parameters
        ----------
        batch
            Segments; fills in its ``targets``.
        begin, updated
            Called before each update, and after it.
        skipped
            Called with the reason instead of `updated`, if the update was not finite.
        """
        algorithm, model = self._algorithm, self._model
        algorithm.set_learning_rate(self.optimizer, batch.progress)
        sums, count, is_finite = Metrics(), 0, True
        with torch.no_grad(), self.autocast:
            try:
                algorithm.prepare(model, batch)
            except GroupBroken:
                leave_group()
                algorithm.prepare(model, batch)
        for minibatch in algorithm.minibatches(batch, self.generator):
            if not minibatch.learn.any():
                continue  # the optimiser's momentum would still move the weights
            begin()
            with self._training:
                try:
                    loss, metrics = self.gradient(minibatch)
                except GroupBroken:
                    leave_group()
                    loss, metrics = self.gradient(minibatch)
            if (problem := not_finite(loss, metrics["grad_norm"])) is not None:
                is_finite = False
                skipped(problem)
                continue
            self.optimizer.step()
            updated()
            for name, value in metrics.items():
                sums[name] = sums[name] + value if name in sums else value
            count += 1
            if algorithm.should_stop_early(metrics):
                break
        if is_finite:  # non-finite numbers would stay in the statistics for good
            with torch.no_grad():
                algorithm.update_layer_statistics(model, batch)
                algorithm.update_statistics(model, batch)
        return {name: value / count for name, value in sums.items()}

    @property
    def step_size(self) -> float:
        """Learning rate of the last batch."""
        rate: float = self.optimizer.param_groups[0]["lr"]
        return rate

    def state(self) -> dict[str, Any]:
        """Return the state of the optimiser and the algorithm's learning state, as tensors and plain values."""
        return {"optimizer": self.optimizer.state_dict(), **self._algorithm.learning_state()}

    def load_state(self, learning: dict[str, Any] | None) -> None:
        """Continue from another learner's `state`; None: keep the optimiser, and reset the algorithm's own state."""
        if learning is not None:
            load_moments(self.optimizer, learning["optimizer"])
        self._algorithm.begin(self._model, learning)

    def apply_settings(self, config: Any) -> None:
        """Adopt new values of tunable settings."""
        self._algorithm.apply_settings(config)
        copy_settings(self.optimizer, self._algorithm.build_optimizer(self._model))


Gradient = Callable[[Batch], tuple[Tensor, Metrics]]
"""Computes the gradient of a minibatch into the parameters; returns loss and metrics."""


def not_finite(loss: Tensor, grad_norm: Tensor) -> str | None:
    """Return both numbers as text if either is not finite, else None; takes one transfer from the device."""
    if math.isfinite((loss + grad_norm).item()):
        return None
    return f"loss {loss.item()}, gradient norm {grad_norm.item()}"
