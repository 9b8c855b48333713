"""Games whose observations and rewards encode agent, game and step, and the true course of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

KINDS = ("terminated", "truncated", "both")


@dataclass(frozen=True)
class Part:
    """An agent's part in each game: in which step it joins, how many steps it stays, and how it ends."""

    joins: int
    stays: int
    ends: str


parts = st.builds(Part, st.integers(0, 3), st.integers(1, 5), st.sampled_from(KINDS))


class _Counting:
    def __init__(self, num_agents: int) -> None:
        self.possible_agents = [f"player_{seat}" for seat in range(num_agents)]
        self.agents: list[str] = []
        self.game = -1
        self.tick = 0
        self.seeds: list[Any] = []
        self.is_closed = False

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def close(self) -> None:
        self.is_closed = True

    def shown(self, agent: str) -> np.ndarray:
        return np.array([self.possible_agents.index(agent), self.game, self.tick], np.float32)


class AtOnce(_Counting):
    """A ParallelEnv; an agent's reward in step t of game g is ``100 g + t``, t counted from 1."""

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__(len(parts))
        self.parts = dict(zip(self.possible_agents, parts, strict=True))

    def reset(self, seed: Any = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        self.game += 1
        first = min(part.joins for part in self.parts.values())
        self.tick = first
        self.agents = [agent for agent in self.possible_agents if self.parts[agent].joins == first]
        return {agent: self.shown(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert list(actions) == self.agents, "an action of every agent, and of no other"
        acting, self.tick = self.agents, self.tick + 1
        ends = {a: self.tick >= self.parts[a].joins + self.parts[a].stays for a in acting}
        terminated = {a: ends[a] and self.parts[a].ends in ("terminated", "both") for a in acting}
        truncated = {a: ends[a] and self.parts[a].ends in ("truncated", "both") for a in acting}
        # An agent that would join after all others have left has no part in the game.
        joining = [a for a in self.possible_agents if self.parts[a].joins == self.tick and a not in acting]
        staying = [a for a in acting if not ends[a]]
        self.agents = [a for a in self.possible_agents if a in staying or a in joining]
        shown = {a: self.shown(a) for a in (*acting, *joining)}
        rewards = {a: 100.0 * self.game + self.tick for a in acting}
        return shown, rewards, terminated, truncated, {a: {} for a in shown}


class Masked(AtOnce):
    """An agent's mask offers nothing in every other step."""

    def observation_space(self, agent):
        return spaces.Dict({"seen": spaces.Box(-np.inf, np.inf, (3,)), "action_mask": spaces.MultiBinary(2)})

    def shown(self, agent):
        turn = self.tick % 2 == self.possible_agents.index(agent)
        return {"seen": super().shown(agent), "action_mask": np.full(2, turn, np.int8)}


class InTurn(_Counting):
    """An AECEnv whose agents act one after the other; move m gives agent i the reward ``10^i * m``, m from 1.

    Parameters
    ----------
    num_agents
        How many.
    moves
        Moves of a game.
    ends
        How the game ends, for each agent.
    """

    def __init__(self, num_agents: int, moves: int, ends: Sequence[str]) -> None:
        super().__init__(num_agents)
        self.moves = moves
        self.ends = dict(zip(self.possible_agents, ends, strict=True))

    def reset(self, seed: Any = None, options: Any = None) -> None:
        self.seeds.append(seed)
        self.game += 1
        self.tick = 0
        self.agents = list(self.possible_agents)
        self.agent_selection = self.agents[0]
        self._due = dict.fromkeys(self.agents, 0.0)
        self._is_over = False

    def agent_iter(self) -> None: ...

    def last(self) -> tuple[Any, ...]:
        agent = self.agent_selection
        kind = self.ends[agent] if self._is_over else ""
        ended = kind in ("terminated", "both"), kind in ("truncated", "both")
        return self.shown(agent), self._due[agent], *ended, {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self._is_over:
            assert action is None, "the dead are stepped with None"
            self.agents.remove(agent)
            if self.agents:
                self.agent_selection = self.agents[0]
            return
        assert action in (0, 1)
        self.tick += 1
        self._due[agent] = 0.0
        for seat, one in enumerate(self.possible_agents):
            self._due[one] += 10.0**seat * self.tick
        self._is_over = self.tick == self.moves
        self.agent_selection = self.agents[self.tick % len(self.agents)]


Step = tuple[list[float], bool, float, str, list[float] | None]
"""As `tests.experience.writing` has it: observation, whether it begins an episode, reward, ending, what it led to."""


def steps_at_once(seat: int, parts: Sequence[Part]) -> Iterator[Step]:
    """True endless course of a seat of `AtOnce`; empty if no agent is left when it would join."""
    part = parts[seat]
    first = min(one.joins for one in parts)
    ends = first  # of the game: no agent is left
    for joins in range(first, 10):
        joining = [one for one in parts if one.joins == joins and joins <= max(ends, first)]
        ends = max([ends, *(one.joins + one.stays for one in joining)])
    if part.joins > first and part.joins >= ends:
        return
    for game in count():
        for n in range(part.stays):
            tick = part.joins + n
            is_last = n == part.stays - 1
            ending = "" if not is_last else "truncated" if part.ends == "truncated" else "terminated"
            led_to = None if ending == "terminated" else [seat, game, tick + 1]
            yield ([seat, game, tick], n == 0, 100.0 * game + tick + 1, ending, led_to)


def steps_in_turn(seat: int, num_agents: int, moves: int, ends: Sequence[str]) -> Iterator[Step]:
    """What a seat of `InTurn` really goes through, without end; nothing, if its turn never comes."""
    for game in count():
        for act in range(seat, moves, num_agents):
            until = min(act + num_agents, moves)
            is_last = act + num_agents >= moves
            ending = "" if not is_last else "truncated" if ends[seat] == "truncated" else "terminated"
            reward = sum(10.0**seat * (move + 1) for move in range(act, until))
            led_to = None if ending == "terminated" else [seat, game, until]
            yield ([seat, game, act], act == seat, reward, ending, led_to)
        if seat >= moves:
            return
