"""The pool: past versions of a policy that guests play. All words between roles about them are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.envs.episodes import outcome
from penstock.ipc import WeightsBlock, fence

if TYPE_CHECKING:
    from penstock.experience.layout import RunShape

NOBODY = -1
"""The place of a game that has not begun."""
WINS, DRAWS, LOSSES = 0, 1, 2
"""Of the learner: columns of results."""


class Pool:
    """Places for past versions, with what chance each is drawn, and who plays them.

    The supervisor alone puts versions into places and sets their odds; a game draws one of them when it begins, and
    plays against it until it is over. A place whose odds are 0 is drawn no more. Game and supervisor write their word
    before they read the other's, so that a place that nobody plays then is free to be written.

    Parameters
    ----------
    shape
        The numbers of the guests' arena.
    array
        Returns the arena's array of a name.
    block
        Returns the weights block of a name.

    Attributes
    ----------
    places : list of WeightsBlock
        The weights, and as their version the number of the pool's entry; written by the supervisor.
    odds : ndarray
        float64 ``[places]``: chances, up to a factor; written by the supervisor.
    playing : ndarray
        int64 ``[games]``: the place that each game with guests plays against, or `NOBODY`; written by its worker, by
        the supervisor before there is one.
    results : ndarray
        int64 ``[games, places, 3]``: wins, draws and losses of who learns in each game; written by its worker.
    guest_seats : tuple of int
        As in the shape.
    """

    def __init__(
        self, shape: RunShape, array: Callable[[str], np.ndarray], block: Callable[[str], WeightsBlock]
    ) -> None:
        self.guest_seats = shape.guest_seats
        self.places = [block(f"place_{number}") for number in range(shape.num_places)]
        self.odds = array("odds")
        self.playing = array("playing")
        self.results = array("results")

    def draw(self, game: int, chance: float) -> int:
        """Draw whom a game plays against from now on.

        Parameters
        ----------
        game
            Its number among all games with guests.
        chance
            From 0 to 1: decides which.
        """
        while True:
            known = self.odds.nonzero()[0]
            shares = self.odds[known].cumsum()
            drawn = int(shares.searchsorted(chance * shares[-1], side="right"))
            place = int(known[min(drawn, len(known) - 1)])
            self.playing[game] = place
            fence()
            if self.odds[place] > 0.0:
                return place

    def set_odds(self, odds: np.ndarray) -> None:
        """Set all chances, float64 ``[places]``, those of 0 last: at no moment is there nobody to be drawn."""
        self.odds[odds > 0.0] = odds[odds > 0.0]
        fence()
        self.odds[odds <= 0.0] = 0.0

    def is_free(self, place: int) -> bool:
        """Whether a place may be written: nobody plays it, and nobody can draw it."""
        if self.odds[place] > 0.0:
            return False
        fence()  # who has drawn it before says so now
        return not (self.playing == place).any()


class Matchmaking:
    """Draws who plays whom in the games with guests of one group, and notes how they end.

    Each game has its own random numbers, whatever the others do.

    Parameters
    ----------
    pools
        By the number of the policy whose past versions are in it: of a run's only policy, or of each of several.
    num_agents
        Seats of a game, where they are one policy's: the learner has one of them, which is drawn.
    group, seed, incarnation
        Number of the group, the run's seed, and how often the rollout worker has been restarted.
    """

    def __init__(
        self, pools: Mapping[int, Pool], num_agents: int, *, group: int, seed: int, incarnation: int
    ) -> None:
        games = range(max(len(pool.guest_seats) for pool in pools.values()))
        self._num_agents = num_agents
        self._is_alone = len(pools) == 1
        self._first = group * len(games)
        self._met = [{p: pool for p, pool in pools.items() if pool.guest_seats[game]} for game in games]
        self._learners = [next((p for p in pools if p not in met), 0) for met in self._met]  # a seat, or a policy
        # The last word keeps these streams apart from those of environments and of actions.
        keys = [[seed, self._first + game, incarnation, 2] for game in games]
        self._random = [np.random.default_rng(np.random.SeedSequence(key)) for key in keys]
        for pool in pools.values():
            pool.playing[self._first : self._first + len(games)] = NOBODY

    def begin(self, game: int) -> int | None:
        """Draw the version of each policy that guests play, and of one policy also the learner's seat: return it."""
        random = self._random[game]
        if self._is_alone:
            self._learners[game] = int(random.integers(self._num_agents))
        for pool in self._met[game].values():
            pool.draw(self._first + game, random.random())
        return self._learners[game] if self._is_alone else None

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Count a game that was played to its end for the learner, against each version that it met."""
        learner = self._learners[game]
        for policy, pool in self._met[game].items():
            met = [*returns[:learner], *returns[learner + 1 :]] if self._is_alone else [returns[policy]]
            place = pool.playing[self._first + game]
            pool.results[self._first + game, place, (DRAWS, WINS, LOSSES)[outcome([returns[learner], *met], 0)]] += 1
