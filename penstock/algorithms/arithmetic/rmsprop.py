"""RMSProp as in TensorFlow 1 (Tieleman and Hinton 2012), with epsilon inside the root or outside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from penstock.algorithms.arithmetic.optimizers import Eager
from penstock.config import SegmentConfig, Tunable, require


@dataclass(frozen=True, kw_only=True)
class RMSPropConfig(SegmentConfig):
    """Settings of RMSProp."""

    rmsprop_decay: Tunable[float] = 0.99
    """Decay rate of the running mean of squared gradients, which begins at 0 (in TensorFlow 1 at 1)."""
    rmsprop_eps: Tunable[float] = 0.01
    """Constant that bounds steps when gradients are small."""
    rmsprop_eps_inside: bool = True
    """True: g / sqrt(s + eps), as in TensorFlow 1 and the papers' code; False: g / (sqrt(s) + eps)."""

    def validate(self) -> None:
        super().validate()
        require(0.0 <= self.rmsprop_decay < 1.0, "rmsprop_decay", self.rmsprop_decay, "from 0 to less than 1")
        is_number = 0.0 < self.rmsprop_eps < math.inf
        require(is_number, "rmsprop_eps", self.rmsprop_eps, "a finite number of more than 0")


class RMSProp(Eager):
    """RMSProp: gradients divided by the root of a running mean of their squares.

        s     <- decay * s + (1 - decay) * g^2
        theta <- theta - lr * g / sqrt(s + eps)          inside, as in TensorFlow
        theta <- theta - lr * g / (sqrt(s) + eps)        outside, as in PyTorch

    s begins at 0, as in PyTorch; in TensorFlow it begins at 1, which makes the first steps smaller. Only parameters
    with a gradient change, and the state exists from the beginning: processes that share the optimiser need both
    (arXiv:1602.01783, section 4).

    Parameters
    ----------
    parameters
        Trained parameters.
    lr
        Learning rate.
    decay
        Decay of the running mean.
    eps, eps_inside
        Epsilon, and whether it is inside the root.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], lr: float, *, decay: float, eps: float, eps_inside: bool
    ) -> None:
        super().__init__(parameters, {"lr": lr, "decay": decay, "eps": eps, "eps_inside": eps_inside})
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {"square_average": torch.zeros_like(parameter)}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the parameters by one step down their gradients."""
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not moved:
                continue
            gradients: list[Tensor] = [parameter.grad for parameter in moved]
            squares: list[Tensor] = [self.state[parameter]["square_average"] for parameter in moved]
            torch._foreach_mul_(squares, group["decay"])
            torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - group["decay"])
            if group["eps_inside"]:
                denominators = torch._foreach_add(squares, group["eps"])
                torch._foreach_sqrt_(denominators)
            else:
                denominators = torch._foreach_sqrt(squares)
                torch._foreach_add_(denominators, group["eps"])
            torch._foreach_addcdiv_(moved, gradients, denominators, -group["lr"])


def build_rmsprop(config: RMSPropConfig, parameters: Iterable[nn.Parameter]) -> RMSProp:
    """Make the optimiser that a config describes; `Algorithm.set_learning_rate` sets its learning rate."""
    inside = config.rmsprop_eps_inside
    return RMSProp(parameters, 0.0, decay=config.rmsprop_decay, eps=config.rmsprop_eps, eps_inside=inside)
