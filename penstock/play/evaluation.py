"""Result of played episodes.

An episode need not end: one that lasts too long is given up, and counts with what it has returned by then. Another is
played in its place.
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
        True, undiscounted return and number of steps of each episode; of a game, those of each agent.
        Of those that were given up, what they had returned by then.
    steps
        Steps that the weights had learned from.
    version
        Version of the weights, in a run.
    successes
        ``info["is_success"]`` of the last step of each episode of `returns`, None where there is none; or nothing.
    unfinished
        How many of the episodes, the last ones of `returns`, were given up before they ended: after ``eval_max_steps``
        steps, or because time was up. They count in the mean: a policy that survives for ever is not scored by its
        deaths alone, and one that is stuck not by its successes.
    asked
        How many whole episodes were asked for; 0 where that is not known. Fewer ended where time was up, or where as
        many were given up.
    matches
        Games against each opponent, where there are any: `returns` are then those against the first one.
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
        """Number of episodes, those among them that were given up."""
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
        """Share of the episodes that were successes, from 0 to 1; None if the environment says nothing of it."""
        return success_rate(self.successes)


def success_rate(successes: Collection[float | None]) -> float | None:
    """Return the mean of what episodes say of their success; silence counts as none unless all are silent."""
    told = [success for success in successes if success is not None]
    return sum(told) / len(successes) if told else None


def evaluation_of(matches: Sequence[Match]) -> Evaluation:
    """Evaluation from a policy's matches: that against the first opponent, from all seats."""
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
