"""Scoring a policy against fixed opponents: so many games against each of them, from every seat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.config import BEST, RANDOM, name_of
from penstock.envs.episodes import outcome
from penstock.envs.guests import GuestGames
from penstock.envs.making import make_group
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation
from penstock.play.match import Match
from penstock.play.opponents import Opponent, OwnOpponent, RandomOpponent, found
from penstock.play.player import Bout, EpisodePlayer, Part, Player, lanes_for

Load = Callable[[], PolicyNetwork | None]
"""Returns the network of the best weights so far, None before there are any."""


def player_of(
    models: Sequence[PolicyNetwork],
    env: EnvSpec,
    opponents: Sequence[str | Callable[..., Any]] = (),
    *,
    episodes: int,
    deterministic: bool,
    seed: int,
    best: Load = lambda: None,
    **given: Any,
) -> Player:
    """Make what scores policies: among themselves, or the only one against opponents; parameters of `MatchPlayer`."""
    if opponents:
        (model,) = models
        return MatchPlayer(
            model, env, opponents, episodes=episodes, deterministic=deterministic, seed=seed, best=best, **given
        )
    group = make_group(env, lanes_for(episodes), seed=seed, **given)
    return EpisodePlayer(models, group, deterministic=deterministic, seed=seed)


class OneSeat:
    """The policy plays one seat of every game, and opponents all others.

    Attributes
    ----------
    seat
        Which, from the next reset on.
    outcomes
        How the games have ended for it, by game.
    """

    def __init__(self, num_games: int) -> None:
        self.num_games = num_games
        self.seat = 0
        self.outcomes: list[list[int]] = []

    def begin(self, game: int) -> int:
        """The same seat in every game."""
        return self.seat

    def over(self, game: int, returns: Sequence[float]) -> None:
        """Note how a game has ended."""
        self.outcomes[game].append(outcome(returns, self.seat))


class MatchPlayer(Player):
    """A policy that plays fixed opponents, in environments of its own.

    Parameters
    ----------
    model
        The policy's network.
    env
        What is played.
    opponents
        As ``eval_against`` has them.
    episodes
        Games against each opponent, from each seat.
    deterministic
        The policy takes the mode of its distribution, not a sample.
    best
        Returns the network that "best" is played by; where it returns None, "best" is left out.
    seed, **given
        Seeds, and whose environments they are, as for `make_group`.

    Raises
    ------
    ConfigError
        An opponent is not found.
    """

    def __init__(
        self,
        model: PolicyNetwork,
        env: EnvSpec,
        opponents: Sequence[str | Callable[..., Any]],
        *,
        episodes: int,
        deterministic: bool,
        seed: int,
        best: Load = lambda: None,
        **given: Any,
    ) -> None:
        self._opponents = [(name_of(opponent), opponent) for opponent in opponents]
        self._best = best
        self._seed = seed
        self._seating = OneSeat(lanes_for(episodes))
        group = make_group(env, self._seating.num_games, seed=seed, seating=self._seating, **given)
        assert isinstance(group, GuestGames)
        super().__init__(group)
        self._learner = group.learner
        self._agents = group.agents
        self._guests = group.guests
        self._part = Part(model, group.learner, deterministic=deterministic, seed=seed)
        self._players = {name: self._player(place) for name, place in self._opponents if place != BEST}

    def _evaluations(self, bout: Bout) -> tuple[Evaluation, ...]:
        """Play every opponent from every seat.

        Returns
        -------
        tuple of Evaluation
            One: returns and lengths are those against the first opponent, from all seats. `Evaluation.matches` has all.
        """
        matches = []
        for name, _ in self._opponents:
            opponent = self._players.get(name) or self._played_by_best()
            if opponent is not None:
                matches += [self._match(bout, name, opponent, seat) for seat in range(len(self._agents))]
        return (evaluation_of(matches),)

    def _match(self, bout: Bout, name: str, opponent: Opponent, seat: int) -> Match:
        part, seating = self._part, self._seating
        seating.seat, seating.outcomes = seat, [[] for _ in range(seating.num_games)]
        bout.play([part], [opponent])
        ended = [
            (episode, result)
            for of_game, results in zip(part.played, seating.outcomes, strict=True)
            for episode, result in zip(of_game, results, strict=False)
            if episode.length
        ]
        given_up = [episode for episode in part.given_up if episode.length]
        played = [*(episode for episode, _ in ended), *given_up] or [self._learner.running_episode(0)]
        return Match(
            name,
            self._agents[seat],
            returns=tuple(episode.episode_return for episode in played),
            lengths=tuple(episode.length for episode in played),
            outcomes=tuple(result for _, result in ended),
        )

    def _player(self, place: str | Callable[..., Any]) -> Opponent:
        if place == RANDOM:
            return RandomOpponent(self._guests, self._seed)
        return OwnOpponent(self._guests, found(place), self._seed)

    def _played_by_best(self) -> Part | None:
        model = self._best()
        return None if model is None else Part(model, self._guests, deterministic=False, seed=self._seed + 1)


def evaluation_of(matches: Sequence[Match]) -> Evaluation:
    """What a policy's matches come to: the evaluation is that against the first opponent, from all seats."""
    first = [match for match in matches if match.opponent == matches[0].opponent]
    ended = [slice(len(match.outcomes)) for match in first]
    given_up = [slice(len(match.outcomes), None) for match in first]
    returns, lengths = (
        tuple(value for which in (ended, given_up) for match, part in zip(first, which, strict=True)
              for value in getattr(match, name)[part])
        for name in ("returns", "lengths")
    )  # fmt: skip
    return Evaluation(returns, lengths, unfinished=sum(match.unfinished for match in first), matches=tuple(matches))
