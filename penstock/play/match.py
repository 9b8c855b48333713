"""Results of a policy's games against one opponent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Match:
    """A policy's games against one opponent, which had all seats that were not the policy's.

    Attributes
    ----------
    opponent
        Its name: "random", "best", "others" (the run's other policies as they are now), or that of a class or function.
    seat
        Name of the agent that the policy played, or names of several; with shuffled seats, of all.
    returns, lengths
        Return and number of steps of each of its agents in each game; those that were given up come last.
    outcomes
        Of each game 1 if the policy won it, 0 for a draw, -1 for a loss, by the returns of all seats. Games that were
        given up have none. Empty where policies are of different kinds, and nobody can say who won.
    unfinished
        How many of `returns` were given up.
    successes, asked
        As those of an `Evaluation`.
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
        """Games that the policy has won."""
        return self.outcomes.count(1)

    @property
    def draws(self) -> int:
        """Games that nobody has won."""
        return self.outcomes.count(0)

    @property
    def losses(self) -> int:
        """Games that the policy has lost."""
        return self.outcomes.count(-1)

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))


def by_opponent(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """Matches from all seats, by the opponent's name."""
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.opponent, []).append(match)
    return found
