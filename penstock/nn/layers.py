"""Parts of networks: activations by name, initialisation, layer normalisation, choice of precision, memory limits."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from penstock.ipc import require_memory


class Tanh(nn.Module):
    """Hyperbolic tangent; in float32 on a CPU as ``1 - 2 sigmoid(-2x)``, which torch computes five times as fast.

    Both are within 2e-7 of the true value. A small mlp spends a third of its time in tanh. On a CPU the input is
    overwritten, because no other layer needs it. Exported programs and plans contain tanh itself.
    """

    def forward(self, x: Tensor) -> Tensor:
        is_read = torch.compiler.is_exporting() or torch._C._len_torch_dispatch_stack()
        if x.dtype != torch.float32 or x.device.type != "cpu" or is_read:
            return x.tanh()
        if torch.is_grad_enabled() and x.requires_grad:
            tangent: Tensor = _TanhBySigmoid.apply(x)
            return tangent
        return _tanh_by_sigmoid_(x)


class _TanhBySigmoid(torch.autograd.Function):
    """Tanh with its own derivative, ``1 - tanh^2``, for which only the result is stored."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        tangent = _tanh_by_sigmoid_(x)
        ctx.mark_dirty(tangent)
        ctx.save_for_backward(tangent)
        return tangent

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (tangent,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(gradient, tangent)


_ONE = torch.tensor(1.0, device="cpu")  # sub accepts an output tensor, rsub does not


def _tanh_by_sigmoid_(x: Tensor) -> Tensor:
    return torch.sub(_ONE, x.mul_(-2.0).sigmoid_(), alpha=2.0, out=x)


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}


HIDDEN_GAIN = math.sqrt(2.0)
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal(layer: Layer, gain: float = HIDDEN_GAIN) -> Layer:
    """Initialise a layer in place and return it: orthogonal weight (arXiv:1312.6120) times ``gain``, zero bias.

    The gain is sqrt(2) in hidden layers; 0.01 in a policy head, so that training starts from a nearly uniform
    policy; 1 in a value head.
    """
    nn.init.orthogonal_(layer.weight, gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def normalize_layers_(encoder: nn.Module) -> None:
    """Insert a normalisation between each layer of an encoder and its activation, in place.

    Each row is normalised by its own mean and variance: over all outputs of a linear layer, and over all channels and
    pixels of a convolution. A learned scale and shift per output or channel follow.

    Parameters
    ----------
    encoder : nn.Module
        Encoder; its layers are in ``nn.Sequential`` modules, possibly itself.
    """
    for block in [module for module in encoder.modules() if isinstance(module, nn.Sequential)]:
        for number in reversed(range(len(block) - 1)):
            layer = block[number]
            if not isinstance(block[number + 1], tuple(ACTIVATIONS.values())):
                continue
            if isinstance(layer, nn.Linear):
                block.insert(number + 1, nn.LayerNorm(layer.out_features))
            elif isinstance(layer, nn.Conv2d):
                block.insert(number + 1, nn.GroupNorm(1, layer.out_channels))


_FAST_BFLOAT16 = ({"amx_bf16"}, {"avx512_bf16", "AuthenticAMD"}, {"bf16"})  # all words of one set; the last is ARM's


def is_bfloat16(precision: str, device: torch.device) -> bool:
    """Return whether a network with this setting of precision computes in bfloat16 on a device."""
    return precision == "bfloat16" or (precision == "auto" and is_faster_in_bfloat16(device.type))


@functools.cache
def is_faster_in_bfloat16(kind: str) -> bool:
    """Return whether a kind of device ("cpu", "cuda") multiplies bfloat16 faster than float32.

    A CPU with AVX2 emulates it: the Nature CNN then learns ten times slower. Intel's AVX-512 BF16 without AMX has
    native products, but no faster, and conversions cost time.
    """
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    words = _cpu_words()
    return kind == "cpu" and any(needed <= words for needed in _FAST_BFLOAT16)


def _cpu_words(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """Return all words of the CPU's description: flags, vendor."""
    try:
        return set(cpuinfo.read_text().split())
    except OSError:
        return set()


class SpectralConv2d(nn.Conv2d):
    """Convolution whose weight, as a matrix ``[out, in * kernel]``, is divided by its largest singular value.

        W / sigma(W),    sigma(W) = |W^T u|

    Power iteration approximates the left singular vector ``u``, one step per forward pass in training mode
    (arXiv:1802.05957, algorithm 1). No gradient passes through ``u``.

    Attributes
    ----------
    u : Tensor
        float32 ``[out_channels]``, of length 1; part of the weights.
    """

    moves_with_weights = True
    u: Tensor

    def __init__(self, *sizes: Any, **named: Any) -> None:
        super().__init__(*sizes, **named)
        self.register_buffer("u", normalize(torch.ones(self.out_channels), dim=0))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve ``[N, C, H, W]``."""
        matrix = self.weight.flatten(1)
        if self.training:
            with torch.no_grad():
                self.u.copy_(normalize(matrix @ normalize(self.u @ matrix, dim=0), dim=0))
        # A copy: the next pass would change u before the gradient needs it.
        sigma = torch.linalg.vector_norm(self.u.clone() @ matrix)
        return self._conv_forward(x, self.weight / sigma, self.bias)


def require_memory_of_layers(sizes: Sequence[int], count: int = 1) -> None:
    """Raise MemoryError unless fully connected layers of these widths fit into available memory.

    Parameters
    ----------
    sizes
        Width of the input, then of each layer.
    count
        Number of such networks.
    """
    numbers = count * sum((before + 1) * after for before, after in pairwise(sizes))
    widths = " x ".join(map(str, sizes)) if len(sizes) <= 8 else f"{len(sizes) - 1} layers"
    require_memory(4 * numbers, f"a network of fully connected layers ({widths}: {numbers:,} float32)")


class Allowance(TorchDispatchMode):
    """Context that raises MemoryError when the tensors made in it exceed a number of bytes in total.

    Parameters
    ----------
    nbytes
        Limit for all tensors together, including freed ones.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes
        self._taken = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count the bytes of an operation's result, then run it."""
        kwargs = kwargs or {}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.name == "size" and isinstance(value, Sequence):
                dtype = kwargs.get("dtype") or torch.get_default_dtype()
                self._taken += math.prod(value) * dtype.itemsize
                if self._taken > self._nbytes:
                    shape = " x ".join(map(str, value))
                    raise MemoryError(f"a tensor of {shape} raises it to {self._taken:,} bytes, limit {self._nbytes:,}")
        return func(*args, **kwargs)
