"""Results of a policy's games against one opponent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Match:
    """Games of a policy against one opponent, which had all other seats.

    Attributes
    ----------
    opponent
        Name: "random", "best", "others" (the run's other policies with their current weights), or that of a class or
        function.
    seat
        Name of the policy's agent, or names of several; with shuffled seats, of all.
    returns, lengths
        Return and number of steps of each of its agents in each game; those given up come last.
    outcomes
        1 for each game that the policy won by the returns of all seats, 0 for a draw, -1 for a loss. Games given up
        have none. Empty if policies have different roles, so that returns decide no winner.
    unfinished
        Number of `returns` given up.
    successes, asked
        As in `Evaluation`.
    """

    opponent: str
    seat: str
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    outcomes: tuple[int, ...]
    unfinished: int = 0
    successes: tuple[float | None, ...] = ()
    asked: int = 0

    @property
    def wins(self) -> int:
        """Number of games won."""
        return self.outcomes.count(1)

    @property
    def draws(self) -> int:
        """Number of games drawn."""
        return self.outcomes.count(0)

    @property
    def losses(self) -> int:
        """Number of games lost."""
        return self.outcomes.count(-1)

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))


def by_opponent(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """Group matches from all seats by the opponent's name."""
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.opponent, []).append(match)
    return found
