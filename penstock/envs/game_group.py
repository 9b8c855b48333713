"""Games that step together: every seat, one agent's place in one game, is a lane of its agent's policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from penstock.envs.failures import FAILING, EnvironmentFailure, UnsupportedSpaceError
from penstock.envs.games import Game, GameError, Turn
from penstock.envs.lanes import Group
from penstock.envs.seats import SeatLanes, TeamReward
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.translation import environment_specs

Over = Callable[[int, Sequence[float]], object]
MOST_IDLE = 10_000  # steps in which no agent of any game acts, before the masks are taken for wrong


class Games(Group):
    """Games that step together, with the seats of each team as the lanes of one policy.

    A game that is over is reset at once.

    Parameters
    ----------
    games
        Games of the same agents.
    seeds
        Seeds of the first resets.
    name
        Name of the environment, for messages.
    teams
        Names of each team's agents; empty: one team of all.
    team_reward
        "own": each agent's own reward; "mean", "sum": over all agents of its team.
    is_shuffled
        Whether teams draw their agents anew before each game, the number per team unchanged.
    first_lane
        Number of the first game's first seat among all seats of the run, for messages.
    mask_is_in_info
        Whether every info holds a mask of legal actions.
    over
        Called after each finished game with its number and the return of each seat's agent.

    Attributes
    ----------
    agents
        Names of all agents, in the order of their seats.
    teams
        Lanes of each team.
    ends
        Whether games end for all agents together.
    have_winners
        Whether games of two teams have a winner by return, because the teams could change places.

    Raises
    ------
    UnsupportedSpaceError
        A team's spaces have no column layout, or differ; or teams are shuffled, and the spaces of all agents differ or
        games have no end.
    """

    def __init__(
        self, games: Sequence[Game], seeds: Sequence[int], *, name: str, teams: Sequence[Sequence[str]] = (),
        team_reward: TeamReward = "own", is_shuffled: bool = False, first_lane: int = 0, mask_is_in_info: bool = False,
        over: Over | None = None,
    ) -> None:  # fmt: skip
        self._games = list(games)
        self._seeds: list[int | None] = list(seeds)
        self.name = name
        self._first_lane = first_lane
        self.agents = games[0].agents
        self.ends = games[0].ends
        self._over = over
        if is_shuffled:
            _require_exchangeable(games[0], mask_is_in_info)
        # The last number separates these seeds from the environments'.
        self._draws = [np.random.default_rng([seed, 3]) for seed in seeds] if is_shuffled else []
        self._returns = [[0.0] * len(self.agents) for _ in games]
        self._steps = self._idle = 0
        self.teams: list[SeatLanes] = []
        for kind, seated in self._seated(teams or [self.agents]):
            agents = [self.agents[seat] for seat in max(seated, key=len)]
            specs = _specs_of(games[0], agents, mask_is_in_info)
            is_simultaneous = games[0].is_simultaneous
            self.teams.append(kind(self, seated, *specs, team_reward=team_reward, is_simultaneous=is_simultaneous))
        kinds = [(len(lanes.agents), lanes.observation, lanes.action) for lanes in self.teams]
        self.have_winners = self.ends and all(kind == kinds[0] for kind in kinds)
        super().__init__(self.teams)

    def reset(self) -> None:
        for team in self.teams:
            team.restart()
        for number in range(len(self._games)):
            self._reset_game(number)
        for team in self.teams:
            team.begin()

    def step(self, actions: Sequence[np.ndarray]) -> None:
        for team, chosen in zip(self.teams, actions, strict=True):
            team.choose(chosen)
        self._steps += 1
        self.teams[0].count_env_steps(len(self._games))
        for number, game in enumerate(self._games):
            given: dict[int, Any] = {}
            for team in self.teams:
                given |= team.actions_of(number, game.is_simultaneous)
            turn = self._call("step", number, partial(game.step, given))
            self._take(number, turn)
            if turn.is_over:
                self._reset_game(number)
        for team in self.teams:
            team.finish_step()
        self._idle = 0 if any(team.asked.any() for team in self.teams) else self._idle + 1
        if self._idle == MOST_IDLE:
            found = f"expected an agent that is to act, found none in {MOST_IDLE:,} steps: all of them wait; "
            raise self.failure("step", 0, None, f"{found}give masks with a legal action, and is_active=True in infos")

    def close(self) -> None:
        games, self._games = self._games, []
        failure = None
        for number, game in enumerate(games):
            try:
                game.close()
            except tuple(FAILING) as error:
                failure = failure or self.failure("close", number, 0, error)
        if failure is not None:
            raise failure

    def failure(
        self, phase: str, number: int, seat: int | None, problem: str | BaseException, *, named: bool = False
    ) -> EnvironmentFailure:
        """Return the error of a game, with its number, the seat and optionally the agent's name."""
        if named and seat is not None:
            problem = f"{problem} (agent {self.agents[seat]!r})"
        place = number * len(self.agents) + (seat or 0)
        return EnvironmentFailure.of(self.name, phase, self._first_lane + place, self._steps, problem)

    def means(self, number: int, returns: Sequence[float]) -> list[float]:
        """Return each team's mean of its agents' values in a game."""
        return [fmean(returns[seat] for seat in seats) for seats in self._seats_by_team(number)]

    def _seats_by_team(self, number: int) -> list[list[int]]:
        return [lanes.seats_in(number) for lanes in self.teams]

    def _seated(self, teams: Sequence[Sequence[str]]) -> list[tuple[type[SeatLanes], list[list[int]]]]:
        """Return each team's type of lanes, and its seats in each game."""
        seats = {agent: seat for seat, agent in enumerate(self.agents)}
        return [(SeatLanes, [[seats[agent] for agent in team]] * len(self._games)) for team in teams]

    def _seat(self, number: int) -> None:
        """Assign seats in a game that is about to begin; they change only if teams are shuffled."""
        if self._draws:
            seats = iter(self._draws[number].permutation(len(self.agents)).tolist())
            for team in self.teams:
                team.sit(number, [next(seats) for _ in team.seats_in(number)])

    def _take(self, number: int, turn: Turn) -> None:
        for team in self.teams:
            team.take(number, turn)
        if self._over is None:
            return
        returns = self._returns[number]
        for seat, reward in turn.rewards.items():
            returns[seat] += float(np.asarray(reward).item())
        if turn.is_over:
            self._over(number, returns)

    def _reset_game(self, number: int) -> None:
        for team in self.teams:
            team.end_game(number)
        self._seat(number)
        self._returns[number] = [0.0] * len(self.agents)
        seed, self._seeds[number] = self._seeds[number], None
        turn = self._call("reset", number, partial(self._games[number].reset, seed))
        if not turn.asked:
            raise self.failure("reset", number, None, "expected an agent that is to act after reset(), found none")
        self._take(number, turn)

    def _call(self, phase: str, number: int, call: Callable[[], Turn]) -> Turn:
        """Call a game's reset or step; raise `EnvironmentFailure` for its errors."""
        try:
            return call()
        except EnvironmentFailure:
            raise
        except GameError as error:
            raise self.failure(phase, number, error.seat, error.problem, named=True) from error
        except tuple(FAILING) as error:
            raise self.failure(phase, number, None, error) from error


