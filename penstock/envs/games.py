"""Games: environments of several agents, with every convention behind one contract.

=============================  ===================================================================================
convention                     recognised by
=============================  ===================================================================================
PettingZoo, agents in turn     ``agent_iter`` and ``last``
PettingZoo, agents at once     ``possible_agents``, and spaces that are methods of an agent's name
lists                          ``is_multiagent`` and ``num_agents`` (Sample Factory); or Tuple spaces with a member
                               for each of ``num_agents`` or ``n_agents`` agents
=============================  ===================================================================================

Games are recognised by their attributes; PettingZoo is not imported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
from gymnasium import spaces

FINAL_KEYS = ("final_observation", "final_obs")
_STEPPED = ("observations", "rewards", "terminations", "truncations", "infos")
ByAgent = Mapping[str, Any]


class GameError(Exception):
    """Game that violated its contract: `seat` is the agent's, None for the whole game; `problem` describes it."""

    def __init__(self, seat: int | None, problem: str) -> None:
        super().__init__(seat, problem)
        self.seat = seat
        self.problem = problem


class Ending(NamedTuple):
    """End of an agent's episode."""

    terminated: bool
    truncated: bool
    observation: Any
    """True last observation."""
    info: Mapping[str, Any]


@dataclass
class Turn:
    """Result of a reset or step of a game.

    Attributes
    ----------
    asked
        Observation and info of every seat that must choose an action now.
    rewards
        Rewards of seats since they were last reported.
    ended
        Seats whose episode is over.
    is_over
        Whether no agent is left and the game must be reset.
    """

    asked: dict[int, tuple[Any, Mapping[str, Any]]] = field(default_factory=dict)
    rewards: dict[int, float] = field(default_factory=dict)
    ended: dict[int, Ending] = field(default_factory=dict)
    is_over: bool = False


class Game(ABC):
    """Environment of several agents. An agent's seat is its index in `agents`.

    Attributes
    ----------
    agents
        Names of all possible agents, in the same order in every process.
    is_simultaneous
        Whether all agents act in every step; `step` then takes arbitrary actions for those not asked.
    ends
        Whether games end for all agents together; otherwise each agent starts its next episode alone.
    """

    agents: tuple[str, ...]
    is_simultaneous = True
    ends = True

    def __init__(self, env: Any) -> None:
        self._env = env

    @abstractmethod
    def reset(self, seed: int | None) -> Turn:
        """Begin a new game."""

    @abstractmethod
    def step(self, actions: Mapping[int, Any]) -> Turn:
        """Act for the seats that were asked; where agents are simultaneous, for all seats.

        Raises
        ------
        GameError
            The environment violated its contract.
        """

    @abstractmethod
    def spaces(self, seat: int) -> tuple[spaces.Space, spaces.Space]:
        """Return an agent's observation space and action space."""

    def close(self) -> None:
        """Close the environment."""
        self._env.close()


def game_of(env: Any) -> Game | None:
    """Return an environment as a game; None for one agent or an unknown convention."""
    if callable(getattr(env, "agent_iter", None)) and callable(getattr(env, "last", None)):
        return GameInTurn(env)
    if getattr(env, "possible_agents", None) and callable(getattr(env, "action_space", None)):
        return GameAtOnce(env)
    bare = getattr(env, "unwrapped", env)
    count = next((n for name in ("num_agents", "n_agents") if isinstance(n := getattr(bare, name, None), int)), 0)
    if count < 2:
        return None
    if getattr(bare, "is_multiagent", False):
        return GameOfLists(env, count, resets_itself=True)
    own = (getattr(env, "observation_space", None), getattr(env, "action_space", None))
    if all(isinstance(space, spaces.Tuple) and len(space) == count for space in own):
        return GameOfLists(env, count, resets_itself=False)
    return None


