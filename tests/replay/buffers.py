"""Replay buffers of transitions, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.replay import Field, ReplayBuffer

NUMBERS = Field((3,), "int32")


def make_buffer(
    capacity: int = 128,
    obs: Field = NUMBERS,
    more: Mapping[str, Field] | None = None,
    **options: Any,
) -> ReplayBuffer:
    """A buffer of transitions with such observations, and with more fields if there are any."""
    fields = {
        "obs": obs,
        "action": Field((), "int64"),
        "reward": Field(),
        "next_obs": replace(obs, next_of="obs"),
        "terminated": Field((), "bool"),
    }
    return ReplayBuffer(capacity, {**fields, **(more or {})}, **options)


def add_episode(
    buffer: ReplayBuffer, step: Callable[..., dict[str, object]], length: int, ending: str = "terminated", **which: int
) -> None:
    """Add steps, ``step(time, ending=..., **which)``; the episode ends with the last one, or is cut there."""
    for time in range(length):
        buffer.add(**step(time, ending=ending if time == length - 1 else "", **which))
    if ending == "cut":
        buffer.end_episode()


def priorities_of(buffer: ReplayBuffer) -> np.ndarray:
    """Of all rows, oldest first, as they are drawn by: ``(p + eps) ** alpha``."""
    leaves, ids, _ = buffer._core.read_priorities()
    by_id = dict(zip(ids.tolist(), leaves.tolist(), strict=False))
    return np.array([by_id[number] for number in buffer.get_all()["ids"].tolist()])
