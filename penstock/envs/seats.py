"""Lanes of games: every seat, the place of one agent in one environment, is a lane."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import numpy as np

from penstock.envs.actions import ActionDecoder
from penstock.envs.episodes import SUCCESS
from penstock.envs.failures import EnvironmentFailure, UnsupportedSpaceError
from penstock.envs.games import Ending, Game, GameError, Turn
from penstock.envs.goals import GoalRules
from penstock.envs.lanes import Lanes
from penstock.envs.masks import MASK, forbids_all
from penstock.envs.observations import BadObservationError, observation_writer
from penstock.envs.translation import environment_specs

TeamReward = Literal["own", "mean", "sum"]


class SeatLanes(Lanes):
    """The seats of some games, each a lane: those of the first game come first, in the order of its agents.

    A row is one decision of an agent, not one step of the game. A transition is complete when its agent is asked again
    or its episode is over; its reward is the sum of all that the agent got since it acted. An agent waits without rows
    while others act, and after its end until its game is over. A game that is over is reset at once.

    Parameters
    ----------
    games
        Games of the same agents, whose spaces are all alike.
    seeds
        Of their first resets.
    team_reward
        "own": each agent's reward is its own; "mean", "sum": that of all agents of its game.
    name, first_lane
        As for `Lanes`.
    mask_is_in_info
        Every info holds a mask of legal actions.

    Raises
    ------
    UnsupportedSpaceError
        The agents' spaces have no column layout, or differ.
    """

    def __init__(
        self,
        games: Sequence[Game],
        seeds: Sequence[int],
        *,
        name: str,
        team_reward: TeamReward = "own",
        first_lane: int = 0,
        mask_is_in_info: bool = False,
    ) -> None:
        agents = games[0].agents
        super().__init__(
            len(games) * len(agents), *_specs_of(games[0], mask_is_in_info), name=name, first_lane=first_lane
        )
        self.agents = agents
        self.asked = np.zeros(self.num_lanes, np.bool_)
        self.moved = np.zeros(self.num_lanes, np.bool_)
        self.pending = np.zeros(self.num_lanes, np.bool_)
        self._games = list(games)
        size = len(agents)
        self._seats = [range(number * size, (number + 1) * size) for number in range(len(games))]  # lanes of each game
        self._may_wait = games[0].is_simultaneous and self.observation.mask is not None
        self._seeds: list[int | None] = list(seeds)
        self._team_reward = team_reward
        self._gathered = np.zeros(self.num_lanes, np.float64)  # since each lane acted
        self._unearned = np.zeros(self.num_lanes, np.float64)  # before the first action of an episode that has begun
        self._lives = np.zeros(self.num_lanes, np.bool_)  # the lane's episode has begun, and is not over
        self._played = np.zeros(self.num_lanes, np.bool_)  # it has begun in the running game
        self._is_reset = False
        self._shown: list[Any] = [None] * self.num_lanes
        self._endings: dict[int, Ending] = {}
        self._decode = ActionDecoder(self.action)
        self._idle_action = self._decode.each(np.zeros((1, *self.action.column_shape), self.action.column_dtype))[0]
        self._writer = observation_writer(self.observation)

    def reset(self) -> None:
        self._begin()
        for array in (self.asked, self.moved, self.pending, self._lives, self._played):
            array.fill(False)
        self._gathered.fill(0.0)
        self._unearned.fill(0.0)
        for number in range(len(self._games)):
            self._reset_game(number)
        self.reward.fill(0.0)
        self._grant_unearned()
        self._is_reset = True

    def step(self, actions: np.ndarray) -> None:
        chosen = self._decode.each(actions)
        if len(chosen) != self.num_lanes or not self._is_reset:
            raise ValueError(f"expected actions for {self.num_lanes} lanes after a reset, found {len(chosen)} actions")
        self._steps += 1
        self._env_steps += len(self._games)
        for array in (self.moved, self.valid, self.terminated, self.truncated):
            array.fill(False)
        self._endings.clear()
        self.pending |= self.asked
        asked = self.asked.copy()
        self.asked.fill(False)
        reward = np.zeros(self.num_lanes, np.float64)
        for number, game in enumerate(self._games):
            seats = self._seats[number]
            given = {
                lane - seats.start: chosen[lane] if asked[lane] else self._idle_action
                for lane in seats
                if asked[lane] or game.is_simultaneous
            }
            turn = self._call("step", number, partial(game.step, given))
            self._take(number, turn, reward)
            if turn.is_over:
                self._reset_game(number)
        self.finals = np.array([lane for lane in self._endings if self.truncated[lane]], np.int64)
        self._settle_reward(reward)
        self._grant_unearned()
        for lane, ending in self._endings.items():
            if SUCCESS in ending.info:
                self._episodes.tell_success(lane, ending.info[SUCCESS])

    def write_observations(self, column: np.ndarray, rows: np.ndarray) -> None:
        """Copy the observations of those lanes that are asked; the rows of others stay as they are."""
        lanes = self.asked.nonzero()[0]
        self._write("step", column, rows[lanes], lanes, [self._shown[lane] for lane in lanes], is_final=False)

    def write_finals(self, column: np.ndarray, rows: np.ndarray) -> None:
        shown = [
            self._observation("step", lane, *self._endings[lane][2:], is_final=True) for lane in self.finals.tolist()
        ]
        self._write("step", column, rows, self.finals, shown, is_final=True)

    def goal_rules(self) -> list[GoalRules]:
        raise ValueError(f"expected environments of one agent, found {self.name} of {len(self.agents)} agents")

    def close(self) -> None:
        games, self._games = self._games, []
        failure = None
        for number, game in enumerate(games):
            try:
                game.close()
            except Exception as error:
                failure = failure or self._failure("close", number * len(self.agents), error)
        if failure is not None:
            raise failure

    def _reset_game(self, number: int) -> None:
        seats = self._seats[number]
        for lane in seats:
            if self._lives[lane]:
                problem = "expected every agent to be terminated or truncated by the end of its game, found neither"
                raise self._failure("step", lane, problem)
            if self._steps and not self._played[lane]:
                self._episodes.skip(lane)
            self._played[lane] = False
        seed, self._seeds[number] = self._seeds[number], None
        turn = self._call("reset", number, partial(self._games[number].reset, seed))
        if not turn.asked:
            raise self._failure_of_game("reset", number, "expected an agent that is to act after reset(), found none")
        self._take(number, turn, np.zeros(self.num_lanes))

    def _take(self, number: int, turn: Turn, reward: np.ndarray) -> None:
        """Take what a turn of a game has brought; `reward`, float64 ``[N]``, gets what completed transitions brought.

        What an agent got before it acted at all counts in its episode's return alone; an episode that ends before that
        has no steps.
        """
        first = self._seats[number].start
        self._gather(number, turn)
        for seat, ending in turn.ended.items():
            lane = first + seat
            self._collect("step", lane, ending.info)
            if not self.pending[lane]:
                self._gathered[lane] = 0.0
                continue
            self._complete(lane, reward)
            self._lives[lane] = False
            self.terminated[lane] = ending.terminated
            self.truncated[lane] = ending.truncated and not ending.terminated
            # The reset that comes before it is written may use its memory again.
            if self.truncated[lane]:
                ending = ending._replace(observation=deepcopy(ending.observation))
            self._endings[lane] = ending
        for seat, (observation, info) in turn.asked.items():
            lane = first + seat
            phase: Literal["reset", "step"] = "step" if self._lives[lane] else "reset"
            self._collect(phase, lane, info)
            if self._may_wait and forbids_all(self.observation, observation, info):
                continue
            if self.pending[lane]:
                self._complete(lane, reward)
            elif not self._lives[lane]:
                self._unearned[lane], self._gathered[lane] = self._gathered[lane], 0.0
            self.first[lane] = not self._lives[lane]
            self.asked[lane] = self._lives[lane] = self._played[lane] = True
            self._shown[lane] = self._observation(phase, lane, observation, info)

    def _complete(self, lane: int, reward: np.ndarray) -> None:
        """End the transition of a lane's pending action."""
        self.moved[lane] = self.valid[lane] = True
        self.pending[lane] = False
        reward[lane], self._gathered[lane] = self._gathered[lane], 0.0

    def _gather(self, number: int, turn: Turn) -> None:
        """Add rewards to what their agents have got; where a team shares them, to what its living agents have."""
        lanes = self._seats[number]
        rewards = {lanes[seat]: self._number(lanes[seat], value) for seat, value in turn.rewards.items()}
        if self._team_reward != "own":
            total = sum(rewards.values())
            share = total if self._team_reward == "sum" else total / len(self.agents)
            rewards = dict.fromkeys((lane for lane in lanes if self._lives[lane]), share)
        for lane, value in rewards.items():
            self._gathered[lane] += value

    def _number(self, lane: int, reward: Any) -> float:
        """An agent's reward, finite."""
        try:
            number = float(reward if isinstance(reward, float | int) else np.asarray(reward).item())
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._failure("step", lane, f"expected a single finite number as reward, found {reward!r}")
        return number

    def _grant_unearned(self) -> None:
        """Add what agents got before their first actions to the returns of the episodes that begin."""
        for lane in self._unearned.nonzero()[0].tolist():
            self._episodes.grant(lane, self._unearned[lane])
        self._unearned.fill(0.0)

    def _observation(
        self, phase: str, lane: int, observation: Any, info: Mapping[str, Any], *, is_final: bool = False
    ) -> Any:
        """What the writer takes: with the mask beside it, where that is in the info."""
        if not self.observation.mask_is_in_info:
            return observation
        return observation, self._mask_of(phase, lane, info.get(MASK), is_final=is_final)

    def _write(
        self, phase: str, column: np.ndarray, rows: np.ndarray, lanes: np.ndarray, shown: list[Any], *, is_final: bool
    ) -> None:
        if not len(rows):
            return
        try:
            self._writer.write_each(column, rows, shown)
        except BadObservationError as bad:
            lane = None if bad.index is None else int(lanes[bad.index])
            raise self._failure(phase, lane, bad.problem) from bad
        self._settle_masks(column, rows, np.full(len(rows), is_final), lanes)

    def _collect(self, phase: str, lane: int, info: Mapping[str, Any]) -> None:
        """Take the numbers that an info reports, and note whether it holds a mask."""
        if isinstance(info, dict) and not info:
            return
        if not isinstance(info, Mapping):
            raise self._failure(phase, lane, f"{phase}() must return a dict as info, found {info!r}")
        if "metrics" in info:
            metrics = info["metrics"]
            if not isinstance(metrics, Mapping):
                problem = f"expected info['metrics'] to be a dict of numbers by name, found {metrics!r}"
                raise self._failure(phase, lane, problem)
            self._metrics.add(metrics)
        if info.get(MASK) is not None:
            if phase == "reset":
                self.mask_was_in_info = True
            else:
                self._require_known_mask(lane)

    def _call(self, phase: str, number: int, call: Callable[[], Turn]) -> Turn:
        """Let a game take its turn."""
        first = self._seats[number].start
        try:
            return call()
        except EnvironmentFailure:
            raise
        except GameError as error:
            if error.seat is None:
                raise self._failure_of_game(phase, number, error.problem) from error
            raise self._failure(phase, first + error.seat, error.problem) from error
        except (Exception, SystemExit) as error:
            raise self._failure(phase, first, error) from error

    def _failure_of_game(self, phase: str, number: int, problem: str) -> EnvironmentFailure:
        """One that is no agent's: the lane is the game's first."""
        return EnvironmentFailure(self.name, phase, self.first_lane + self._seats[number].start, self._steps, problem)


def _specs_of(game: Game, mask_is_in_info: bool) -> tuple[Any, Any]:
    """What each agent shows and takes; they are all alike."""
    spaces = [game.spaces(seat) for seat in range(len(game.agents))]
    found = [environment_specs(*seen_and_done, mask_is_in_info) for seen_and_done in spaces]
    for seat, specs in enumerate(found):
        if specs != found[0]:
            (seen, done), (others, does) = spaces[0], spaces[seat]
            raise UnsupportedSpaceError(
                f"agents of one policy need the same spaces: {game.agents[0]!r} sees {seen} and does {done}, "
                f"{game.agents[seat]!r} sees {others} and does {does}"
            )
    return found[0]