class _PettingZooGame(Game):
    """Base of PettingZoo's two conventions."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        agents = env.possible_agents  # a set's order would differ between processes
        self._keys = tuple(sorted(agents) if isinstance(agents, set | frozenset) else agents)
        self.agents = tuple(map(str, self._keys))
        self._seats = {agent: seat for seat, agent in enumerate(self._keys)}

    def spaces(self, seat: int) -> tuple[spaces.Space, spaces.Space]:
        agent = self._keys[seat]
        return self._env.observation_space(agent), self._env.action_space(agent)

    def _seat(self, agent: str) -> int:
        if agent not in self._seats:
            raise GameError(None, f"expected agents among possible_agents {list(self._keys)}, found {agent!r}")
        return self._seats[agent]


class GameAtOnce(_PettingZooGame):
    """PettingZoo's ParallelEnv: all living agents act in each step; the game is over when ``agents`` is empty."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._alive: list[str] = []
        self._gone: set[str] = set()

    def reset(self, seed: int | None) -> Turn:
        observations, infos = self._by_agent("reset", self._env.reset(seed=seed), ("observations", "infos"))
        self._alive, self._gone = [], set()
        turn = Turn()
        self._join(turn, observations, {}, infos)
        return turn

    def step(self, actions: Mapping[int, Any]) -> Turn:
        acting = [agent for agent in self._keys if agent in self._alive]
        answers = self._env.step({agent: actions[self._seats[agent]] for agent in acting})
        observations, rewards, terminated, truncated, infos = self._by_agent("step", answers, _STEPPED)
        turn, left = Turn(), set(self._env.agents)
        self._alive = []
        for agent in acting:
            seat = self._seats[agent]
            for what, by_agent in (("reward", rewards), ("termination", terminated), ("truncation", truncated)):
                if agent not in by_agent:
                    raise GameError(seat, f"step() must return a {what} for every agent that acted, found none for it")
            turn.rewards[seat] = rewards[agent]
            if terminated[agent] or truncated[agent]:
                if agent in left:
                    raise GameError(seat, "expected an agent whose episode is over to be gone from agents, found it")
                last = observations.get(agent)
                if last is None and not terminated[agent]:
                    raise GameError(seat, "step() must return the last observation of an agent that is truncated")
                turn.ended[seat] = Ending(bool(terminated[agent]), bool(truncated[agent]), last, infos.get(agent) or {})
                self._gone.add(agent)
            elif agent not in left:
                raise GameError(seat, "expected an agent that leaves to be terminated or truncated, found neither")
            else:
                self._alive.append(agent)
                turn.asked[seat] = self._shown(agent, observations, infos)
        self._join(turn, observations, rewards, infos)
        return turn

    def _by_agent(self, call: str, answers: Any, names: Sequence[str]) -> list[ByAgent]:
        """Return what a call has returned, checked to be dicts by agent; None counts as an empty one."""
        answers = answers if isinstance(answers, tuple | list) else (answers,)
        if len(answers) != len(names) or not all(each is None or isinstance(each, Mapping) for each in answers):
            found = ", ".join(type(each).__name__ for each in answers)
            raise GameError(None, f"{call}() must return {', '.join(names)}, each a dict by agent; found {found}")
        return [each or {} for each in answers]

    def _join(self, turn: Turn, observations: ByAgent, rewards: ByAgent, infos: ByAgent) -> None:
        """Ask the agents that have newly appeared; the game is over if there is no agent."""
        for agent in self._env.agents:
            seat = self._seat(agent)
            if agent in self._gone:
                raise GameError(seat, "expected an agent whose episode is over to stay away until reset, found it back")
            if agent not in self._alive:
                self._alive.append(agent)
                turn.asked[seat] = self._shown(agent, observations, infos)
                if agent in rewards:
                    turn.rewards[seat] = rewards[agent]
        turn.is_over = not self._alive

    def _shown(self, agent: str, observations: ByAgent, infos: ByAgent) -> tuple[Any, Mapping[str, Any]]:
        if agent not in observations:
            raise GameError(self._seats[agent], "expected an observation for every agent in agents, found none for it")
        return observations[agent], infos.get(agent) or {}


