"""Translation of Gymnasium spaces into specs, or their refusal with a reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.masks import MASK
from penstock.envs.spaces import ROW_ALIGNMENT, ActionSpec, ObservationPart, ObservationSpec

_OBSERVATION, _ACTION = "observation space", "action space"
_ADVICE = {
    _OBSERVATION: "leave it out or translate it with a wrapper, such as gymnasium.wrappers.TransformObservation",
    _ACTION: "translate your actions with a wrapper, such as gymnasium.wrappers.TransformAction",
}
_EXACT = 2**24  # integers up to here are exact in a float32


def environment_specs(
    observation_space: spaces.Space, action_space: spaces.Space, mask_is_in_info: bool = False
) -> tuple[ObservationSpec, ActionSpec]:
    """Return the specs of an environment's observations and actions.

    Parameters
    ----------
    observation_space, action_space
        Spaces of the environment, or of one sub-environment of a vector environment.
    mask_is_in_info
        Whether infos hold a mask of legal actions. A mask in the observation takes precedence.

    Raises
    ------
    UnsupportedSpaceError
        As for `observation_spec` and `action_spec`.
    """
    action = action_spec(action_space)
    return observation_spec(observation_space, action.choices, mask_is_in_info), action


def observation_spec(
    space: spaces.Space, choices: tuple[int, ...] = (), mask_is_in_info: bool = False
) -> ObservationSpec:
    """Return the column layout of observations in a space.

    A Box keeps its bounds and its dtype, except that every float but float16 is stored as float32. A Discrete is an
    int64 scalar counted from 0, a MultiDiscrete a vector of them, a MultiBinary int8. Dict and Tuple become one row of
    bytes.

    Parameters
    ----------
    space
        The observation space.
    choices
        Number of values of each choice of an action. With choices, a member "action_mask" of a Dict is the mask of
        legal ones.
    mask_is_in_info
        Whether, without such a member, infos hold the mask; no effect without choices.

    Raises
    ------
    UnsupportedSpaceError
        The space contains an unsupported or empty space, impossible bounds, or a mask that does not fit the choices.
    """
    mask_space = space.spaces.get(MASK) if choices and isinstance(space, spaces.Dict) else None
    if mask_space is not None:
        _require_fitting_mask(mask_space, choices)
    leaves: dict[str, ObservationSpec] = {}
    for keys, leaf in _leaves(space, ()):
        if mask_space is not None and keys[0] == MASK:
            continue
        if choices and len(keys) > 1 and keys[-1] == MASK:
            raise UnsupportedSpaceError(
                f"{_place(_OBSERVATION, keys)}: a mask of legal actions is a member of the outermost Dict, or in "
                "the info; move it there, or rename the key if it is not a mask"
            )
        path = "/".join(map(str, keys))
        if path in leaves:
            raise UnsupportedSpaceError(f"{_OBSERVATION}: found two leaves called {path!r}; rename one of the keys")
        leaves[path] = _observed_leaf(_place(_OBSERVATION, keys), leaf)
    if not leaves:
        raise UnsupportedSpaceError(
            f"{_OBSERVATION}: found nothing but an {MASK!r}; show something to act on beside it"
        )
    has_mask = mask_space is not None or (mask_is_in_info and len(choices) > 0)
    if not has_mask and not isinstance(space, (spaces.Dict, spaces.Tuple)):
        return leaves[""]
    mask = [(MASK, ObservationSpec((sum(choices),), "bool"))] if has_mask else []
    parts, nbytes = _side_by_side([*leaves.items(), *mask])
    return ObservationSpec(
        (nbytes,), "uint8", parts=parts[: len(leaves)], mask=parts[-1] if has_mask else None,
        mask_is_in_info=has_mask and mask_space is None,
    )  # fmt: skip


def action_spec(space: spaces.Space) -> ActionSpec:
    """Return the form of a policy's actions in a space.

    Bounds of the largest float32 or beyond count as none.

    Raises
    ------
    UnsupportedSpaceError
        The space contains one other than Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple, an empty one,
        impossible bounds, or, beside numbers, a choice among more values than float32 counts exactly.
    """
    spec = _taken(space, ())
    if spec.kind == "mixed" and max(spec.choices) > _EXACT:
        raise UnsupportedSpaceError(
            f"{_ACTION}: found a choice among {max(spec.choices)} values beside numbers; all of them are one float32 "
            f"vector, so use at most {_EXACT} values, or leave out the numbers"
        )
    return spec


def _observed_leaf(place: str, space: spaces.Space) -> ObservationSpec:
    if isinstance(space, spaces.Discrete):
        return ObservationSpec((), "int64", num_values=int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        nvec = _numbers(space.nvec)
        return ObservationSpec((len(nvec),), "int64", nvec=nvec, starts=_numbers(space.start))
    if isinstance(space, spaces.MultiBinary):
        return ObservationSpec(space.shape, "int8", low=(0,), high=(1,))
    box = _checked_box(place, space, _ADVICE[_OBSERVATION])
    low, high = _bounds(box.low, box.bounded_below, -math.inf), _bounds(box.high, box.bounded_above, math.inf)
    size = max(len(low), len(high))
    low, high = (bounds * (size // len(bounds)) for bounds in (low, high))
    dtype = np.dtype(box.dtype)
    name = "float32" if dtype.kind == "f" and dtype != np.float16 else dtype.name
    return ObservationSpec(box.shape, name, low=low, high=high)


def _taken(space: spaces.Space, keys: tuple[Any, ...]) -> ActionSpec:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        members = [(key, _taken(member, (*keys, key))) for key, member in _members(_ACTION, space, keys)]
        is_dict = isinstance(space, spaces.Dict)
        return ActionSpec(
            (), "object", low=tuple(bound for _, part in members for bound in part.low or ()) or None,
            high=tuple(bound for _, part in members for bound in part.high or ()) or None,
            parts=tuple((key if is_dict else None, part) for key, part in members),
        )  # fmt: skip
    if isinstance(space, spaces.Discrete):
        return ActionSpec((), np.dtype(space.dtype).name, num_actions=int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return ActionSpec(
            space.shape, np.dtype(space.dtype).name, nvec=_numbers(space.nvec), starts=_numbers(space.start)
        )
    if isinstance(space, spaces.MultiBinary):
        size = math.prod(space.shape)
        return ActionSpec(space.shape, np.dtype(space.dtype).name, nvec=(2,) * size, starts=(0,) * size)
    box = _checked_box(_place(_ACTION, keys), space, _ADVICE[_ACTION])
    limit = np.finfo(np.float32).max
    low, high = box.low.astype(np.float64).ravel(), box.high.astype(np.float64).ravel()
    low = np.where(box.bounded_below.ravel() & (low > -limit), low, -np.inf)
    high = np.where(box.bounded_above.ravel() & (high < limit), high, np.inf)
    return ActionSpec(box.shape, np.dtype(box.dtype).name, low=tuple(low.tolist()), high=tuple(high.tolist()))


def _leaves(space: spaces.Space, keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], spaces.Space]]:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key, member in _members(_OBSERVATION, space, keys):
            yield from _leaves(member, (*keys, key))
    else:
        yield keys, space


def _members(role: str, space: spaces.Dict | spaces.Tuple, keys: tuple[Any, ...]) -> Iterable[tuple[Any, spaces.Space]]:
    if not space.spaces:
        raise UnsupportedSpaceError(f"{_place(role, keys)}: found a {type(space).__name__} that holds nothing")
    return space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)


def _side_by_side(leaves: list[tuple[str, ObservationSpec]]) -> tuple[tuple[ObservationPart, ...], int]:
    """Lay leaves out in a row; return them with their offsets, and the row's length in bytes."""
    parts, end = [], 0
    for path, leaf in leaves:
        parts.append(ObservationPart(path, leaf, end))
        nbytes = math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
        end += -(-nbytes // ROW_ALIGNMENT) * ROW_ALIGNMENT
    return tuple(parts), end


def _require_fitting_mask(space: spaces.Space, choices: tuple[int, ...]) -> None:
    if not isinstance(space, (spaces.MultiBinary, spaces.MultiDiscrete, spaces.Box)) or (
        math.prod(space.shape) != sum(choices)
    ):
        raise UnsupportedSpaceError(
            f"{_place(_OBSERVATION, (MASK,))}: found {space}. A mask of legal actions has {sum(choices)} entries here, "
            f"one for each value of each choice (numbers of values: {', '.join(map(str, choices))}): use a MultiBinary "
            "of that size, or rename the key if it is not a mask"
        )


def _checked_box(place: str, space: spaces.Space, advice: str) -> spaces.Box:
    if not isinstance(space, spaces.Box):
        what = f"{space}" if isinstance(space, spaces.Space) else f"{space!r}, which is not a gymnasium.spaces.Space"
        legal = "Legal are Box, Discrete, MultiDiscrete and MultiBinary, alone or in Dict and Tuple"
        raise UnsupportedSpaceError(f"{place}: found {what}. {legal}: {advice}")
    if 0 in space.shape:
        raise UnsupportedSpaceError(f"{place}: found a Box of shape {space.shape}, which holds nothing; use sizes >= 1")
    if np.isnan(space.low).any() or np.isnan(space.high).any():
        raise UnsupportedSpaceError(f"{place}: found {space} with NaN among its bounds; use numbers or infinities")
    if (space.low > space.high).any():
        raise UnsupportedSpaceError(f"{place}: found {space} with low above high; use low <= high everywhere")
    return space


def _bounds(bound: np.ndarray, is_bounded: np.ndarray, otherwise: float) -> tuple[float, ...]:
    """Return the bounds of one side: one per number, or one for all if they are equal."""
    if is_bounded.all():
        return (bound.flat[0].item(),) if (bound == bound.flat[0]).all() else tuple(bound.ravel().tolist())
    if not is_bounded.any():
        return (otherwise,)
    each = zip(bound.ravel().tolist(), is_bounded.ravel().tolist(), strict=True)
    return tuple(value if is_there else otherwise for value, is_there in each)


def _place(role: str, keys: tuple[Any, ...]) -> str:
    return role + "".join(f"[{key!r}]" for key in keys)


def _numbers(array: np.ndarray) -> tuple[int, ...]:
    return tuple(array.ravel().tolist())
