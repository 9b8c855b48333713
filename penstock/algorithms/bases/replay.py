"""Base of algorithms that learn from replay: a target network, optimisers, and one update after another."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import as_if_made, fused_adam, go_on
from penstock.algorithms.arithmetic.td import linear_schedule, polyak_
from penstock.algorithms.bases.algorithm import Algorithm, Metrics, NonFiniteUpdate
from penstock.config import Config, ReplayConfig, Scheduled
from penstock.experience.run_replay import FirstPriorities
from penstock.nn import PolicyNetwork, average_gradients_, buffer_in, flatten_, foreign_buffers, joined, stretch_of
from penstock.replay import Prioritized, Uniform
from penstock.replay.settings import Sampler


class ReplayAlgorithm(Algorithm):
    """An algorithm over replayed transitions: subclass it, give a `Config`, a network and an `update`.

    Attributes
    ----------
    target
        The target network, in the learner alone: a copy of the model that `update` moves after it. Where the algorithm
        has none, the model.
    optimizers
        By name, in the learner alone.
    generator
        Of the learner's own random numbers.
    remarks
        What an update found that the user is to know; the learner shows and empties it.
    """

    Config: ClassVar[type[Config]] = ReplayConfig
    config: ReplayConfig
    data_path: str | type = "replay"
    has_target: ClassVar[bool] = True
    """Whether there is a target network. Without, `target` is the model itself."""

    target: Any
    optimizers: dict[str, torch.optim.Optimizer]
    _whole_target: Tensor
    _whole_model: Tensor
    _kept: list[tuple[nn.Module, str]]
    _trained: dict[str, list[nn.Parameter]]
    _rates: dict[str, Scheduled]
    _model: PolicyNetwork
    generator: torch.Generator
    remarks: list[str]

    def sampler(self) -> Sampler:
        """Return the sampler: uniform, or by priority with weights divided by the largest in the batch."""
        c = self.config
        if c.prioritized:
            return Prioritized(c.priority_alpha, c.priority_beta, normalize="batch")
        return Uniform()

    def first_priorities(self) -> FirstPriorities | None:
        """Function that computes the priorities of new rows without torch; None: the largest priority so far.

        Rollout workers call it. `act` then records value (of the action taken) and max_value.
        """
        return None

    def beta(self, progress: float) -> float | None:
        """Exponent of the importance weights at this point of the run; None without priorities."""
        c = self.config
        if c.prioritized:
            return linear_schedule(c.priority_beta, c.priority_beta_final, progress, 1.0)
        return None

    def trained_parameters(self, model: Any) -> dict[str, tuple[list[nn.Parameter], Scheduled]]:
        """Parameters that each loss trains, by the loss's name, with the initial learning rate."""
        raise NotImplementedError

    def build_optimizer(self, parameter: nn.Parameter, learning_rate: float) -> torch.optim.Optimizer:
        """Make the optimiser of all that one loss trains, seen as one parameter."""
        return fused_adam([parameter], learning_rate)

    def update(self, model: Any, batch: Any) -> tuple[Tensor, Metrics]:
        """Learn from one batch.

        Parameters
        ----------
        model
            What learns.
        batch
            A `TransitionBatch`, or what the algorithm's data path draws instead.

        Returns
        -------
        td_error : Tensor
            float32 ``[B]``, or of several critics ``[C, B]``: of each transition, whose largest magnitude is its new
            priority. Of a sequence, its priority.
        metrics : dict of str to Tensor
            What is to be reported: the means of these, which are computed when they are asked for.
        """
        raise NotImplementedError

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        """Make what only the learner has, or take it from what `learning_state` returned.

        Parameters
        ----------
        model
            What learns, its parameters in one row (see `penstock.nn.flatten_`).
        learning
            What to go on from.
        """
        device = next(model.parameters()).device
        self.remarks = []
        self._model = model
        self._kept = foreign_buffers(model)
        self.target = model
        if self.has_target:
            self.target = self.make_model(device).requires_grad_(False)
            flatten_(self.target)
            self._whole_target = stretch_of(list(self.target.parameters()))
            self._whole_model = stretch_of(list(model.parameters()))
            self.target.input = model.input  # one normalisation of observations for both
            self._kept_by_target = foreign_buffers(self.target)
        self.optimizers, self._trained, self._rates = {}, {}, {}
        for name, (parameters, rate) in self.trained_parameters(model).items():
            self.optimizers[name] = self.build_optimizer(joined(parameters), self.learning_rate(rate, 0.0))
            self._trained[name] = [parameter for parameter in parameters if parameter.requires_grad]
            self._rates[name] = rate
        self.generator = torch.Generator(device).manual_seed(self.config.seed)
        if learning is None:
            self.restart_target(model)
            return
        if self.has_target:
            self.target.load_state_dict(learning["target"])
        for name, optimizer in self.optimizers.items():
            go_on(optimizer, learning["optimizers"][name])
        generator = learning["generator"].cpu()
        if len(generator) == len(self.generator.get_state()):  # else it is of another kind of device
            self.generator.set_state(generator)

    def restart_target(self, model: PolicyNetwork) -> None:
        """Let the target network be the model."""
        if self.has_target:
            self.target.load_state_dict(model.state_dict())

    def move_target(self, tau: float) -> None:
        """Let the target network follow the model, ``theta^- <- tau theta + (1 - tau) theta^-``; by 1 it is copied.

        Parameters move. Buffers of an encoder of one's own, such as BatchNorm's running statistics, are copied.
        """
        polyak_([self._whole_target], [self._whole_model], tau)
        for place, own in zip(self._kept_by_target, self._kept, strict=True):
            buffer_in(place).copy_(buffer_in(own))

    def learning_state(self) -> dict[str, Any]:
        """State that only the learner has, as tensors and plain values."""
        return {
            **({"target": self.target.state_dict()} if self.has_target else {}),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "generator": self.generator.get_state(),
        }

    def take_settings(self, config: Any) -> None:
        """Go on with other values of tunable settings: every optimiser has those that it would be made with."""
        super().take_settings(config)
        for name, (_, rate) in self.trained_parameters(self._model).items():
            self._rates[name] = rate
            as_made = self.build_optimizer(nn.Parameter(torch.zeros(1)), self.learning_rate(rate, 0.0))
            as_if_made(self.optimizers[name], as_made)

    def inherit(self, learning: dict[str, Any]) -> None:
        """Go on with another's target network and optimisers, as its `learning_state` says; random numbers stay."""
        if self.has_target:
            self.target.load_state_dict(learning["target"])
        for name, optimizer in self.optimizers.items():
            go_on(optimizer, learning["optimizers"][name])

    def schedule_learning_rates(self, progress: float) -> None:
        """Set the optimisers' step sizes for this point of the run."""
        for name, optimizer in self.optimizers.items():
            self.set_learning_rate(optimizer, self._rates[name], progress)

    def minimize(
        self, name: str, loss: Tensor, max_grad_norm: float = math.inf, max_grad: float = math.inf
    ) -> Tensor:
        """Take one step of an optimiser down the gradient of `loss` with respect to its own parameters alone.

        Parameters
        ----------
        name, loss
            The optimiser's name among `optimizers`, and what it minimises.
        max_grad_norm
            The gradient is scaled down to this norm.
        max_grad
            Each of its elements is clipped to ``[-max_grad, max_grad]``.

        Returns
        -------
        Tensor
            The gradient's norm, before it was scaled down or clipped.

        Raises
        ------
        NonFiniteUpdate
            Loss or gradient is not finite.
        """
        optimizer = self.optimizers[name]
        (whole,) = optimizer.param_groups[0]["params"]
        whole.grad.zero_()
        loss.backward(inputs=self._trained[name])
        average_gradients_([whole], loss, *map(buffer_in, self._kept))
        norm = torch.linalg.vector_norm(whole.grad)
        if not math.isfinite((loss.detach() + norm).item()):
            raise NonFiniteUpdate(f"{name} loss {loss.item()}, gradient norm {norm.item()}")
        if max_grad_norm < math.inf:
            whole.grad.mul_((max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        if max_grad < math.inf:
            whole.grad.clamp_(-max_grad, max_grad)
        optimizer.step()
        if torch.is_autocast_enabled(norm.device.type):
            torch.clear_autocast_cache()  # it holds copies of the parameters that have just moved
        return norm
