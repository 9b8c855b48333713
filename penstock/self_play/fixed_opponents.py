"""Fixed opponents of evaluations: uniform legal actions, weights of before, or a class or function of one's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from penstock.config import find_object
from penstock.envs.factories import requested
from penstock.envs.masks import MASK
from penstock.envs.seats import SeatLanes
from penstock.nn import PolicyNetwork
from penstock.self_play.settings import RANDOM

Load = Callable[[], PolicyNetwork | None]
"""Returns the network of the best weights so far, None before there are any."""


class Opponent(Protocol):
    """Plays seats of games that nobody learns from."""

    def begin(self) -> None:
        """Begin with lanes that were reset; by default there is nothing to do."""
        return

    def act(self) -> np.ndarray:
        """Choose an action for every lane that is asked: as a policy does, or as the game takes it, of dtype object."""
        ...


class RandomOpponent(Opponent):
    """Draws each choice among its legal values with one chance, and each number from -1 to 1, of its range.

    Parameters
    ----------
    lanes
        Lanes of its seats.
    seed
        Seeds it.
    """

    def __init__(self, lanes: SeatLanes, seed: int) -> None:
        self._lanes = lanes
        self._random = np.random.default_rng(seed)
        self._rows = np.arange(lanes.num_lanes, dtype=np.int64)
        self._obs = np.zeros((lanes.num_lanes, *lanes.observation.shape), lanes.observation.dtype)

    def act(self) -> np.ndarray:
        """Draw actions."""
        lanes, action = self._lanes, self._lanes.action
        count, sizes = lanes.num_lanes, action.choices
        # The largest of uniform numbers is each of them with the same chance; illegal ones are out of the draw.
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
    """A class or function of the user's.

    A function is called with what its agent observes, as the game shows it, and returns an action as the game takes it.
    Of a class one object is made for each seat of each game that is played at once, with a seed of its own if it asks
    for `seed`. It is called as a function is; where it has `reset`, that is called whenever a game begins. Where the
    mask of legal actions is in infos, both are called with ``{"observation": ..., "action_mask": ...}``.

    Parameters
    ----------
    lanes
        Lanes of its seats.
    source
        The class or function.
    seed
        Of the first object.
    """

    def __init__(self, lanes: SeatLanes, source: Callable[..., Any], seed: int) -> None:
        self._lanes = lanes
        self._players: list[Any] = [
            source(**requested(source, {}, {"seed": seed + lane})) if inspect.isclass(source) else source
            for lane in range(lanes.num_lanes)
        ]

    def act(self) -> np.ndarray:
        """Ask whoever is to act."""
        lanes = self._lanes
        actions = np.empty(lanes.num_lanes, object)
        for lane in lanes.asked.nonzero()[0].tolist():
            player = self._players[lane]
            if lanes.first[lane] and hasattr(player, "reset"):
                player.reset()
            shown = lanes.shown[lane]
            if lanes.observation.mask_is_in_info:
                shown = dict(zip(("observation", MASK), shown, strict=True))
            actions[lane] = player(shown)
        return actions


def opponent_of(place: str | Callable[..., Any], lanes: SeatLanes, seed: int) -> Opponent:
    """Make an opponent of ``eval_against`` that has these lanes: "random", or whoever is named."""
    if place == RANDOM:
        return RandomOpponent(lanes, seed)
    return OwnOpponent(lanes, find_object(place, "eval_against") if isinstance(place, str) else place, seed)
