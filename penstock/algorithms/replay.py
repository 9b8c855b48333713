"""What algorithms that learn from replay have in common: a target network, optimisers, and one update after another."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from penstock.algorithms.base import Algorithm, Metrics
from penstock.config import Config, ReplayConfig
from penstock.experience.transition_batch import TransitionBatch
from penstock.nn import PolicyNetwork
from penstock.replay import Uniform
from penstock.replay.settings import Sampler


class NonFiniteUpdate(ArithmeticError):
    """A loss or gradient was not finite; the step was not taken."""


class ReplayAlgorithm(Algorithm):
    """An algorithm over replayed transitions: subclass it, give a `Config`, a network and an `update`.

    Attributes
    ----------
    target
        The target network, in the learner alone: a copy of the model that `update` moves after it.
    optimizers
        By name, in the learner alone.
    generator
        Of the learner's own random numbers.
    """

    Config: ClassVar[type[Config]] = ReplayConfig
    config: ReplayConfig
    td_priorities: bool = False
    """True: `act` records value (of the action taken) and max_value, from which workers set initial priorities."""

    target: Any
    optimizers: dict[str, torch.optim.Optimizer]
    generator: torch.Generator

    def sampler(self) -> Sampler:
        """How transitions are drawn."""
        return Uniform()

    def beta(self, progress: float) -> float | None:
        """Exponent of the importance weights at this point of the run; None without priorities."""
        return None

    def build_optimizers(self, model: Any) -> dict[str, torch.optim.Optimizer]:
        """Make the optimisers, each with the learning rate that its schedule starts from."""
        raise NotImplementedError

    def update(self, model: Any, batch: TransitionBatch) -> tuple[Tensor, Metrics]:
        """Learn from one batch.

        Returns
        -------
        td_error : Tensor
            float32 ``[B]``: of each transition, for its priority.
        metrics : dict of str to Tensor
            What is to be reported, 0-dimensional.
        """
        raise NotImplementedError

    def begin(self, model: PolicyNetwork, learning: dict[str, Any] | None = None) -> None:
        """Make what only the learner has, or take it from what `learning_state` returned."""
        device = next(model.parameters()).device
        self.target = self.build_model().to(device).requires_grad_(False)
        self.optimizers = self.build_optimizers(model)
        self._base_rates = {name: optimizer.param_groups[0]["lr"] for name, optimizer in self.optimizers.items()}
        self.generator = torch.Generator(device).manual_seed(self.config.seed)
        if learning is None:
            self.restart_target(model)
            return
        self.target.load_state_dict(learning["target"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(learning["optimizers"][name])
        self.generator.set_state(learning["generator"].cpu())

    def restart_target(self, model: PolicyNetwork) -> None:
        """Let the target network be the model."""
        self.target.load_state_dict(model.state_dict())

    def learning_state(self) -> dict[str, Any]:
        """What only the learner has, as tensors and plain values."""
        return {
            "target": self.target.state_dict(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            "generator": self.generator.get_state(),
        }

    def schedule_learning_rates(self, progress: float) -> None:
        """Set the optimisers' step sizes for this point of the run."""
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate(self._base_rates[name], progress)

    def minimize(self, name: str, loss: Tensor, max_grad_norm: float = math.inf) -> Tensor:
        """Take one step of an optimiser down the gradient of `loss` with respect to its own parameters alone.

        Returns
        -------
        Tensor
            The gradient's norm, before it was scaled down to `max_grad_norm`.

        Raises
        ------
        NonFiniteUpdate
            Loss or gradient is not finite.
        """
        optimizer = self.optimizers[name]
        parameters = optimizer.param_groups[0]["params"]
        optimizer.zero_grad()
        loss.backward(inputs=parameters)
        norm = torch.nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        if not math.isfinite((loss.detach() + norm).item()):
            raise NonFiniteUpdate(f"{name} loss {loss.item()}, gradient norm {norm.item()}")
        optimizer.step()
        return norm
