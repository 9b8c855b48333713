"""Seats of a team in games, each a lane: observations, rewards and turns of its agent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import Any, Literal, Protocol

import numpy as np

from penstock.envs.columns import ActionDecoder, BadObservationError, observation_writer
from penstock.envs.failures import EnvironmentFailure
from penstock.envs.games import Ending, Turn
from penstock.envs.goals import GoalRules
from penstock.envs.lanes import SUCCESS, Lanes
from penstock.envs.masks import MASK, forbids_all
from penstock.envs.spaces import ActionSpec, ObservationSpec

TeamReward = Literal["own", "mean", "sum"]


class SteppedGames(Protocol):
    """Games that step together, in the form that a team's lanes use (see `penstock.envs.game_group.Games`)."""

    name: str
    agents: tuple[str, ...]

    def reset(self) -> None: ...

    def step(self, actions: Sequence[np.ndarray]) -> None: ...

    def close(self) -> None: ...

    def failure(
        self, phase: str, number: int, seat: int | None, problem: str | BaseException, *, named: bool = False
    ) -> EnvironmentFailure:
        """Return the error of a game that broke its contract."""
        ...


class SeatLanes(Lanes):
    """Seats of one team, each a lane: game by game, in the order of the team's agents.

    A row is one decision of an agent, not one step of the game. A transition is complete when its agent is asked again
    or its episode ends; its reward is the sum of the agent's rewards since its action. A lane has no rows while other
    agents act, nor between its episode's end and its game's.

    Parameters
    ----------
    games
        The games.
    seated
        Team's seats in each game.
    observation, action
        Specs of each agent's observations and actions.
    team_reward
        As for `Games`.
    is_simultaneous
        As for `Game`.

    Attributes
    ----------
    shown
        Observation of each lane that is asked, in the form of its game; meaningless for other lanes.
    """

    def __init__(
        self, games: SteppedGames, seated: Sequence[Sequence[int]], observation: ObservationSpec, action: ActionSpec, *,
        team_reward: TeamReward = "own", is_simultaneous: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(sum(map(len, seated)), observation, action, name=games.name)
        self.agents = tuple(games.agents[seat] for seat in max(seated, key=len))
        self.asked = np.zeros(self.num_lanes, np.bool_)
        self.moved = np.zeros(self.num_lanes, np.bool_)
        self.pending = np.zeros(self.num_lanes, np.bool_)
        self._games = games
        lanes = count()
        self._lanes_of = [[(next(lanes), seat) for seat in seats] for seats in seated]  # lanes and seats of each game
        self._team_reward = team_reward
        self._may_wait = is_simultaneous and observation.mask is not None
        self._is_reset = False
        self._chosen: list[Any] = []
        self._acts = np.zeros(self.num_lanes, np.bool_)  # in this step
        self._gathered = np.zeros(self.num_lanes, np.float64)  # reward since each lane's last action
        self._earned = np.zeros(self.num_lanes, np.float64)  # reward of the transitions completed in this step
        self._unearned = np.zeros(self.num_lanes, np.float64)  # reward before the first action of a new episode
        self._lives = np.zeros(self.num_lanes, np.bool_)  # the lane's episode is running
        self._played = np.zeros(self.num_lanes, np.bool_)  # the lane's episode has begun in the running game
        self.shown: list[Any] = [None] * self.num_lanes
        self._endings: dict[int, Ending] = {}
        self._ended_at: dict[int, tuple[int, int]] = {}  # game and seat at the end, by lane
        self._writes_finals = False
        self._decode = ActionDecoder(self.action)
        self._idle_action = self._decode.each(np.zeros((1, *self.action.column_shape), self.action.column_dtype))[0]
        self._writer = observation_writer(self.observation)

    def reset(self) -> None:
        self._games.reset()

    def step(self, actions: np.ndarray) -> None:
        """Step the games, if all of their agents belong to this team."""
        self._games.step([actions])

    def write_observations(self, column: np.ndarray, rows: np.ndarray) -> None:
        """Copy the observations of lanes that are asked; rows of others stay unchanged."""
        lanes = self.asked.nonzero()[0]
        self._write("step", column, rows[lanes], lanes, [self.shown[lane] for lane in lanes], is_final=False)

    def write_finals(self, column: np.ndarray, rows: np.ndarray) -> None:
        self._writes_finals = True
        shown = [
            self._observation("step", lane, *self._endings[lane][2:], is_final=True) for lane in self.finals.tolist()
        ]
        self._write("step", column, rows, self.finals, shown, is_final=True)
        self._writes_finals = False

    def goal_rules(self) -> list[GoalRules]:
        raise ValueError(f"expected environments of one agent, found {self.name} of {len(self.agents)} agents")

    def close(self) -> None:
        self._games.close()

    def restart(self) -> None:
        """Clear all state before the games are reset."""
        self._begin()
        for array in (self.asked, self.moved, self.pending, self._lives, self._played):
            array.fill(False)
        for rewards in (self._gathered, self._earned, self._unearned):
            rewards.fill(0.0)

    def begin(self) -> None:
        """Start after all games were reset."""
        self._grant_unearned()
        self._is_reset = True

    def count_env_steps(self, count: int) -> None:
        """Add steps of the games."""
        self._env_steps += count

    def seats_in(self, number: int) -> list[int]:
        """Return the team's seats in a game."""
        return [seat for _, seat in self._lanes_of[number]]

    def sit(self, number: int, seats: Sequence[int]) -> None:
        """Change seats in a game that is about to begin."""
        self._lanes_of[number] = [(lane, seat) for (lane, _), seat in zip(self._lanes_of[number], seats, strict=True)]

    def choose(self, actions: np.ndarray) -> None:
        """Store the policy's actions of all lanes; those of lanes that were not asked are ignored."""
        # Fixed opponents choose objects, which are in the games' form already.
        self._chosen = list(actions) if actions.dtype == object else self._decode.each(actions)
        if len(self._chosen) != self.num_lanes or not self._is_reset:
            found = f"{len(self._chosen)} actions"
            raise ValueError(f"expected actions for {self.num_lanes} lanes after a reset, found {found}")
        self._steps += 1
        for array in (self.moved, self.valid, self.terminated, self.truncated):
            array.fill(False)
        self._earned.fill(0.0)
        self._endings.clear()
        self.pending |= self.asked
        self._acts[:] = self.asked
        self.asked.fill(False)

    def actions_of(self, number: int, is_simultaneous: bool) -> dict[int, Any]:
        """Return the team's actions in a game, by seat; if simultaneous, arbitrary ones for seats not asked."""
        return {
            seat: self._chosen[lane] if self._acts[lane] else self._idle_action
            for lane, seat in self._lanes_of[number]
            if self._acts[lane] or is_simultaneous
        }

    def take(self, number: int, turn: Turn) -> None:
        """Process a turn of a game.

        Rewards before an agent's first action count only in its episode's return; an episode that ends before that
        action has no steps.
        """
        self._gather(number, turn)
        for lane, seat in self._lanes_of[number]:
            if seat in turn.ended:
                self._ended_at[lane] = number, seat
                self._end(lane, turn.ended[seat])
            if seat in turn.asked:
                self._ask(lane, *turn.asked[seat])

    def end_game(self, number: int) -> None:
        """End a game, or discard one that never began."""
        for lane, seat in self._lanes_of[number]:
            if self._lives[lane]:
                problem = "expected every agent to be terminated or truncated by the end of its game, found neither"
                raise self._games.failure("step", number, seat, problem, named=True)
            if self._steps and not self._played[lane]:
                self._episodes.skip(lane)
            self._played[lane] = False

    def finish_step(self) -> None:
        """Finish the step after all games' turns."""
        self.finals = np.array([lane for lane in self._endings if self.truncated[lane]], np.int64)
        self._store_reward(self._earned)
        self._grant_unearned()
        for lane, ending in self._endings.items():
            if SUCCESS in ending.info:
                self._episodes.add_success(lane, ending.info[SUCCESS])

    def _end(self, lane: int, ending: Ending) -> None:
        self._collect_info("step", lane, ending.info)
        if not self.pending[lane]:
            self._gathered[lane] = 0.0
            return
        self._complete(lane)
        self._lives[lane] = False
        self.terminated[lane] = ending.terminated
        self.truncated[lane] = ending.truncated and not ending.terminated
        # Copied: it is written after the next reset, which may reuse its memory.
        if self.truncated[lane]:
            ending = ending._replace(observation=deepcopy(ending.observation))
        self._endings[lane] = ending

    def _ask(self, lane: int, observation: Any, info: Mapping[str, Any]) -> None:
        phase = "step" if self._lives[lane] else "reset"
        self._collect_info(phase, lane, info)
        if self._may_wait and forbids_all(self.observation, observation, info):
            return
        if self.pending[lane]:
            self._complete(lane)
        elif not self._lives[lane]:
            self._unearned[lane], self._gathered[lane] = self._gathered[lane], 0.0
        self.first[lane] = not self._lives[lane]
        self.asked[lane] = self._lives[lane] = self._played[lane] = True
        self.shown[lane] = self._observation(phase, lane, observation, info)

    def _complete(self, lane: int) -> None:
        """Complete the transition of a lane's pending action."""
        self.moved[lane] = self.valid[lane] = True
        self.pending[lane] = False
        self._earned[lane], self._gathered[lane] = self._gathered[lane], 0.0

    def _gather(self, number: int, turn: Turn) -> None:
        """Add rewards to the agents' sums; with team rewards, to those of the team's living agents."""
        lanes = self._lanes_of[number]
        rewards = {lane: self._number(lane, turn.rewards[seat]) for lane, seat in lanes if seat in turn.rewards}
        if self._team_reward != "own" and lanes:
            total = sum(rewards.values())
            share = total if self._team_reward == "sum" else total / len(lanes)
            rewards = {lane: share for lane, _ in lanes if self._lives[lane]}
        for lane, value in rewards.items():
            self._gathered[lane] += value

    def _number(self, lane: int, reward: Any) -> float:
        """Return an agent's reward, checked to be finite."""
        try:
            number = float(reward if isinstance(reward, float | int) else np.asarray(reward).item())
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise self._failure("step", lane, f"expected a single finite number as reward, found {reward!r}")
        return number

    def _grant_unearned(self) -> None:
        """Add rewards before an agent's first action to the return of the episode that begins."""
        for lane in self._unearned.nonzero()[0].tolist():
            self._episodes.grant(lane, self._unearned[lane])
        self._unearned.fill(0.0)

    def _observation(
        self, phase: str, lane: int, observation: Any, info: Mapping[str, Any], *, is_final: bool = False
    ) -> Any:
        """Return an observation for the writer, paired with the mask from the info, if any."""
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
            raise self._failure(phase, None if bad.index is None else int(lanes[bad.index]), bad.problem) from bad
        self._check_masks(column, rows, np.full(len(rows), is_final), lanes)

    def _failure(self, phase: str, lane: int | None, problem: str | BaseException) -> EnvironmentFailure:
        places = {lane: (number, seat) for number, lanes in enumerate(self._lanes_of) for lane, seat in lanes}
        places |= self._ended_at if self._writes_finals else {}
        number, seat = places[lane or 0]
        return self._games.failure(phase, number, None if lane is None else seat, problem, named=True)
