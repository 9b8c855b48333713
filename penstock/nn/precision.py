"""The arithmetic that a device is made for, and where float32 stays."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn

_FAST_BFLOAT16 = ({"amx_bf16"}, {"avx512_bf16", "AuthenticAMD"}, {"bf16"})  # all of one of them; the last is ARM's


def is_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether a network of this precision, one of those a config may name, computes in bfloat16 on a device."""
    return precision == "bfloat16" or (precision == "auto" and is_faster_in_bfloat16(device.type))


@functools.cache
def is_faster_in_bfloat16(kind: str) -> bool:
    """Whether devices of a kind ("cpu", "cuda") multiply bfloat16 faster than float32.

    A CPU of AVX2 emulates it: the Nature CNN then takes more than ten times as long to learn. Intel's AVX-512 BF16
    without AMX multiplies it by itself, but no faster, and what is around the products takes longer.
    """
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    words = _cpu_words()
    return kind == "cpu" and any(needed <= words for needed in _FAST_BFLOAT16)


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Context in which layers compute in the precision of their inputs."""
    return torch.autocast(device.type, enabled=False) if torch.is_autocast_enabled(device.type) else nullcontext()


def is_native(*tensors: Tensor) -> bool:
    """Whether the native core computes with such tensors: float32, on the CPU."""
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def in_float32(head: nn.Module, features: Tensor) -> Tensor:
    """Output of a head, computed in float32 even within ``torch.autocast``."""
    with without_autocast(features.device):
        answer: Tensor = head(features.float())
        return answer


def _cpu_words(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """All words of what the CPU says of itself: its flags, its vendor."""
    try:
        return set(cpuinfo.read_text().split())
    except OSError:
        return set()
