"""Gymnasium spaces translated into specs, or refused with the reason."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.spaces import ActionSpec, ObservationSpec

_OBSERVATION_ADVICE = "choose or join the parts you need with a wrapper, such as gymnasium.wrappers.FlattenObservation"
_ACTION_ADVICE = "translate your actions with a wrapper, such as gymnasium.wrappers.TransformAction"


def observation_spec(space: spaces.Space) -> ObservationSpec:
    """Return the column layout of a space's observations.

    A Box keeps its dtype, except that every float but float16 is stored as float32. A Discrete is
    an int64 scalar counted from 0.

    Raises
    ------
    UnsupportedSpaceError
        The space is neither a Box nor a Discrete, or is an empty Box, or has impossible bounds.
    """
    if isinstance(space, spaces.Discrete):
        return ObservationSpec((), "int64", num_values=int(space.n), start=int(space.start))
    box = _checked_box("observation space", space, _OBSERVATION_ADVICE)
    return ObservationSpec(box.shape, _column_dtype(box.dtype).name)


def action_spec(space: spaces.Space) -> ActionSpec:
    """Return what a policy has to choose to act in a space.

    Bounds that are as large as the largest float32 count as none.

    Raises
    ------
    UnsupportedSpaceError
        The space is neither a Box nor a Discrete, or is an empty Box, or has impossible bounds.
    """
    if isinstance(space, spaces.Discrete):
        return ActionSpec((), np.dtype(space.dtype).name, num_actions=int(space.n), start=int(space.start))
    box = _checked_box("action space", space, _ACTION_ADVICE)
    limit = np.finfo(np.float32).max
    low, high = box.low.astype(np.float64).ravel(), box.high.astype(np.float64).ravel()
    low = np.where(box.bounded_below.ravel() & (low > -limit), low, -np.inf)
    high = np.where(box.bounded_above.ravel() & (high < limit), high, np.inf)
    return ActionSpec(box.shape, np.dtype(box.dtype).name, low=tuple(low.tolist()), high=tuple(high.tolist()))


def _column_dtype(dtype: np.dtype | type | None) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype.kind == "f" and dtype != np.float16:
        return np.dtype(np.float32)
    return dtype


def _checked_box(role: str, space: spaces.Space, advice: str) -> spaces.Box:
    if not isinstance(space, spaces.Box):
        raise UnsupportedSpaceError(_describe_unsupported(role, space, advice))
    if 0 in space.shape:
        raise UnsupportedSpaceError(f"{role}: found a Box of shape {space.shape}, which holds nothing; use sizes >= 1")
    if np.isnan(space.low).any() or np.isnan(space.high).any():
        raise UnsupportedSpaceError(f"{role}: found {space} with NaN among its bounds; use numbers or infinities")
    if (space.low > space.high).any():
        raise UnsupportedSpaceError(f"{role}: found {space} with low above high; use low <= high everywhere")
    return space


def _describe_unsupported(role: str, space: object, advice: str) -> str:
    legal = "Legal is one Box or one Discrete"
    if not isinstance(space, spaces.Space):
        return f"{role}: found {space!r}, which is no gymnasium.spaces.Space. {legal}"
    if not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return f"{role}: found {space}. {legal}: {advice}"
    parts = [
        f"{role}{path} = {part} ({'supported' if isinstance(part, (spaces.Box, spaces.Discrete)) else 'not supported'})"
        for path, part in _leaves(space, "")
    ]
    return f"{role}: found a {type(space).__name__} of {'; '.join(parts)}. {legal}: {advice}"


def _leaves(space: spaces.Space, path: str) -> Iterator[tuple[str, spaces.Space]]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _leaves(part, f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _leaves(part, f"{path}[{index}]")
    else:
        yield path, space
