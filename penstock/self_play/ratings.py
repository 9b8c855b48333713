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
"""Ratings are sought from minus to plus this."""


def score(results: Results) -> float:
    """Score per game of ``[wins, draws, losses]``, from 0 to 1; with one draw more, so that it is never 0 or 1."""
    wins, draws, losses = map(float, results)
    return (wins + 0.5 * draws + 0.5) / (wins + draws + losses + 1.0)


def remembered(before: np.ndarray, new: np.ndarray, decay: float = DECAY) -> np.ndarray:
    """Add new results to older ones, which fade with each further game.

    The win rates by which AlphaStar draws opponents are of such results (doi:10.1038/s41586-019-1724-z, pseudocode).
    The order of new results is not known: they are taken as spread evenly over the games since.

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
    """Chances by which hard opponents are drawn more often, up to a factor: ``(1 - score)^2``.

    Prioritized fictitious self-play of AlphaStar (doi:10.1038/s41586-019-1724-z, "f_hard"), which is not on arXiv.
    """
    return (1.0 - np.array(list(scores), np.float64)) ** HARDNESS


def expected_score(rating: float, other: float) -> float:
    """Score that Elo's model expects of a player against another: ``1 / (1 + 10^((other - rating) / 400))``."""
    return 1.0 / (1.0 + math.pow(10.0, (other - rating) / 400.0))


def rating(played: Sequence[tuple[float, Results]]) -> float:
    """The Elo rating of which results against rated opponents are most likely: expected and true scores are the same.

    Against each opponent one draw more is counted: who has only won has a finite rating. Without games it is 0.

    Parameters
    ----------
    played
        Of each opponent its rating, and wins, draws and losses against it.
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
