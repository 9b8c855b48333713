"""The arithmetic that a device is made for."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

_BFLOAT16_IN_CPUS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86, x86, ARM


def is_bfloat16(precision: str, device: torch.device) -> bool:
    """Whether a network of this precision, one of those a config may name, computes in bfloat16 on a device."""
    return precision == "bfloat16" or (precision == "auto" and multiplies_bfloat16(device.type))


@functools.cache
def multiplies_bfloat16(kind: str) -> bool:
    """Whether devices of a kind ("cpu", "cuda") multiply bfloat16 by themselves.

    Where they do not, it is emulated: on a CPU of AVX2 the Nature CNN then takes more than ten times as long to learn.
    """
    if kind == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and not _BFLOAT16_IN_CPUS.isdisjoint(_cpu_flags())


def _cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> set[str]:
    """All words of what the CPU says of itself, its flags among them."""
    try:
        return set(cpuinfo.read_text().split())
    except OSError:
        return set()
