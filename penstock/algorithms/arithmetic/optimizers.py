"""Torch's optimisers without their wrappers for ``torch.compile``, which delay the first update."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from penstock._native import adam_step
from penstock.config import SegmentConfig, Tunable, require
from penstock.nn.mlp import is_native


def plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of an optimiser without torch's wrappers, and without gradients."""
    made = torch.no_grad()(inspect.unwrap(method))
    made.hooked = True  # else torch wraps `step` again when the first optimiser is made, for profilers and hooks
    return made


class Eager(torch.optim.Optimizer):
    """Optimiser without torch's wrappers for ``torch.compile``.

    The wrappers import ``torch._dynamo`` at their first call: one or two seconds before the first update of every run.
    Penstock's updates are never compiled, and the methods are the same. For one of torch's optimisers::

        class SGD(Eager, torch.optim.SGD):
            step = plain(torch.optim.SGD.step)
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = plain(torch.optim.Optimizer.load_state_dict)


def load_moments(optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Load the moments of a ``state_dict`` into an optimiser; keep its settings, which may have changed since."""
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(dict(state_dict))
    for group, mine in zip(optimizer.param_groups, settings, strict=True):
        group.update(mine)


def copy_settings(optimizer: torch.optim.Optimizer, new: torch.optim.Optimizer) -> None:
    """Give all groups of an optimiser the settings of a new one's first group; keep learning rate and moments."""
    settings = {name: value for name, value in new.param_groups[0].items() if name not in ("params", "lr")}
    for group in optimizer.param_groups:
        group.update(settings)


@dataclass(frozen=True)
class OnDevice:
    """Numbers that steps within a CUDA graph read on the device.

    Attributes
    ----------
    learning_rate
        Step size, float32 ``[]``.
    nonfinite
        float32 ``[]``; 1: the step changes nothing.
    """

    learning_rate: torch.Tensor
    nonfinite: torch.Tensor


def step_on_device(optimizer: torch.optim.Optimizer, numbers: OnDevice, kernel: Callable[..., object]) -> None:
    """Take a step of fused Adam or AdamW without numbers from the host; the optimiser must have taken one before.

    Overloads are named, because torch would convert a one-element tensor to a number, and wait for the device.
    """
    for group in optimizer.param_groups:
        moved = [parameter for parameter in group["params"] if parameter.grad is not None]
        states = [optimizer.state[parameter] for parameter in moved]
        steps, (beta1, beta2) = [of["step"] for of in states], group["betas"]
        torch.ops.aten._foreach_add_.Tensor(steps, 1.0 - numbers.nonfinite)
        kernel(
            moved, [parameter.grad for parameter in moved], [of["exp_avg"] for of in states],
            [of["exp_avg_sq"] for of in states], [], steps, lr=numbers.learning_rate, beta1=beta1, beta2=beta2,
            weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
            found_inf=numbers.nonfinite,
        )  # fmt: skip


class Adam(Eager, torch.optim.Adam):
    """Adam (Kingma and Ba 2014, arXiv:1412.6980)."""

    on_device: OnDevice | None = None
    """Numbers of a step within a CUDA graph; None: the step reads the groups' settings."""
    _step_of_any = plain(torch.optim.Adam.step)

    @plain
    def step(self, closure: Any = None) -> None:
        """Take one step: on a CPU by the native core, else by one call of torch's kernel for every group."""
        if self.on_device is not None:
            step_on_device(self, self.on_device, torch.ops.aten._fused_adam_.tensor_lr)
            return
        groups = [[each for each in group["params"] if each.grad is not None] for group in self.param_groups]
        is_plain = all(group["fused"] and not group["weight_decay"] for group in self.param_groups)
        if not is_plain or not all(self.state.get(parameter) for moved in groups for parameter in moved):
            self._step_of_any(closure)
            return
        for group, moved in zip(self.param_groups, groups, strict=True):
            states, (beta1, beta2) = [self.state[parameter] for parameter in moved], group["betas"]
            read = [*moved, *(each.grad for each in moved)]
            if is_native(*read) and all(each.is_contiguous() for each in read):
                places = [
                    tensor.data_ptr() for each, of in zip(moved, states, strict=True)
                    for tensor in (each, each.grad, of["exp_avg"], of["exp_avg_sq"], of["step"])
                ]  # fmt: skip
                sizes, threads = [each.numel() for each in moved], torch.get_num_threads()
                adam_step(places, sizes, beta1, beta2, group["lr"], group["eps"], threads)
                continue
            steps = [of["step"] for of in states]
            torch._foreach_add_(steps, 1.0)
            torch._fused_adam_(
                moved, [parameter.grad for parameter in moved],
                [of["exp_avg"] for of in states], [of["exp_avg_sq"] for of in states], [], steps,
                lr=group["lr"], beta1=beta1, beta2=beta2, weight_decay=0.0, eps=group["eps"], amsgrad=False,
                maximize=False,
            )  # fmt: skip


class AdamW(Eager, torch.optim.AdamW):
    """Adam with decoupled weight decay, ``theta <- (1 - learning_rate * weight_decay) theta`` (arXiv:1711.05101)."""

    on_device: OnDevice | None = None
    """As for `Adam`; requires fused parameters."""
    _step_of_any = plain(torch.optim.AdamW.step)

    @plain
    def step(self, closure: Any = None) -> None:
        """Take one step."""
        if self.on_device is not None:
            step_on_device(self, self.on_device, torch.ops.aten._fused_adamw_.tensor_lr)
        else:
            self._step_of_any(closure)


class TorchRMSProp(Eager, torch.optim.RMSprop):
    """RMSProp (Tieleman and Hinton 2012) as in torch; for the papers', see `penstock.algorithms.arithmetic.rmsprop`."""

    step = plain(torch.optim.RMSprop.step)


class RAdam(Eager, torch.optim.RAdam):
    """Rectified Adam (Liu et al. 2020, arXiv:1908.03265)."""

    step = plain(torch.optim.RAdam.step)


def fused_adam(
    parameters: Iterable[torch.nn.Parameter], learning_rate: float = 0.0, eps: float = 1e-8, beta1: float = 0.9,
    beta2: float = 0.999,
) -> Adam:  # fmt: skip
    """Make an Adam that runs one kernel per update; `Algorithm.set_learning_rate` sets its learning rate."""
    return Adam(parameters, lr=learning_rate, betas=(beta1, beta2), eps=eps, fused=True)


@dataclass(frozen=True, kw_only=True)
class AdamConfig(SegmentConfig):
    """Settings of Adam (arXiv:1412.6980)."""

    adam_beta1: Tunable[float] = 0.9
    """Decay rate of the running mean of gradients."""
    adam_beta2: Tunable[float] = 0.999
    """Decay rate of the running mean of squared gradients."""
    adam_eps: Tunable[float] = 1e-5
    """Constant added to the root of the mean square."""

    def validate(self) -> None:
        super().validate()
        for name in ("adam_beta1", "adam_beta2"):
            require(0.0 <= getattr(self, name) < 1.0, name, getattr(self, name), "0 or more, and less than 1")
        require(0.0 < self.adam_eps < math.inf, "adam_eps", self.adam_eps, "more than 0, and finite")


def build_adam(config: AdamConfig, parameters: Iterable[torch.nn.Parameter]) -> Adam:
    """Make the optimiser that a config describes; `Algorithm.set_learning_rate` sets its learning rate."""
    return fused_adam(list(parameters), eps=config.adam_eps, beta1=config.adam_beta1, beta2=config.adam_beta2)
