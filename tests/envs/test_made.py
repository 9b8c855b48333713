"""Environments of several agents, and environments already made, are distinguished from constructors."""

import gymnasium
import pytest

from penstock.config import Config, ConfigError
from penstock.envs.failures import UnsupportedSpaceError
from penstock.envs.making import make_env
from penstock.envs.refusals import several_agents
from tests.envs.counting import CountingEnv

BOX, DISCRETE = gymnasium.spaces.Box(-1.0, 1.0, (2,)), gymnasium.spaces.Discrete(3)
BY_AGENT = gymnasium.spaces.Dict({"knight": DISCRETE, "archer": DISCRETE})


class Parallel:
    """As PettingZoo's ParallelEnv: spaces are methods of an agent's name."""

    possible_agents = ("knight", "archer")

    def observation_space(self, agent):
        return BOX

    def action_space(self, agent):
        return DISCRETE

    def reset(self, seed=None, options=None):
        return {agent: BOX.sample() for agent in self.possible_agents}, {}

    def step(self, actions):
        raise AssertionError("nobody steps it")


class Turns(Parallel):
    """Like an environment whose agents exist once it is reset."""

    possible_agents = ()

    @property
    def agents(self):
        raise AttributeError("reset() needs to be called before agents")

    def __init__(self):
        self.observation_spaces, self.action_spaces = {"knight": BOX}, {"knight": DISCRETE}


class Unnamed(Parallel):
    """Like an environment whose agents come and go: only its spaces show that there are several."""

    possible_agents = None


class SpacesByAgent(CountingEnv):
    """As RLlib's MultiAgentEnv: a gymnasium.Env whose spaces are Dicts by agent."""

    agents = ("knight", "archer")

    def __init__(self):
        super().__init__()
        self.observation_space = self.action_space = BY_AGENT


class Battle(CountingEnv):
    """One agent's environment that knows of others, and sees what each of them does."""

    agents = ("knight", "archer")

    def __init__(self):
        super().__init__()
        self.observation_space = BY_AGENT


@pytest.mark.parametrize("source", [Turns, Unnamed, SpacesByAgent])
def test_an_environment_of_several_agents_of_an_unknown_kind_is_refused_with_the_known_kinds(source):
    message = "an environment of several agents.*: legal are PettingZoo's ParallelEnv"
    with pytest.raises(UnsupportedSpaceError, match=f"env='{source.__name__}': found {message}"):
        make_env(source)


@pytest.mark.parametrize("source", [Parallel, Turns])
def test_one_that_is_already_made_is_refused_with_the_advice_of_a_constructor(source):
    with pytest.raises(ConfigError, match=f"env=.*{source.__name__}.* is already made"):
        Config(env=source())


def test_its_first_agents_are_named():
    assert several_agents(Parallel()).startswith("an environment of several agents (knight, archer) of an unknown kind")


def test_an_environment_of_one_agent_may_know_of_others():
    assert several_agents(Battle()) == "" == several_agents(CountingEnv())
