"""Calls of the native core on tensors: when they are possible, and who sees them.

A dispatch mode of torch sees operations of torch alone. So tensors that one watches are computed by torch, unless the
mode is a `Watcher`, which each of these calls then tells of itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from penstock._native import Layers


class Watcher(Protocol):
    """Dispatch mode that is told of calls of the native core, behind each; tensors are those of the calls."""

    def layers_forward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, *, count: int,
        in_bf16: bool,
    ) -> None:  # fmt: skip
        """Layers were passed."""

    def layers_backward(
        self, layers: Layers, x: Tensor, parameters: Sequence[Tensor], kept: Tensor, out: Tensor, gradient: Tensor,
        d_x: Tensor | None, added_to: Sequence[Tensor], *, count: int, in_bf16: bool,
    ) -> None:  # fmt: skip
        """Gradients of a pass were computed; those of parameters were added to tensors."""

    def squashed_sample(
        self, outputs: Tensor, noise: Tensor, action: Tensor, log_prob: Tensor, *, centre: float, reach: float
    ) -> None:
        """Squashed normal actions were drawn."""

    def squashed_gradient(
        self, outputs: Tensor, noise: Tensor, action: Tensor, d_action: Tensor, d_log_prob: Tensor, d_outputs: Tensor,
        *, centre: float, reach: float,
    ) -> None:  # fmt: skip
        """The gradient of the outputs that such actions were drawn from was computed."""


class _Here(threading.local):
    watcher: Watcher | None = None


_here = _Here()


def watcher() -> Watcher | None:
    """Return the watcher of this thread's calls, if any."""
    return _here.watcher


@contextmanager
def seen_by(watcher: Watcher) -> Iterator[None]:
    """Within the block, tell a watcher of calls."""
    before, _here.watcher = _here.watcher, watcher
    try:
        yield
    finally:
        _here.watcher = before


def is_native(*tensors: Tensor) -> bool:
    """Return whether the native core can compute with these tensors: float32, on the CPU, and neither exported nor
    seen by a dispatch mode, unless it is a `Watcher`."""
    is_float32 = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    is_hidden = not torch._C._len_torch_dispatch_stack() or _here.watcher is not None
    return is_float32 and is_hidden and not torch.compiler.is_exporting()
