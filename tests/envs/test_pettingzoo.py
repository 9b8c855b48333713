"""PettingZoo's own base classes: what is known by what it has is known where it comes from there, too."""

import re

import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs.making import make_env
from penstock.envs.spec import EnvSpec
from tests.places import ROOT

pettingzoo = pytest.importorskip("pettingzoo")


class Spaces:
    metadata = {"name": "toy"}  # noqa: RUF012
    possible_agents = ["red", "blue"]  # noqa: RUF012

    def observation_space(self, agent):
        return spaces.Box(0.0, 9.0, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)


class Parallel(Spaces, pettingzoo.ParallelEnv):
    """Red is terminated in step 1, blue is truncated in step 2."""

    def reset(self, seed=None, options=None):
        self.agents, self.tick = self.possible_agents[:], 0
        return self.shown(), {}

    def shown(self):
        return {agent: np.full(1, self.tick, np.float32) for agent in self.agents}

    def step(self, actions):
        self.tick += 1
        answers = (
            self.shown(), {a: float(self.tick) for a in actions}, {a: a == "red" for a in actions},
            {a: a == "blue" and self.tick == 2 for a in actions}, {a: {} for a in actions},
        )  # fmt: skip
        self.agents = ["blue"] if self.tick == 1 else []
        return answers


class Turns(Spaces, pettingzoo.AECEnv):
    """Red moves, blue moves, and wins: PettingZoo's own book-keeping of rewards and of the dead."""

    def reset(self, seed=None, options=None):
        self.agents, self.agent_selection = self.possible_agents[:], "red"
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos = {agent: {} for agent in self.agents}

    def observe(self, agent):
        return np.zeros(1, np.float32)

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[agent] = 0.0
        self.agent_selection = "blue" if agent == "red" else "red"
        if agent == "blue":
            self.rewards = {"red": -1.0, "blue": 1.0}
            self.terminations = dict.fromkeys(self.agents, True)
        self._accumulate_rewards()


def told(env, steps):
    """Rewards, flags and asked lanes, after each of some steps."""
    lanes = make_env(env)
    lanes.reset()
    found = []
    for _ in range(steps):
        lanes.step(np.zeros(2, np.int64))
        found.append([array.tolist() for array in (lanes.reward, lanes.terminated, lanes.truncated, lanes.asked)])
    return found


def test_agents_of_a_parallel_env_end_apart():
    assert told(Parallel, 2) == [
        [[1.0, 1.0], [True, False], [False, False], [False, True]],
        [[0.0, 2.0], [False, False], [False, True], [True, True]],
    ]


def test_the_loser_of_an_aec_env_has_its_reward_too():
    assert told(Turns, 2) == [
        [[0.0, 0.0], [False, False], [False, False], [False, True]],
        [[-1.0, 1.0], [True, True], [False, False], [True, False]],
    ]


@pytest.mark.parametrize("maker", ["env", "parallel_env"])
def test_the_module_names_an_environment_whose_maker_is_called_as_all_are(maker, tmp_path):
    file = tmp_path / "chess_v1.py"
    file.write_text(f"def {maker}(): ...\n")
    assert EnvSpec.resolve(f"{file}:{maker}").name == "chess_v1"


def test_penstock_never_imports_pettingzoo():
    modules = (ROOT / "penstock").rglob("*.py")
    assert not [path for path in modules if re.search(r"^\s*(import|from) (pettingzoo|mpe2)", path.read_text(), re.M)]
