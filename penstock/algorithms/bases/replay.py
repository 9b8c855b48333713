"""Base of algorithms that learn from replay: target network, optimisers, updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import copy_settings, fused_adam, load_moments
from penstock.algorithms.arithmetic.td import linear_schedule, polyak_
from penstock.algorithms.bases.algorithm import Algorithm, Metrics, NonFiniteUpdate, shrink_
from penstock.algorithms.bases.planned import RecordedUpdate
from penstock.config import Config, PrioritizedReplayConfig, ReplayConfig, Scheduled
from penstock.experience.run_replay import InitialPriorities
from penstock.nn import (
    PolicyNetwork,
    average_gradients_,
    buffer_in,
    evaluating,
    flatten_,
    foreign_buffers,
    joined,
    stretch_of,
)
from penstock.nn.mlp import without_autocast
from penstock.replay import Prioritized, Uniform
from penstock.replay.settings import Sampler


class ReplayAlgorithm(Algorithm):
    """Base of algorithms over replayed transitions: a subclass has a `Config`, a network, and `evaluate` or `update`.

    Attributes
    ----------
    target
        Target network, a copy that follows the model; without a target network, the model. Only in the learner.
    evaluating
        Context in which the model computes targets: evaluation mode. Only in the learner.
    optimizers
        Optimisers by name. Only in the learner.
    generator
        Random numbers of the learner.
    nonfinite
        In an update that a graph repeats, float32 ``[]``: 1 once a loss or gradient was not finite, after which the
        update changes nothing more. None: a non-finite update raises an error.
    recording
        Plan for which the present update is being recorded; None: the update only takes effect.
    """

    Config: ClassVar[type[Config]] = ReplayConfig
    config: ReplayConfig
    data_path: str | type = "replay"
    has_target: ClassVar[bool] = True
    """Whether there is a target network. Without one, `target` is the model itself."""
    scales_rewards: bool = False
    """Whether running returns are stored next to rewards, for `prepare` to scale rewards by them."""

    target: Any
    evaluating: AbstractContextManager[bool]
    optimizers: dict[str, torch.optim.Optimizer]
    generator: torch.Generator
    nonfinite: Tensor | None = None
    recording: RecordedUpdate | None = None

    def sampler(self) -> Sampler:
        """Return the sampler: uniform, or by priority with weights divided by the largest in the batch."""
        c = self.config
        if isinstance(c, PrioritizedReplayConfig) and c.prioritized:
            return Prioritized(c.priority_alpha, c.priority_beta, normalize="batch")
        return Uniform()

    def initial_priorities(self) -> InitialPriorities | None:
        """Return the function that computes priorities of new rows in rollout workers, without torch.

        It needs the columns value (of the action taken) and max_value, which `act` then records. None: new rows get the
        largest priority so far.
        """
        return None

    def beta(self, progress: float) -> float | None:
        """Return the exponent of the importance weights at this point of the run; None without priorities."""
        c = self.config
        if isinstance(c, PrioritizedReplayConfig) and c.prioritized:
            return linear_schedule(c.priority_beta, c.priority_beta_final, progress, 1.0)
        return None

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """Return the parameters that each loss trains, by the loss's name, with the initial learning rate."""
        raise NotImplementedError

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Make the optimiser of a loss, whose parameters are joined into one; each batch sets its learning rate."""
        return fused_adam([parameter], learning_rate)

    def prepare(self, model: Any, batch: Any) -> tuple[Any, Metrics]:
        """Return the batch that `update` learns from, and extra metrics: by default the drawn batch and no metrics."""
        return batch, {}

    def update(self, model: Any, batch: Any) -> tuple[Tensor, Metrics]:
        """Learn from one batch: take one step down the loss of `evaluate`. Override it for several losses.

        Parameters
        ----------
        model
            Network that learns.
        batch
            A `TransitionBatch`, or the kind of batch that the algorithm's data path draws instead.

        Returns
        -------
        td_error : Tensor
            TD errors of the transitions, float32 ``[B]``, or ``[C, B]`` of several critics; their largest magnitude is
            the transition's new priority. For sequences, the priorities themselves, ``[B]``.
        metrics : dict of str to Tensor
            Metrics; their means are reported.
        """
        td_error, loss, metrics = self.evaluate(model, batch)
        grad_norm = self.minimize(next(iter(self.optimizers)), loss, max_grad_norm=self.max_grad_norm)
        self.maybe_update_target(batch.number)
        if self.nonfinite is None and self.recording is None:
            self.after_update(model, batch, metrics)
        return td_error.detach(), {"loss": loss, **metrics, "grad_norm": grad_norm}

    def evaluate(self, model: Any, batch: Any) -> tuple[Tensor, Tensor, Metrics]:
        """Return the TD errors, the loss and the metrics of a batch; parameters and errors as for `update`."""
        raise TypeError(
            f"{type(self).__name__} defines no loss: an algorithm has a Config and an evaluate(model, batch), or an "
            "update(model, batch)"
        )

    @property
    def max_grad_norm(self) -> float:
        """Norm to which `update` scales a larger gradient down."""
        return math.inf

    def maybe_update_target(self, number: int) -> None:
        """Move the target network after the update with this number. Does nothing by default."""

    def after_update(self, model: Any, batch: Any, metrics: Metrics) -> None:
        """Hook after an update, for work that plans and graphs do not repeat. Does nothing by default."""

    def update_kind(self, number: int) -> Hashable:
        """Return the kind of an update by its number; updates of a kind are one computation (`repeatable_updates`)."""
        return None

    def reason_not_to_capture(self) -> str | None:
        """Return why no graph can repeat the updates; None if no reason is known."""
        if (reason := self.reason_not_to_repeat()) is not None:
            return reason
        others = [type(each).__name__ for each in self.optimizers.values() if not hasattr(each, "on_device")]
        return f"{others[0]} needs numbers from the host at each step" if others else None

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        """Create the learner's own state, or restore it from a `learning_state`.

        Parameters
        ----------
        model
            Network that learns, with its parameters in one stretch of memory (see `penstock.nn.flatten_`).
        learning
            State to continue from; None: a new state.
        """
        device = next(model.parameters()).device
        self.remarks = []
        self._model = model
        self._kept = foreign_buffers(model)
        self.evaluating = evaluating(model)
        self.target = model
        if self.has_target:
            self.target = self.make_model(device).requires_grad_(False)
            flatten_(self.target)
            self._whole_target = stretch_of(list(self.target.parameters()))
            self._whole_model = stretch_of(list(model.parameters()))
            self.target.input = model.input  # one normalisation of observations for both
            self._kept_by_target = foreign_buffers(self.target)
        trained = self.trained_parameters(model)
        self._rates = {name: rate for name, (_, rate) in trained.items()}
        self._trained = {name: [each for each in own if each.requires_grad] for name, (own, _) in trained.items()}
        self._constrained = {name: _constrained_by(model, own) for name, (own, _) in trained.items()}
        self.optimizers = {
            name: self.build_optimizer(joined(own), self.learning_rate(rate, 0.0))
            for name, (own, rate) in trained.items()
        }
        self.generator = torch.Generator(device).manual_seed(self.config.seed)
        if learning is None:
            self.reset_target(model)
            return
        self.inherit(learning)
        generator = learning["generator"].cpu()
        if len(generator) == len(self.generator.get_state()):  # else it comes from another kind of device
            self.generator.set_state(generator)

    def reset_target(self, model: PolicyNetwork) -> None:
        """Copy the model to the target network, if there is one."""
        if self.has_target:
            self.target.load_state_dict(model.state_dict())

    def update_target(self, tau: float) -> None:
        """Move the target network towards the model, ``theta^- <- tau theta + (1 - tau) theta^-``; 1 copies it.

        Parameters move. Buffers of custom encoders, such as BatchNorm's running statistics, are copied.
        """
        self.change(partial(self._update_target, tau))

    def change(self, apply: Callable[[], Any], read: Sequence[Tensor] = ()) -> None:
        """Call `apply`, which changes networks and reads the tensors `read`, now and in each run of the plan."""
        if self.recording is not None:
            self.recording.change(apply, read)
        else:
            apply()

    def _update_target(self, tau: float) -> None:
        part = tau if self.nonfinite is None else tau * (1.0 - self.nonfinite)
        polyak_([self._whole_target], [self._whole_model], part)
        for place, own in zip(self._kept_by_target, self._kept, strict=True):
            buffer_in(place).copy_(buffer_in(own))

    def learning_state(self) -> dict[str, Any]:
        """Return the learner's own state, as tensors and plain values."""
        return {
            **({"target": self.target.state_dict()} if self.has_target else {}),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "generator": self.generator.get_state(),
        }

    def apply_settings(self, config: Any) -> None:
        """Adopt new values of tunable settings, also in the optimisers."""
        super().apply_settings(config)
        self._rates = {name: rate for name, (_, rate) in self.trained_parameters(self._model).items()}
        for optimizer in self.optimizers.values():
            copy_settings(optimizer, self.build_optimizer(nn.Parameter(torch.zeros(1)), 0.0))

    def inherit(self, learning: dict[str, Any]) -> None:
        """Take target network and optimisers from another learner's `learning_state`, but not its random numbers."""
        if self.has_target:
            self.target.load_state_dict(learning["target"])
        for name, optimizer in self.optimizers.items():
            load_moments(optimizer, learning["optimizers"][name])

    def schedule_learning_rates(self, progress: float) -> None:
        """Set the learning rates of all optimisers. See `set_learning_rate`."""
        for name, optimizer in self.optimizers.items():
            self.set_learning_rate(optimizer, progress, self._rates[name])

    def minimize(self, name: str, loss: Tensor, max_grad_norm: float = math.inf, max_grad: float = math.inf) -> Tensor:
        """Take one step of an optimiser down the gradient of `loss` with respect to its own parameters alone.

        Modules with a method ``constrain_`` then project their parameters, if the step moved any of them.

        Parameters
        ----------
        name, loss
            Name of the optimiser among `optimizers`, and its loss, 0-dimensional.
        max_grad_norm
            Norm to which a larger gradient is scaled down.
        max_grad
            Bound to which each element is clipped, ``[-max_grad, max_grad]``.

        Returns
        -------
        Tensor
            Norm of the gradient before scaling and clipping, 0-dimensional.

        Raises
        ------
        NonFiniteUpdate
            Loss or gradient is not finite.
        """
        if self.recording is not None:
            step = partial(self._step, name, max_grad_norm=max_grad_norm, max_grad=max_grad)
            return self.recording.minimize(loss, self._trained[name], step)
        (whole,) = self.optimizers[name].param_groups[0]["params"]
        whole.grad.zero_()
        with without_autocast(loss.device):  # gradients have the precision of the forward pass
            if self.nonfinite is None:
                loss.backward(inputs=self._trained[name])
            else:  # autograd may accumulate gradients on a stream other than the graph's
                trained = self._trained[name]
                gradients = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
                torch._foreach_copy_([each.grad for each in trained if each.grad is not None], gradients)
        return self._step(name, loss, max_grad_norm, max_grad)

    def _step(self, name: str, loss: Tensor, max_grad_norm: float = math.inf, max_grad: float = math.inf) -> Tensor:
        """Take the step of `minimize` down the gradient that the parameters hold."""
        optimizer = self.optimizers[name]
        (whole,) = optimizer.param_groups[0]["params"]
        if self.config.num_learners > 1:
            average_gradients_([whole], loss, *map(buffer_in, self._kept))
        norm = torch.linalg.vector_norm(whole.grad)
        if self.nonfinite is not None:
            self.nonfinite.copy_(torch.maximum(self.nonfinite, (~torch.isfinite(loss.detach() + norm)).float()))
        elif not math.isfinite((loss.detach() + norm).item()):
            raise NonFiniteUpdate(f"{name} loss {loss.item()}, gradient norm {norm.item()}")
        if max_grad_norm < math.inf:
            shrink_(whole.grad, norm, max_grad_norm)
        if max_grad < math.inf:
            whole.grad.clamp_(-max_grad, max_grad)
        optimizer.step()
        for module in self._constrained[name]:
            module.constrain_()
        if torch.is_autocast_enabled(norm.device.type):
            torch.clear_autocast_cache()  # copies of the parameters from before the step
        return norm


def _constrained_by(model: nn.Module, parameters: list[nn.Parameter]) -> list[Any]:
    """Return the modules of a network with a method ``constrain_`` that have one of these parameters."""
    trained = {id(parameter) for parameter in parameters}
    return [
        module for module in model.modules()
        if hasattr(module, "constrain_") and any(id(own) in trained for own in module.parameters(recurse=False))
    ]  # fmt: skip