class GameInTurn(_PettingZooGame):
    """PettingZoo's AECEnv: the selected agent acts. Dead agents are stepped with None."""

    is_simultaneous = False

    def reset(self, seed: int | None) -> Turn:
        self._env.reset(seed=seed)
        return self._turn()

    def step(self, actions: Mapping[int, Any]) -> Turn:
        (action,) = actions.values()
        self._env.step(action)
        return self._turn()

    def _turn(self) -> Turn:
        """Read until a living agent is selected, or none is left."""
        env, turn = self._env, Turn()
        while env.agents:
            agent = env.agent_selection
            seat = self._seat(agent)
            observation, reward, terminated, truncated, info = env.last()
            turn.rewards[seat] = turn.rewards.get(seat, 0.0) + reward
            if not (terminated or truncated):
                turn.asked[seat] = observation, info
                return turn
            if seat in turn.ended:
                raise GameError(seat, "expected an agent that is over to be gone once it was stepped with None")
            turn.ended[seat] = Ending(bool(terminated), bool(truncated), observation, info)
            env.step(None)
        turn.is_over = True
        return turn


class GameOfLists(Game):
    """Lists with an item per agent. An agent whose info has ``is_active=False`` is not asked.

    Parameters
    ----------
    env
        The environment.
    count
        Number of agents.
    resets_itself
        Whether an agent whose episode ends shows its next one at once (Sample Factory). After truncation its last
        observation is in its info; if missing there, the one that it acted on replaces it.
    """

    def __init__(self, env: gymnasium.Env, count: int, *, resets_itself: bool) -> None:
        super().__init__(env)
        self.agents = tuple(f"agent_{seat}" for seat in range(count))
        self._resets_itself = resets_itself
        self.ends = not resets_itself
        self._observations: Sequence[Any] = ()
        self._over = [False] * count

    def reset(self, seed: int | None) -> Turn:
        self._observations, infos = self._env.reset(seed=seed)
        self._over = [False] * len(self.agents)
        turn = Turn()
        self._ask(turn, self._by_agent("observations", self._observations), self._infos(infos))
        return turn

    def step(self, actions: Mapping[int, Any]) -> Turn:
        chosen = [actions[seat] for seat in range(len(self.agents))]
        answers: tuple[Any, ...] = self._env.step(chosen if self._resets_itself else tuple(chosen))
        before = self._observations
        observations = self._by_agent("observations", answers[0])
        rewards = self._by_agent("rewards", answers[1])
        terminated, truncated = (
            self._by_agent("ends", flags) if hasattr(flags, "__len__") else [flags] * len(self.agents)
            for flags in answers[2:4]
        )
        infos, turn = self._infos(answers[4]), Turn()
        for seat in range(len(self.agents)):
            if self._over[seat]:
                continue
            turn.rewards[seat] = rewards[seat]
            if terminated[seat] or truncated[seat]:
                last = observations[seat]
                if self._resets_itself:
                    last = next((infos[seat][key] for key in FINAL_KEYS if key in infos[seat]), before[seat])
                turn.ended[seat] = Ending(bool(terminated[seat]), bool(truncated[seat]), last, infos[seat])
                self._over[seat] = not self._resets_itself
        self._observations = observations
        self._ask(turn, observations, infos)
        turn.is_over = all(self._over)
        return turn

    def spaces(self, seat: int) -> tuple[spaces.Space, spaces.Space]:
        count = len(self.agents)
        each = (self._env.observation_space, self._env.action_space)
        shown, taken = (
            space[seat] if isinstance(space, spaces.Tuple) and len(space) == count else space for space in each
        )
        return shown, taken

    def _ask(self, turn: Turn, observations: Sequence[Any], infos: Sequence[Mapping[str, Any]]) -> None:
        for seat, (observation, info) in enumerate(zip(observations, infos, strict=True)):
            if not self._over[seat] and info.get("is_active", True):
                turn.asked[seat] = observation, info

    def _infos(self, infos: Any) -> list[Mapping[str, Any]]:
        if isinstance(infos, Mapping):
            return [infos] * len(self.agents)
        return [info or {} for info in self._by_agent("infos", infos)]

    def _by_agent(self, what: str, values: Sequence[Any]) -> list[Any]:
        if not hasattr(values, "__len__"):
            raise GameError(None, f"expected a list with {what} of {len(self.agents)} agents, found {values!r}")
        if len(values) != len(self.agents):
            raise GameError(None, f"expected {what} of {len(self.agents)} agents, found {len(values)}")
        return list(values)
