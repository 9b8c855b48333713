"""The rows that are written: every value follows from the row's number, so that a mixture of rows is detected."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

Fields = dict[str, tuple[tuple[int, ...], str]]
"""Shape and dtype by name."""


class CheckFailed(Exception):
    """The library does something wrong, so that its time is meaningless."""


class Transitions:
    """Rows of a small continuous-control task, 42 float32 numbers each."""

    fields: ClassVar[Fields] = {
        "obs": ((17,), "float32"),
        "act": ((6,), "float32"),
        "rew": ((), "float32"),
        "next_obs": ((17,), "float32"),
        "done": ((), "float32"),
    }
    modulus = 2**24
    """Numbers repeat from here on: float32 cannot distinguish them."""

    @staticmethod
    def make(numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The rows with these numbers."""
        first = numbers.astype(np.float32)
        obs = first[:, None] + np.arange(17, dtype=np.float32)
        return {"obs": obs, "act": -obs[:, :6], "rew": first * np.float32(0.5), "next_obs": obs + 1, "done": first % 2}

    @staticmethod
    def numbers(batch: dict[str, Any]) -> np.ndarray:
        """The numbers of these rows."""
        return np.asarray(batch["obs"])[:, 0].astype(np.int64)


class Frames:
    """Rows of one stack of Atari frames, 28,224 bytes each."""

    fields: ClassVar[Fields] = {"obs": ((84, 84, 4), "uint8")}
    modulus = 256
    _pattern = np.random.default_rng(0).integers(0, 256, (84, 84, 4), dtype=np.uint8)

    @classmethod
    def make(cls, numbers: np.ndarray) -> dict[str, np.ndarray]:
        """The rows with these numbers."""
        return {"obs": cls._pattern + numbers.astype(np.uint8)[:, None, None, None]}

    @classmethod
    def numbers(cls, batch: dict[str, Any]) -> np.ndarray:
        """The numbers of these rows."""
        return (np.asarray(batch["obs"])[:, 0, 0, 0] - cls._pattern[0, 0, 0]).astype(np.int64)


def torn(workload: Any, batch: dict[str, Any]) -> np.ndarray:
    """Return which rows of a batch hold a value of another row, bool ``[B]``."""
    wrong = np.zeros(len(batch["obs"]), bool)
    for name, expected in workload.make(workload.numbers(batch)).items():
        wrong |= (np.asarray(batch[name]).reshape(expected.shape) != expected).reshape(len(wrong), -1).any(axis=1)
    return wrong


def whole_numbers(workload: Any, batch: dict[str, Any]) -> np.ndarray:
    """Return the numbers of the rows after checking all values; raise `CheckFailed` for a row that mixes several."""
    wrong = torn(workload, batch)
    if wrong.any():
        first = {name: np.asarray(batch[name])[wrong][0].ravel()[:20].tolist() for name in workload.fields}
        raise CheckFailed(f"{wrong.sum()} of {len(wrong)} sampled rows mix the values of several, such as {first}")
    return workload.numbers(batch)  # type: ignore[no-any-return]
