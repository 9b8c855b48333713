"""Scores of a policy against fixed opponents, from every seat of their games."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.envs.lanes import outcome
from penstock.envs.making import make_group
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation, Match, evaluation_of
from penstock.play.player import DRAWS, EpisodePlayer, Part, Player, PlaySession
from penstock.play.teams import TeamPlayer
from penstock.self_play.fixed_opponents import Load, Opponent, opponent_of
from penstock.self_play.games import GuestGames
from penstock.self_play.settings import BEST, OTHERS, name_of


def player_of(
    models: Sequence[PolicyNetwork], env: EnvSpec, opponents: Sequence[str | Callable[..., Any]] = (), *, games: range,
    deterministic: bool, seed: int, first_lane: int, best: Sequence[Load] = (), **given: Any,
) -> Player:  # fmt: skip
    """Make the player that scores policies: against each other and opponents, or each alone.

    Parameters are those of `MatchPlayer`, except that `best` has a function for each policy, or is empty, and that
    `first_lane` is the first lane of the whole evaluation.
    """
    seats = env.of_one.seats
    given["first_lane"] = first_lane + games.start * seats
    settings: dict[str, Any] = {"games": games, "deterministic": deterministic, "seed": seed, **given}
    best = best or [lambda: None] * len(models)
    if len(models) > 1 and env.population == 1:
        return TeamPlayer(models, env, opponents or (OTHERS,), best=best, **settings)
    if opponents:
        (model,), (its_best,) = models, best
        return MatchPlayer(model, env, opponents, best=its_best, **settings)
    group = make_group(env, len(games), seed=seed, **given)
    draws = seed if seats == 1 else seed + DRAWS * games.start  # lanes of games are numbered within their group
    return EpisodePlayer(models, group, deterministic=deterministic, seed=draws)


class OneSeat:
    """Pairings in which the policy has one seat of every game, and opponents all others.

    Attributes
    ----------
    seat
        The policy's seat from the next reset on.
    outcomes
        Outcomes of the policy, by game.
    """

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.seat = 0
        self.outcomes: list[list[int | None]] = []

    def begin(self, game: int) -> int:
        """Return the policy's seat, the same in every game."""
        return self.seat

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Record the outcome of a game."""
        self.outcomes[game].append(outcome(returns, self.seat))


class MatchPlayer(Player):
    """Player of a policy against fixed opponents, in environments of its own.

    Parameters
    ----------
    model
        The policy's network.
    env
        The environment.
    opponents
        Opponents as in ``eval_against``.
    games
        Numbers of the games that are played at once, among those of the evaluation.
    deterministic
        Whether the policy plays the mode of its distribution, not a sample.
    best
        Function that returns the network of the opponent "best", which is left out if the result is None.
    seed, **given
        Seed, and further parameters of `make_group`.

    Raises
    ------
    ConfigError
        An opponent is not found.
    """

    def __init__(
        self, model: PolicyNetwork, env: EnvSpec, opponents: Sequence[str | Callable[..., Any]], *, games: range,
        deterministic: bool, seed: int, best: Load = lambda: None, **given: Any,
    ) -> None:  # fmt: skip
        self._opponents = [(name_of(opponent), opponent) for opponent in opponents]
        self._best = best
        self._seating = OneSeat(len(games))
        seated = partial(GuestGames, guests={0: [True] * len(games)}, seating=self._seating)
        group = make_group(env, len(games), seed=seed, games=seated, **given)
        self._seed = seed = seed + DRAWS * games.start
        assert isinstance(group, GuestGames)
        super().__init__(group)
        self._agents = group.agents
        learner, self._guests = group.teams
        self._part = Part(model, learner, deterministic=deterministic, seed=seed)
        self._players = {
            name: opponent_of(place, self._guests, seed) for name, place in self._opponents if place != BEST
        }

    def _evaluations(self, session: PlaySession) -> tuple[Evaluation, ...]:
        """Play every opponent from every seat.

        Returns
        -------
        tuple of Evaluation
            One evaluation, with returns and lengths against the first opponent, from all seats; `Evaluation.matches`
            has all games.
        """
        matches = []
        for name, _ in self._opponents:
            opponent = self._players.get(name) or self._played_by_best()
            if opponent is not None:
                matches += [self._match(session, name, opponent, seat) for seat in range(len(self._agents))]
        return (evaluation_of(matches),)

    def _match(self, session: PlaySession, name: str, opponent: Opponent, seat: int) -> Match:
        part, seating = self._part, self._seating
        seating.seat, seating.outcomes = seat, [[] for _ in range(seating.num_games)]
        session.play([part, opponent], [part], [seating.outcomes])
        return part.match(name, self._agents[seat], seating.outcomes)

    def _played_by_best(self) -> Part | None:
        model = self._best()
        return None if model is None else Part(model, self._guests, deterministic=False, seed=self._seed + 1)
