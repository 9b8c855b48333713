"""Results of played episodes, and of games against opponents.

An episode that lasts too long is given up and counts with its return so far. Another is played in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Match:
    """Games of a policy against one opponent, which held all other seats.

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
    successes, requested
        As in `Evaluation`.
    """

    opponent: str
    seat: str
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    outcomes: tuple[int, ...]
    unfinished: int = 0
    successes: tuple[float | None, ...] = ()
    requested: int = 0

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


@dataclass(frozen=True)
class Evaluation:
    """Result of played episodes.

    Attributes
    ----------
    returns, lengths
        True, undiscounted return and number of steps of each episode; for games, of each agent. An episode that was
        given up counts with its return and steps up to then.
    steps
        Steps from which the weights were learned.
    version
        Version of the weights, within a run.
    successes
        ``info["is_success"]`` of the last step of each episode of `returns`, None where missing; or empty.
    unfinished
        Number of episodes given up before they ended, the last ones of `returns`: after ``eval_max_steps`` steps, or at
        the time limit. They count in the mean, so that a policy that never dies is not scored only by its deaths, nor
        one that gets stuck only by its successes.
    requested
        Number of whole episodes requested; 0 if unknown. Fewer end if time runs out or as many were given up.
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
    requested: int = 0

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
    def took_part(self) -> bool:
        """Whether an agent of the policy acted in a game; otherwise the returns are 0 and meaningless."""
        return any(self.lengths)

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
    known = [success for success in successes if success is not None]
    return sum(known) / len(successes) if known else None


def evaluation_of(matches: Sequence[Match]) -> Evaluation:
    """Return the evaluation of a policy's matches: the one against the first opponent, from all seats."""
    first = [match for match in matches if match.opponent == matches[0].opponent]
    return Evaluation(**_episodes_of(first), matches=tuple(matches))


def joined(parts: Sequence[Evaluation]) -> Evaluation:
    """Join the parts of an evaluation: episodes, or games against the same opponents from the same seats."""
    if not parts[0].matches:
        return Evaluation(**_episodes_of(parts))
    return evaluation_of([
        replace(same[0], **_episodes_of(same), outcomes=tuple(chain(*(match.outcomes for match in same))))
        for same in zip(*(part.matches for part in parts), strict=True)
    ])  # fmt: skip


def _episodes_of(parts: Sequence[Match | Evaluation]) -> dict[str, Any]:
    """Return the episodes of several results by the names of fields; those given up come last."""
    ended = [slice(len(part.returns) - part.unfinished) for part in parts]
    given_up = [slice(len(part.returns) - part.unfinished, None) for part in parts]
    found: dict[str, Any] = {
        name: tuple(value for which in (ended, given_up) for part, its in zip(parts, which, strict=True)
                    for value in getattr(part, name)[its])
        for name in ("returns", "lengths", "successes")
    }  # fmt: skip
    return found | {name: sum(getattr(part, name) for part in parts) for name in ("unfinished", "requested")}


def by_opponent(matches: Iterable[Match]) -> dict[str, list[Match]]:
    """Group matches from all seats by the opponent's name."""
    found: dict[str, list[Match]] = {}
    for match in matches:
        found.setdefault(match.opponent, []).append(match)
    return found
