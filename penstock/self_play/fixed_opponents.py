"""Fixed opponents of evaluations: uniform legal actions, or a class or function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.config import find_object
from penstock.envs.factories import requested
from penstock.envs.lanes import Lanes
from penstock.envs.masks import MASK
from penstock.envs.seats import SeatLanes
from penstock.envs.spaces import ActionSpec
from penstock.nn import PolicyNetwork
from penstock.self_play.settings import RANDOM

Load = Callable[[], PolicyNetwork | None]
"""Function that returns the network of the best weights so far, None before there are any."""


class Opponent(Protocol):
    """Player of seats from which nothing is learned."""

    def begin(self) -> None:
        """Prepare for lanes that were reset; by default a no-op."""
        return

    def act(self) -> np.ndarray:
        """Return an action for each lane whose turn it is: as in a policy's column, or as an object of the game."""
        ...


class RandomOpponent(Opponent):
    """Opponent that draws choices uniformly from legal values, and numbers uniformly from -1 to 1.

    Parameters
    ----------
    lanes
        Its lanes.
    seed
        Seed of its random numbers.
    """

    def __init__(self, lanes: Lanes, seed: int) -> None:
        self._lanes = lanes
        self._random = np.random.default_rng(seed)
        self._rows = np.arange(lanes.num_lanes, dtype=np.int64)
        self._obs = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)

    def act(self) -> np.ndarray:
        """Draw actions."""
        lanes, action = self._lanes, self._lanes.action
        count, sizes = lanes.num_lanes, action.choices
        # Each of several uniform numbers is the largest with equal probability; illegal ones are set below all others.
        drawn = self._random.random((count, sum(sizes)))
        if (mask := lanes.observation.mask) is not None:
            lanes.write_observations(self._obs, self._rows)
            drawn[self._obs[:, mask.offset : mask.offset + sum(sizes)] == 0] = -1.0
        ends = np.cumsum(sizes, dtype=np.int64)
        choices = [drawn[:, end - size : end].argmax(1) for end, size in zip(ends, sizes, strict=True)]
        numbers = self._random.uniform(-1.0, 1.0, (count, action.num_numbers))
        chosen = np.column_stack([*choices, numbers]).astype(action.column_dtype)
        return chosen.reshape(count, *action.column_shape)


class OwnOpponent(Opponent):
    """A class or function of the user.

    A function is called with the game's own observation of its agent, and returns one of the game's own actions. A
    class is instantiated for each seat of each simultaneous game, with a seed of its own if it has a parameter `seed`.
    The object is called like a function, and its method `reset`, if it has one, at the start of each game. If the mask
    of legal actions is in infos, function or object is called with ``{"observation": ..., "action_mask": ...}``.

    Parameters
    ----------
    lanes
        Lanes of its seats.
    source
        The class or function.
    seed
        Seed of the first object.
    """

    def __init__(self, lanes: SeatLanes, source: Callable[..., Any], seed: int) -> None:
        self._lanes = lanes
        self._players: list[Any] = [
            source(**requested(source, {}, {"seed": seed + lane})) if inspect.isclass(source) else source
            for lane in range(lanes.num_lanes)
        ]

    def act(self) -> np.ndarray:
        """Call the objects of lanes whose turn it is."""
        lanes = self._lanes
        actions = np.empty(lanes.num_lanes, object)
        for lane in lanes.asked.nonzero()[0].tolist():
            player = self._players[lane]
            if lanes.first[lane] and hasattr(player, "reset"):
                player.reset()
            shown = lanes.shown[lane]
            if lanes.observation.mask_is_in_info:
                shown = dict(zip(("observation", MASK), shown, strict=True))
            actions[lane] = action = player(shown)
            if not _is_legal(action, lanes.action):
                name = getattr(player, "__name__", type(player).__name__)
                raise ValueError(f"the opponent {name} of eval_against returned {action!r}; legal: {lanes.action}")
        return actions


def _is_legal(action: Any, spec: ActionSpec) -> bool:
    """Return whether an action may be one of the game's own; of non-discrete actions only None is refused."""
    if not spec.is_discrete:
        return action is not None
    return np.ndim(action) == 0 and action in range(spec.start, spec.start + (spec.num_actions or 0))


def opponent_of(place: str | Callable[..., Any], lanes: SeatLanes, seed: int) -> Opponent:
    """Make an opponent of ``eval_against`` with these lanes: "random", a class or function, or its name."""
    if place == RANDOM:
        return RandomOpponent(lanes, seed)
    return OwnOpponent(lanes, find_object(place, "eval_against") if isinstance(place, str) else place, seed)
