"""Masks of legal actions, extracted from infos and checked. No Gymnasium, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.envs.spaces import ActionSpec, ObservationSpec

MASK = "action_mask"
"""Key of the mask of legal actions in a Dict observation or an info."""


def flat_mask(mask: Any, action: ActionSpec, name: str = "info['action_mask']") -> np.ndarray:
    """Return a mask in the layout of a row of observations.

    Parameters
    ----------
    mask
        Array with an entry for each value of each choice, not 0 where legal; or such arrays in Dicts and Tuples that
        mirror the space, as the ``sample`` of Gymnasium's spaces takes them. (Each bit of a MultiBinary, however, has
        two entries: off is legal, on is legal.)
    action
        The restricted action.
    name
        Name of the mask in messages.

    Returns
    -------
    numpy.ndarray
        bool ``[sum(choices)]``, in the order of the action's leaves.

    Raises
    ------
    ValueError
        The mask is missing, has another size, or holds NaN.
    """
    if isinstance(mask, Mapping) and action.parts:
        parts = [flat_mask(mask.get(key), part, f"{name}[{key!r}]") for key, part in action.parts if part.choices]
        return np.concatenate(parts)
    is_tree = isinstance(mask, (tuple, list)) and not all(
        isinstance(member, (int, float, np.number)) for member in mask
    )
    if is_tree and action.parts and len(mask) == len(action.parts):
        members = enumerate(zip(mask, (part for _, part in action.parts), strict=True))
        return np.concatenate([flat_mask(m, part, f"{name}[{i}]") for i, (m, part) in members if part.choices])
    size = sum(action.choices)
    try:
        entries = _side_by_side(mask)
        legal = entries != 0
        found = f"{len(legal)} of them" if len(legal) else "none"
        if np.isnan(entries).any():
            legal, found = np.empty(0, np.bool_), "NaN among them"
    except (TypeError, ValueError) as error:  # ragged, or not numeric
        legal, found = np.empty(0, np.bool_), f"a {type(mask).__name__} that is not an array: {error}"
    if len(legal) != size:
        raise ValueError(
            f"expected {size} entries in {name}, one for each value of each choice (numbers of values: "
            f"{', '.join(map(str, action.choices))}), not 0 where it is legal; found {found}"
        )
    return legal


def mask_of_lane(masks: Any, lane: int) -> Any:
    """Return one lane's mask from a vector environment's batch of masks; None if the lane has none."""
    if isinstance(masks, Mapping):
        return {key: mask_of_lane(member, lane) for key, member in masks.items()}
    if isinstance(masks, tuple):
        return tuple(mask_of_lane(member, lane) for member in masks)
    try:
        return masks[lane]
    except (TypeError, IndexError):
        return None


def offers_nothing(masks: np.ndarray, choices: tuple[int, ...]) -> np.ndarray:
    """Return where a choice has no legal value: bool ``[N]`` for masks ``[N, sum(choices)]``, not 0 where legal."""
    begins = np.cumsum((0, *choices[:-1]))
    return np.logical_not(np.logical_or.reduceat(masks, begins, axis=1).all(axis=1))


def forbids_all(spec: ObservationSpec, observation: Any, info: Mapping[str, Any]) -> bool:
    """Return whether an observation's mask forbids every action, which in games means that the agent waits."""
    if spec.mask is None:
        return False
    holder = info if spec.mask_is_in_info else observation
    return isinstance(holder, Mapping) and _forbids_all(holder.get(MASK))


def _forbids_all(mask: Any) -> bool:
    if isinstance(mask, Mapping):
        return all(map(_forbids_all, mask.values()))
    if isinstance(mask, (tuple, list)):
        return all(map(_forbids_all, mask))
    return mask is not None and not np.any(mask)


def _side_by_side(mask: Any) -> np.ndarray:
    """Join the masks of a MultiDiscrete's components; return an empty array without a mask."""
    if isinstance(mask, (tuple, list)):
        return np.concatenate([np.empty(0), *map(_side_by_side, mask)])
    return np.empty(0) if mask is None else np.asarray(mask, np.float64).ravel()
