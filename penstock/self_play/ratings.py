"""Scores, Elo ratings and pairings from results of games. Pure functions.

Results are counts of wins, draws and losses; a win scores 1, a draw 1/2, a loss 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

Results = Sequence[float] | np.ndarray

DECAY = 0.99
"""Weight of an older result after each further game, see `remembered`."""
HARDNESS = 2.0
"""Exponent of `hard_odds`."""
HIGHEST = 4_000.0
"""Largest rating; the smallest is its negative."""


def score(results: Results) -> float:
    """Return the score per game of ``[wins, draws, losses]``, with a draw added: more than 0 and less than 1."""
    wins, draws, losses = map(float, results)
    return (wins + 0.5 * draws + 0.5) / (wins + draws + losses + 1.0)


def remembered(before: np.ndarray, new: np.ndarray, decay: float = DECAY) -> np.ndarray:
    """Add new results to older ones, which decay with each further game.

    AlphaStar draws opponents by win rates of such results (doi:10.1038/s41586-019-1724-z, pseudocode). The order of new
    results is unknown: they are spread evenly over the new games.

    Parameters
    ----------
    before, new
        float64 ``[..., 3]``: wins, draws and losses.
    decay
        Weight of a result after one further game.

    Returns
    -------
    ndarray
        float64 ``[..., 3]``.
    """
    games = new.sum(-1, keepdims=True)
    weight = np.where(games > 0.0, (1.0 - decay**games) / (1.0 - decay) / np.maximum(games, 1.0), 0.0)
    faded: np.ndarray = before * decay**games + new * weight
    return faded


def hard_odds(scores: Iterable[float]) -> np.ndarray:
    """Return odds by which hard opponents are drawn more often: ``(1 - score)^2``.

    Prioritized fictitious self-play of AlphaStar (doi:10.1038/s41586-019-1724-z, "f_hard"), which is not on arXiv.
    """
    return (1.0 - np.array(list(scores), np.float64)) ** HARDNESS


def expected_score(rating: float, other: float) -> float:
    """Return the expected score of a player in Elo's model: ``1 / (1 + 10^((other - rating) / 400))``."""
    return 1.0 / (1.0 + math.pow(10.0, (other - rating) / 400.0))


def rating(played: Sequence[tuple[float, Results]]) -> float:
    """Return the Elo rating with the largest likelihood, for which expected and true scores are equal; 0 without games.

    A draw is added against each opponent, so that the rating is finite if all games are won or lost.

    Parameters
    ----------
    played
        Rating of each opponent, with wins, draws and losses against it.
    """
    games = [(other, float(sum(results)) + 1.0, score(results)) for other, results in played if any(results)]
    if not games:
        return 0.0
    low, high = -HIGHEST, HIGHEST
    for _ in range(60):
        middle = (low + high) / 2.0
        surplus = sum(count * (won - expected_score(middle, other)) for other, count, won in games)
        low, high = (middle, high) if surplus > 0.0 else (low, middle)
    return (low + high) / 2.0


def rating_error(played: Sequence[tuple[float, Results]]) -> float | None:
    """Return half the 95 % interval of `rating`, from the Fisher information of its likelihood; None without games.

    Ratings of the opponents are taken as exact.
    """
    at = rating(played)
    expected = [(float(sum(results)) + 1.0, expected_score(at, other)) for other, results in played if any(results)]
    information = sum(count * won * (1.0 - won) for count, won in expected)
    return 1.96 * 400.0 / math.log(10.0) / math.sqrt(information) if information else None