def games_by_spaces(games: Sequence[Game], seeds: Sequence[int], **given: Any) -> Games:
    """Make `Games` with a team for each kind of spaces."""
    teams: dict[Any, list[str]] = {}
    for seat, agent in enumerate(games[0].agents):
        teams.setdefault(environment_specs(*games[0].spaces(seat), given["mask_is_in_info"]), []).append(agent)
    return Games(games, seeds, **{**given, "teams": list(teams.values())})


def _require_exchangeable(game: Game, mask_is_in_info: bool) -> None:
    """Raise `UnsupportedSpaceError` if the teams cannot change places."""
    if not game.ends:
        raise UnsupportedSpaceError(
            "teams change agents between games, and this environment has no games that end: each agent starts its next "
            "episode alone; use seats='fixed'"
        )
    _specs_of(game, game.agents, mask_is_in_info, "agents that policies change between games", "use seats='fixed'")


def _specs_of(
    game: Game, team: Sequence[str], mask_is_in_info: bool, whose: str = "agents of one policy",
    advice: str = "give them policies of their own",
) -> tuple[ObservationSpec, ActionSpec]:  # fmt: skip
    """Return the specs of a team's agents, which must be identical."""
    spaces = [game.spaces(game.agents.index(agent)) for agent in team]
    found = [environment_specs(*seen_and_done, mask_is_in_info) for seen_and_done in spaces]
    for number, specs in enumerate(found):
        if not (specs[0].is_seen_as(found[0][0]) and specs[1] == found[0][1]):
            (seen, done), (others, does) = spaces[0], spaces[number]
            raise UnsupportedSpaceError(
                f"{whose} need the same spaces: {team[0]!r} sees {seen} and does {done}, "
                f"{team[number]!r} sees {others} and does {does}; {advice}"
            )
    return found[0]
