"""Torch's optimisers as they are needed here: eager, and ready at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch


def plain(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of an optimiser without what torch has wrapped around it, or would yet, and without gradients."""
    made = torch.no_grad()(inspect.unwrap(method))
    made.hooked = True  # else torch wraps a step once more when the first optimiser is made, for profilers and hooks
    return made


class Eager(torch.optim.Optimizer):
    """An optimiser without what torch wraps around its methods for ``torch.compile``.

    The wrappers import ``torch._dynamo`` at their first call: one or two seconds before the first update of every run.
    Updates here are never compiled, and the methods are the same. One of torch's own becomes such a one so::

        class SGD(Eager, torch.optim.SGD):
            step = plain(torch.optim.SGD.step)
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = plain(torch.optim.Optimizer.load_state_dict)


def go_on(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    """Load what an optimiser has gathered. Its settings stay those that it was made with: they may be new ones.

    Parameters
    ----------
    optimizer
        Of the same kind, for the same parameters.
    saved
        What its ``state_dict`` returned.
    """
    settings = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(dict(saved))
    for group, mine in zip(optimizer.param_groups, settings, strict=True):
        group.update(mine)


class Adam(Eager, torch.optim.Adam):
    """Kingma and Ba 2014 (arXiv:1412.6980)."""

    step = plain(torch.optim.Adam.step)


class TorchRMSProp(Eager, torch.optim.RMSprop):
    """Tieleman and Hinton 2012, as torch has it; `penstock.algorithms.arithmetic.rmsprop` has that of the papers."""

    step = plain(torch.optim.RMSprop.step)


class RAdam(Eager, torch.optim.RAdam):
    """Liu et al. 2020 (arXiv:1908.03265)."""

    step = plain(torch.optim.RAdam.step)


def fused_adam(
    parameters: Iterable[torch.nn.Parameter], learning_rate: float, eps: float = 1e-8, beta1: float = 0.9
) -> Adam:
    """Adam as one kernel per update."""
    return Adam(parameters, lr=learning_rate, betas=(beta1, 0.999), eps=eps, fused=True)
