"""The pool: past versions of a policy that guests play. All words between roles about them are here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from penstock.envs.episodes import outcome
from penstock.experience.layout import RunShape
from penstock.ipc import WeightsBlock, fence

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
        int64 ``[workers, places, 3]``: wins, draws and losses of the learner; each row is written by its worker.
    """

    def __init__(
        self, shape: RunShape, array: Callable[[str], np.ndarray], block: Callable[[str], WeightsBlock]
    ) -> None:
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
    pool, shape
        The pool, and the numbers of the guests' arena.
    group, worker
        Numbers of group and rollout worker.
    seed, incarnation
        The run's seed, and how often the worker has been restarted.

    Attributes
    ----------
    num_games
        Games with guests of the group.
    """

    def __init__(self, pool: Pool, shape: RunShape, *, group: int, worker: int, seed: int, incarnation: int) -> None:
        self.num_games = shape.guest_games
        self._pool = pool
        self._num_agents = shape.num_agents or 1
        self._results = pool.results[worker]
        self._first = group * shape.guest_games
        self._seats = [0] * shape.guest_games
        # The last word keeps these streams apart from those of environments and of actions.
        keys = [[seed, self._first + game, incarnation, 2] for game in range(shape.guest_games)]
        self._random = [np.random.default_rng(np.random.SeedSequence(key)) for key in keys]
        pool.playing[self._first : self._first + self.num_games] = NOBODY

    def begin(self, game: int) -> int:
        """Draw the learner's seat and the guests' version; return the seat."""
        random = self._random[game]
        self._seats[game] = int(random.integers(self._num_agents))
        self._pool.draw(self._first + game, random.random())
        return self._seats[game]

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Count a game that was played to its end."""
        place = self._pool.playing[self._first + game]
        self._results[place, (DRAWS, WINS, LOSSES)[outcome(returns, self._seats[game])]] += 1
