"""Result of played episodes.

An episode that lasts too long is given up and counts with its return so far. Another is played in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.play.match import Match


@dataclass(frozen=True)
class Evaluation:
    """Result of played episodes.

    Attributes
    ----------
    returns, lengths
        True, undiscounted return and number of steps of each episode; for games, of each agent. Episodes that were
        given up count as far as they came.
    steps
        Steps from which the weights were learned.
    version
        Version of the weights, within a run.
    successes
        ``info["is_success"]`` of the last step of each episode of `returns`, None where missing; or empty.
    unfinished
        Number of episodes given up before they ended, the last ones of `returns`: after ``eval_max_steps`` steps, or at
        the time limit. They count in the mean, so that a policy that never dies is not scored by its deaths alone, nor
        one that gets stuck by its successes.
    asked
        Number of whole episodes requested; 0 if unknown. Fewer end at the time limit, or if as many were given up.
    matches
        Games against each opponent, if any; `returns` are then those against the first one.
    """

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    steps: int = 0
    unfinished: int = 0
    version: int = 0
    successes: tuple[float | None, ...] = ()
    matches: tuple[Match, ...] = ()
    asked: int = 0

    @property
    def episodes(self) -> int:
        """Number of episodes, including those given up."""
        return len(self.returns)

    @property
    def finished(self) -> int:
        """Number of whole episodes."""
        return len(self.returns) - self.unfinished

    @property
    def mean_return(self) -> float:
        """Mean of the returns; see `unfinished`."""
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        """Standard deviation of the returns."""
        return float(np.std(self.returns))

    @property
    def mean_length(self) -> float:
        """Mean length in steps."""
        return float(np.mean(self.lengths))

    @property
    def success_rate(self) -> float | None:
        """Share of successful episodes, from 0 to 1; None if the environment reports no success."""
        return success_rate(self.successes)


def success_rate(successes: Collection[float | None]) -> float | None:
    """Return the mean success; a missing value counts as failure unless all are missing."""
    told = [success for success in successes if success is not None]
    return sum(told) / len(successes) if told else None


def evaluation_of(matches: Sequence[Match]) -> Evaluation:
    """Return the evaluation of a policy's matches: the one against the first opponent, from all seats."""
    first = [match for match in matches if match.opponent == matches[0].opponent]
    ended = [slice(len(match.returns) - match.unfinished) for match in first]
    given_up = [slice(len(match.returns) - match.unfinished, None) for match in first]
    returns, lengths, successes = (
        tuple(value for which in (ended, given_up) for match, part in zip(first, which, strict=True)
              for value in getattr(match, name)[part])
        for name in ("returns", "lengths", "successes")
    )  # fmt: skip
    unfinished, asked = sum(match.unfinished for match in first), sum(match.asked for match in first)
    return Evaluation(
        returns, lengths, unfinished=unfinished, successes=successes, matches=tuple(matches), asked=asked
    )
