"""Composite observations: their specs, and rows packed by hand with numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from penstock.envs.spaces import ROW_ALIGNMENT, ActionSpec, ObservationPart, ObservationSpec

CHOICE = ActionSpec((), "int64", num_actions=5)
CHOICES = ActionSpec((3,), "int64", nvec=(2, 4, 3), starts=(0, 0, 0))
BITS = ActionSpec((2, 2), "int8", nvec=(2,) * 4, starts=(0,) * 4)
TORQUE = ActionSpec((3,), "float32", low=(-1.0,) * 3, high=(1.0,) * 3)
MIXED = ActionSpec((), "", low=(-1.0,) * 3, high=(1.0,) * 3, parts=(("move", TORQUE), ("press", CHOICES)))

ARM = ObservationSpec((3,), "float32")
MATRIX = ObservationSpec((2, 3), "float32")
SPEED = ObservationSpec((), "float64")
ROOM = ObservationSpec((), "int64", num_values=4)
CARDS = ObservationSpec((3,), "int64", nvec=(2, 3, 4), starts=(0, 0, 0))
LAMPS = ObservationSpec((5,), "int8")
CAMERA = ObservationSpec((36, 36, 3), "uint8")
TINY = ObservationSpec((4, 9, 7), "uint8")


def composite(parts: Mapping[str, ObservationSpec], num_masked: int = 0) -> ObservationSpec:
    """Spec of an observation of these parts, with a mask of `num_masked` values, if any, behind the first."""
    offset, placed, mask = 0, [], None
    for number, (path, spec) in enumerate(parts.items()):
        placed.append(ObservationPart(path, spec, offset))
        offset = _aligned(offset + _nbytes(spec))
        if num_masked and number == 0:
            mask = ObservationPart("action_mask", ObservationSpec((num_masked,), "bool"), offset)
            offset = _aligned(offset + num_masked)
    return ObservationSpec((offset,), "uint8", parts=tuple(placed), mask=mask)


def pack(observation: ObservationSpec, values: Mapping[str, np.ndarray], mask: np.ndarray | None = None) -> Tensor:
    """Rows uint8 ``[..., nbytes]`` of the parts' values ``[..., *shape]``, with what lies between them set."""
    leading = next(iter(values.values())).shape
    leading = leading[: len(leading) - len(observation.parts[0].spec.shape)]
    rows = np.full((*leading, *observation.shape), 0xA5, np.uint8)
    for part in (*observation.parts, *([observation.mask] if observation.mask else [])):
        value = values[part.path] if part in observation.parts else mask
        flat = np.ascontiguousarray(value, part.spec.dtype).reshape(*leading, -1)
        rows[..., part.offset : part.offset + _nbytes(part.spec)] = flat.view(np.uint8)
    return torch.from_numpy(rows)


def random_values(spec: ObservationSpec, *leading: int, seed: int = 0) -> np.ndarray:
    """Values of a plain observation, ``[*leading, *shape]``."""
    rng = np.random.default_rng(seed)
    if spec.num_values is not None:
        return rng.integers(spec.num_values, size=leading)
    if spec.nvec:
        return rng.integers(spec.nvec, size=(*leading, len(spec.nvec)))
    if spec.dtype.startswith("float"):
        return rng.normal(size=(*leading, *spec.shape)).astype(spec.dtype)
    return rng.integers(2 if spec.dtype == "int8" else 256, size=(*leading, *spec.shape)).astype(spec.dtype)


def random_mask(num_values: int, *leading: int, seed: int = 0) -> np.ndarray:
    """A mask, bool ``[*leading, num_values]``, of which one in eight rows leaves nothing."""
    rng = np.random.default_rng(seed)
    return (rng.random((*leading, num_values)) < 0.5) & (rng.random((*leading, 1)) > 0.125)


def random_rows(observation: ObservationSpec, *leading: int, seed: int = 0) -> Tensor:
    """Rows of random parts, and of a random mask if there is one."""
    parts = enumerate(observation.parts)
    values = {part.path: random_values(part.spec, *leading, seed=seed + number) for number, part in parts}
    mask = observation.mask
    return pack(observation, values, random_mask(mask.spec.shape[0], *leading, seed=seed) if mask else None)


def _nbytes(spec: ObservationSpec) -> int:
    return math.prod(spec.shape) * np.dtype(spec.dtype).itemsize


def _aligned(offset: int) -> int:
    return -(-offset // ROW_ALIGNMENT) * ROW_ALIGNMENT
