"""Torch's optimisers as they are needed here: eager, and ready at once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import torch

Kind = TypeVar("Kind", bound=type[torch.optim.Optimizer])

METHODS = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def eager(kind: Kind) -> Kind:
    """An optimiser without what torch wraps around its methods for ``torch.compile``.

    The wrappers import ``torch._dynamo`` at their first call: one or two seconds before the first update of every run.
    Updates here are never compiled, and the methods are the same.
    """
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in METHODS}
    methods["step"] = torch.no_grad()(inspect.unwrap(kind.step))
    names = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return cast("Kind", type(kind.__name__, (kind,), {**names, **methods}))


Adam = eager(torch.optim.Adam)
RMSprop = eager(torch.optim.RMSprop)


def fused_adam(parameters: Iterable[torch.nn.Parameter], learning_rate: float, eps: float = 1e-8) -> torch.optim.Adam:
    """Adam as one kernel per update."""
    return Adam(parameters, lr=learning_rate, eps=eps, fused=True)
