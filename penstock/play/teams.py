"""Scoring of policies with their own seats: against each other and against fixed opponents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.game_group import Games
from penstock.envs.lanes import outcome
from penstock.envs.making import make_group
from penstock.envs.spec import EnvSpec
from penstock.nn import PolicyNetwork
from penstock.play.evaluation import Evaluation, Match, evaluation_of
from penstock.play.player import DRAWS, Part, Player, PlaySession
from penstock.self_play.fixed_opponents import Load, Opponent, opponent_of
from penstock.self_play.settings import BEST, OTHERS, name_of


class TeamPlayer(Player):
    """Player of policies against each other and fixed opponents; each plays its own agents, or as many shuffled ones.

    Against "others" all policies play together. Against any other opponent each policy plays separate games, in which
    the opponent plays all other policies' agents: "best" plays each with the best weights of its policy.

    Parameters
    ----------
    models
        Network of each policy.
    env
        Environment with its teams.
    opponents
        Opponents as in ``eval_against``, with "others" for the other policies.
    games
        Numbers of the games that are played at once, within the evaluation.
    deterministic
        Whether policies use the modes of their distributions instead of samples.
    best
        Functions that return the networks of "best"; if one returns None, "best" is omitted.
    seed, **given
        Seeds, and identification of the environments, as for `make_group`.

    Raises
    ------
    ConfigError
        An opponent does not exist.
    UnsupportedSpaceError
        Games have no end, but there are fixed opponents.
    """

    def __init__(
        self, models: Sequence[PolicyNetwork], env: EnvSpec, opponents: Sequence[str | Callable[..., Any]], *,
        games: range, deterministic: bool, seed: int, best: Sequence[Load], **given: Any,
    ) -> None:  # fmt: skip
        self._num_games = len(games)
        group = make_group(env, self._num_games, seed=seed, games=partial(Games, over=self._record), **given)
        assert isinstance(group, Games)
        super().__init__(group)
        if not group.ends and tuple(opponents) != (OTHERS,):
            raise UnsupportedSpaceError(
                "opponents play whole games, but this environment has no games that end: each agent starts its next "
                "episode by itself; leave out eval_against"
            )
        self._best = best
        self._seed = seed = seed + DRAWS * games.start
        self._games, self._lanes = group, group.teams
        self._seats = [", ".join(group.agents if env.is_shuffled else lanes.agents) for lanes in self._lanes]
        self._has_winners = group.have_winners
        self._outcomes: list[list[list[int | None]]] = []
        self._parts = [
            Part(model, lanes, deterministic=deterministic, seed=seed + policy)
            for policy, (model, lanes) in enumerate(zip(models, self._lanes, strict=True))
        ]
        self._opponents = [name_of(opponent) for opponent in opponents]
        self._fixed = {
            name_of(place): [opponent_of(place, lanes, seed + number) for number, lanes in enumerate(self._lanes)]
            for place in opponents
            if place not in (OTHERS, BEST)
        }

    def _evaluations(self, session: PlaySession) -> tuple[Evaluation, ...]:
        """Play every opponent; `Evaluation.matches` has all, other fields the first opponent's games."""
        matches: list[list[Match]] = [[] for _ in self._parts]
        for name in self._opponents:
            opponents = self._parts if name == OTHERS else self._fixed.get(name) or self._played_by_best()
            games = [range(len(self._parts))] if name == OTHERS else [[policy] for policy in range(len(self._parts))]
            for policies in games if opponents else ():
                self._play(session, opponents, policies)
                for policy in policies:
                    matches[policy].append(self._match(policy, name))
        return tuple(evaluation_of(of_policy) for of_policy in matches)

    def _play(self, session: PlaySession, opponents: Sequence[Opponent], policies: Sequence[int]) -> None:
        """Play games in which these policies play their agents, and opponents all others."""
        self._outcomes = [[[] for _ in range(self._num_games)] for _ in self._parts]
        parts = [self._parts[policy] for policy in policies]
        actors = [self._parts[number] if number in policies else each for number, each in enumerate(opponents)]
        session.play(actors, parts, [self._outcomes[policy] for policy in policies] if self._has_winners else ())

    def _match(self, policy: int, opponent: str) -> Match:
        outcomes = self._outcomes[policy] if self._has_winners else ()
        return self._parts[policy].match(opponent, self._seats[policy], outcomes)

    def _record(self, game: int, returns: Sequence[float]) -> None:
        """Record a game's outcome for each policy."""
        means = self._games.means(game, returns)
        for policy, outcomes in enumerate(self._outcomes):
            outcomes[game].append(outcome(means, policy))

    def _played_by_best(self) -> list[Opponent]:
        """Return opponents with the best weights of each policy; empty until all policies have some."""
        models = [load() for load in self._best]
        return [
            Part(model, lanes, deterministic=False, seed=self._seed + len(models) + number)
            for number, (model, lanes) in enumerate(zip(models, self._lanes, strict=True))
            if model is not None and None not in models
        ]
