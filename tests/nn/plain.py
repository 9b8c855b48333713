"""Plain observations and actions, and what networks are given and asked."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from penstock.envs.spaces import ActionSpec, ObservationSpec
from tests.nn.composites import random_rows

VECTOR = ObservationSpec((4,), "float32")
SCALAR = ObservationSpec((), "float32")
DISCRETE = ObservationSpec((), "int64", num_values=6)
IMAGE = ObservationSpec((36, 36, 3), "uint8")
CHOICE = ActionSpec((), "int64", num_actions=3)
TORQUE = ActionSpec((2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))


def observations(spec: ObservationSpec, *leading: int, seed: int = 0) -> Tensor:
    """Random ones, ``[*leading, *shape]``."""
    if spec.parts:
        return random_rows(spec, *leading, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    if spec.num_values is not None:
        return torch.randint(spec.num_values, leading, generator=generator)
    if spec.dtype == "uint8":
        return torch.randint(256, (*leading, *spec.shape), generator=generator, dtype=torch.uint8)
    return torch.randn(*leading, *spec.shape, generator=generator)


def act(network: Any, x: Tensor) -> Any:
    """Distribution and memory of a network without memory that is shown these rows."""
    return network.act(x, torch.zeros(len(x), dtype=torch.bool), network.initial_state(len(x)))


def runs(module: nn.Module) -> list[int]:
    """List that grows with every call of ``module``."""
    calls: list[int] = []
    module.register_forward_hook(lambda *_: calls.append(1))
    return calls
