"""Masks of legal actions: taken out of infos and checked. No Gymnasium, no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.envs.spaces import ActionSpec

MASK = "action_mask"
"""Key of the mask of legal actions, in a Dict observation or in an info."""


def flat_mask(mask: Any, action: ActionSpec) -> np.ndarray:
    """Return a mask as it lies in a row of observations.

    Parameters
    ----------
    mask
        An array with an entry for each value of each choice, not 0 where it is legal; or such arrays in Dicts and
        Tuples like those of the space, as the ``sample`` of Gymnasium's spaces takes them.
    action
        What it restricts.

    Returns
    -------
    numpy.ndarray
        bool ``[sum(choices)]``, in the order of the action's leaves.

    Raises
    ------
    ValueError
        There is none, or it has another size.
    """
    size = sum(action.choices)
    try:
        legal = np.concatenate([np.empty(0), *_leaves(mask, action)]) != 0
        found = f"{len(legal)} of them" if len(legal) else "none"
    except (TypeError, ValueError) as error:  # ragged, or no numbers
        legal, found = np.empty(0, np.bool_), f"a {type(mask).__name__} that is no array: {error}"
    if len(legal) != size:
        raise ValueError(
            f"expected {size} entries in info[{MASK!r}], one for each value of each choice (numbers of values: "
            f"{', '.join(map(str, action.choices))}), not 0 where it is legal; found {found}"
        )
    return legal


def mask_of_lane(masks: Any, lane: int) -> Any:
    """Return one lane's mask of a batch as vector environments have it in their infos; None if it has none."""
    if isinstance(masks, Mapping):
        return {key: mask_of_lane(member, lane) for key, member in masks.items()}
    try:
        return masks[lane]
    except (TypeError, IndexError):
        return None


def offers_nothing(masks: np.ndarray, choices: tuple[int, ...]) -> np.ndarray:
    """Return where a choice has no legal value: bool ``[N]`` for masks ``[N, sum(choices)]``, not 0 where legal."""
    begins = np.cumsum((0, *choices[:-1]))
    return np.logical_not(np.logical_or.reduceat(masks, begins, axis=1).all(axis=1))


def _leaves(mask: Any, action: ActionSpec) -> Iterator[np.ndarray]:
    if isinstance(mask, Mapping):
        for key, part in action.parts:
            yield from _leaves(mask.get(key), part)
    elif isinstance(mask, (tuple, list)):
        parts = [part for _, part in action.parts]
        for index, member in enumerate(mask):
            yield from _leaves(member, parts[index] if index < len(parts) else action)
    elif mask is not None:  # Gymnasium has None for what is no choice
        yield np.asarray(mask, np.float64).ravel()
