"""Seats of games as lanes: requests for actions, completed transitions, and ends of games."""

import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from penstock.envs.failures import EnvironmentFailure, UnsupportedSpaceError
from penstock.envs.game_group import Games
from penstock.envs.games import game_of
from penstock.envs.making import make_env, probe
from penstock.envs.spec import EnvSpec
from tests.envs.counting import CountingEnv
from tests.envs.playing import AtOnce, InTurn, Masked, Part


def seat_lanes(*envs, **more):
    return Games([game_of(env) for env in envs], list(range(len(envs))), name="game", **more).lanes[0]


def play(lanes, steps):
    """Lanes that moved, with reward and flags, and lanes that are asked, after each of some steps."""
    lanes.reset()
    told = []
    for _ in range(steps):
        lanes.step(np.zeros(lanes.num_lanes, np.int64))
        moved = {
            lane: (float(lanes.reward[lane]), bool(lanes.terminated[lane]), bool(lanes.truncated[lane]))
            for lane in lanes.moved.nonzero()[0].tolist()
        }
        told.append((moved, lanes.asked.nonzero()[0].tolist(), lanes.finals.tolist()))
    return told


def shown(lanes):
    column = np.full((lanes.num_lanes, 3), 77.0, np.float32)
    lanes.write_observations(column, np.arange(lanes.num_lanes))
    return column.tolist()


NOTHING = [77.0] * 3


def test_one_dies_and_the_other_is_truncated_later():
    lanes = seat_lanes(AtOnce([Part(0, 2, "terminated"), Part(0, 4, "truncated")]))
    assert play(lanes, 4) == [
        ({0: (1.0, False, False), 1: (1.0, False, False)}, [0, 1], []),
        ({0: (2.0, True, False), 1: (2.0, False, False)}, [1], []),
        ({1: (3.0, False, False)}, [1], []),
        ({1: (4.0, False, True)}, [0, 1], [1]),
    ]
    column = np.zeros((1, 3), np.float32)
    lanes.write_finals(column, np.array([0]))
    assert column.tolist() == [[1.0, 0.0, 4.0]]
    assert shown(lanes) == [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]] and lanes.first.all()
    assert [episode[:3] for episode in lanes.take_episodes()] == [(0, 3.0, 2), (1, 10.0, 4)]


def test_one_terminates_and_one_is_truncated_in_the_same_step_and_the_game_is_over():
    lanes = seat_lanes(AtOnce([Part(0, 2, "terminated"), Part(0, 2, "truncated")]))
    assert play(lanes, 2)[1] == ({0: (2.0, True, False), 1: (2.0, False, True)}, [0, 1], [1])


def test_a_late_joiner_shows_its_first_observation_when_it_comes():
    lanes = seat_lanes(AtOnce([Part(0, 4, "terminated"), Part(2, 1, "truncated")]))
    lanes.reset()
    assert lanes.asked.tolist() == [True, False] and shown(lanes) == [[0.0, 0.0, 0.0], NOTHING]
    lanes.step(np.zeros(2, np.int64))
    lanes.step(np.zeros(2, np.int64))
    assert lanes.asked.all() and lanes.first.tolist() == [False, True] and lanes.moved.tolist() == [True, False]
    lanes.step(np.zeros(2, np.int64))
    assert lanes.finals.tolist() == [1] and lanes.asked.tolist() == [True, False]


def test_the_reward_of_the_step_in_which_an_agent_joins_is_part_of_its_return():
    class Welcoming(AtOnce):
        def step(self, actions):
            shown, rewards, *rest = super().step(actions)
            return (shown, {**rewards, **({"player_1": 50.0} if self.tick == 2 else {})}, *rest)

    lanes = seat_lanes(Welcoming([Part(0, 4, "terminated"), Part(2, 1, "terminated")]))
    assert [moved.get(1) for moved, _, _ in play(lanes, 4)] == [None, None, (3.0, True, False), None]
    assert (1, 53.0, 1) in [episode[:3] for episode in lanes.take_episodes()]


def test_an_agent_that_has_no_part_in_a_game_has_an_episode_of_no_steps():
    lanes = seat_lanes(AtOnce([Part(0, 1, "terminated"), Part(3, 1, "terminated")]))
    play(lanes, 1)
    assert [episode[:3] for episode in lanes.take_episodes()] == [(1, 0.0, 0), (0, 1.0, 1)]


def test_in_turn_the_reward_is_the_sum_since_the_agents_own_action_and_the_loser_has_one_too():
    lanes = seat_lanes(InTurn(2, 3, ["terminated", "terminated"]))
    assert play(lanes, 4) == [
        ({}, [1], []),
        ({0: (1.0 + 2.0, False, False)}, [0], []),
        ({0: (3.0, True, False), 1: (20.0 + 30.0, True, False)}, [0], []),
        ({}, [1], []),
    ]


def test_an_illegal_end_that_is_both_counts_as_terminated():
    lanes = seat_lanes(InTurn(2, 2, ["both", "truncated"]))
    assert play(lanes, 2)[1] == ({0: (3.0, True, False), 1: (20.0, False, True)}, [0], [1])


@pytest.mark.parametrize(("team", "each"), [("own", (1.0, 3.0)), ("mean", (2.0, 2.0)), ("sum", (4.0, 4.0))])
def test_a_team_shares_its_rewards(team, each):
    class Unequal(AtOnce):
        def step(self, actions):
            shown, _, *rest = super().step(actions)
            return (shown, {"player_0": 1.0, "player_1": 3.0}, *rest)

    lanes = seat_lanes(Unequal([Part(0, 5, "terminated")] * 2), team_reward=team)
    ((moved, _, _),) = play(lanes, 1)
    assert (moved[0][0], moved[1][0]) == each


class Lists(CountingEnv):
    """Two agents in lists; one that ends goes on at once with its next episode, as in Sample Factory."""

    num_agents, is_multiagent = 2, True

    def __init__(self, more=()):
        super().__init__(endings=((1000, "terminated"),))
        self.more = more

    def reset(self, **given):
        observation, _ = super().reset(**given)
        return [observation, observation], [{}, {}]

    def step(self, actions):
        assert actions == [0, 0]
        observation, reward, *_ = super().step(actions)
        truncated = [self.count == 2, False]
        infos = [dict(self.more) if self.count == 2 else {}, {"is_active": self.count != 1}]
        return [observation, observation], [reward, -reward], [False, self.count == 3], truncated, infos


def test_in_lists_an_inactive_agent_waits_and_the_others_go_on():
    told = play(seat_lanes(Lists()), 3)
    assert told[0] == ({0: (1.0, False, False)}, [0], [])
    assert told[1] == ({0: (2.0, False, True), 1: (-1.0 - 2.0, False, False)}, [0, 1], [0])
    assert told[2] == ({0: (3.0, False, False), 1: (-3.0, True, False)}, [0, 1], [])


@pytest.mark.parametrize(("info", "last"), [({"final_obs": np.full(3, 9.0, np.float32)}, 9.0), ({}, 1.0)])
def test_in_lists_the_final_observation_is_in_the_info_or_the_one_acted_on_stands_for_it(info, last):
    lanes = seat_lanes(Lists(info))
    play(lanes, 2)
    column = np.zeros((1, 3), np.float32)
    lanes.write_finals(column, np.array([0]))
    assert column[0, 2] == last


class Tuples(CountingEnv):
    """Two agents as Tuple spaces, a list of rewards, one end for all."""

    n_agents = 2

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Tuple([self.observation_space] * 2)
        self.action_space = spaces.Tuple([self.action_space] * 2)

    def reset(self, **given):
        observation, info = super().reset(**given)
        return (observation, observation), info

    def step(self, actions):
        assert actions == (0, 0)
        observation, reward, terminated, truncated, info = super().step(actions)
        return (observation, observation), [reward, 2 * reward], terminated, truncated, info


def test_tuple_spaces_with_a_member_for_each_agent_are_a_game():
    assert play(seat_lanes(Tuples()), 3)[2] == ({0: (3.0, True, False), 1: (6.0, True, False)}, [0, 1], [])
    assert probe(EnvSpec.resolve(Tuples)).agents == ("agent_0", "agent_1")
    assert probe(EnvSpec.resolve(CountingEnv)).agents == ()


def test_an_agent_that_is_offered_nothing_waits_for_its_turn():
    lanes = seat_lanes(Masked([Part(0, 4, "terminated")] * 2))
    assert [(moved, asked) for moved, asked, _ in play(lanes, 4)] == [
        ({}, [1]), ({0: (3.0, False, False)}, [0]), ({1: (5.0, False, False)}, [1]),
        ({0: (7.0, True, False), 1: (4.0, True, False)}, [0]),
    ]  # fmt: skip


def test_masks_in_the_infos_of_agents_that_move_later_alone_are_refused():
    class SecondMasked(InTurn):
        def last(self):
            masks = {} if self.agent_selection == "player_0" else {"action_mask": np.array([1, 0], np.int8)}
            return (*super().last()[:-1], masks)

    with pytest.raises(EnvironmentFailure, match=r"every info from .* with several agents that of each.*'player_1'"):
        play(seat_lanes(SecondMasked(2, 5, ["terminated"] * 2)), 2)


def test_agents_whose_actions_are_no_choices_have_no_masks_beside_others_that_have():
    class Mixed(AtOnce):
        def action_space(self, agent):
            return spaces.Discrete(2) if agent == "player_0" else spaces.Box(-1.0, 1.0, (2,))

        def reset(self, **given):
            return super().reset(**given)[0], {"player_0": {"action_mask": np.ones(2, np.int8)}}

        def step(self, actions):
            return (*super().step(actions)[:-1], {"player_0": {"action_mask": np.ones(2, np.int8)}})

    env, teams = Mixed([Part(0, 4, "terminated")] * 2), [["player_0"], ["player_1"]]
    games = Games([game_of(env)], [0], name="game", teams=teams, mask_is_in_info=True)
    games.reset()
    assert [lanes.observation.mask is None for lanes in games.lanes] == [False, True]
    assert shown(games.lanes[1]) == [[1.0, 0.0, 0.0]]


def test_games_may_have_no_agent_to_act_for_a_while():
    class Slow(Masked):
        def shown(self, agent):
            return {**super().shown(agent), "action_mask": np.full(2, self.tick >= 2, np.int8)}

    told = play(seat_lanes(Slow([Part(0, 4, "terminated")])), 3)
    assert [(moved, asked) for moved, asked, _ in told] == [({}, []), ({}, [0]), ({0: (3.0, False, False)}, [0])]


def test_agents_that_all_wait_forever_end_the_run(monkeypatch):
    class Forbidden(Masked):
        def shown(self, agent):
            return {**super().shown(agent), "action_mask": np.zeros(2, np.int8)}

    monkeypatch.setattr("penstock.envs.game_group.MOST_IDLE", 5)
    with pytest.raises(EnvironmentFailure, match="all of them wait; give masks with a legal action"):
        play(seat_lanes(Forbidden([Part(0, 3, "terminated")] * 2)), 9)


class Late(Masked):
    """The second agent is offered nothing, and is out before it ever is."""

    def shown(self, agent):
        return {**super().shown(agent), "action_mask": np.full(2, agent == "player_0", np.int8)}


def test_an_agent_that_is_over_before_it_ever_acted_has_an_episode_of_no_steps():
    lanes = seat_lanes(Late([Part(0, 4, "terminated"), Part(0, 2, "terminated")]))
    assert [(moved, asked) for moved, asked, _ in play(lanes, 4)][1] == ({0: (2.0, False, False)}, [0])
    assert [episode[:3] for episode in lanes.take_episodes()] == [(1, 0.0, 0), (0, 10.0, 4)]
    assert not lanes.terminated[1]


class Silent(AtOnce):
    """Shows nothing more to agents that are over."""

    def step(self, actions):
        shown, *rest = super().step(actions)
        return ({agent: shown[agent] for agent in self.agents}, *rest)


def test_a_terminated_agent_needs_no_last_observation_and_a_truncated_one_does():
    play(seat_lanes(Silent([Part(0, 2, "terminated"), Part(0, 3, "both")])), 6)
    with pytest.raises(EnvironmentFailure, match=r"last observation of an agent that is truncated .*'player_1'"):
        play(seat_lanes(Silent([Part(0, 2, "terminated"), Part(0, 2, "truncated")])), 2)


class InPlace(AtOnce):
    """All observations lie in the same memory."""

    memory = np.zeros((2, 3), np.float32)

    def shown(self, agent):
        row = self.memory[self.possible_agents.index(agent)]
        row[:] = super().shown(agent)
        return row


def test_a_final_observation_outlives_the_reset_that_uses_its_memory_again():
    lanes = seat_lanes(InPlace([Part(0, 2, "truncated")] * 2))
    play(lanes, 2)
    column = np.zeros((2, 3), np.float32)
    lanes.write_finals(column, np.arange(2))
    assert column.tolist() == [[0.0, 0.0, 2.0], [1.0, 0.0, 2.0]]


def test_games_are_seeded_once_and_closed():
    envs = [AtOnce([Part(0, 1, "terminated")] * 2) for _ in range(2)]
    lanes = seat_lanes(*envs)
    play(lanes, 3)
    lanes.close()
    assert [env.seeds for env in envs] == [[0, None, None, None], [1, None, None, None]]
    assert all(env.is_closed for env in envs)


class Back(AtOnce):
    def step(self, actions):
        *answers, infos = super().step(actions)
        if self.tick == 2:
            self.agents = ["player_0", "player_1"]
        return (*answers, infos)


class Unpaid(AtOnce):
    def step(self, actions):
        shown, rewards, *rest = super().step(actions)
        rewards.pop("player_1")
        return (shown, rewards, *rest)


class Vanishing(AtOnce):
    def step(self, actions):
        answers = super().step(actions)
        self.agents = self.agents[:1]
        return answers


class Poor(AtOnce):
    reward: object = np.nan

    def step(self, actions):
        shown, rewards, *rest = super().step(actions)
        return (shown, {**rewards, "player_1": self.reward}, *rest)


class Torn(Poor):
    reward: object = (1.0, 2.0)


class Blind(AtOnce):
    def shown(self, agent):
        return super().shown(agent) * (np.nan if agent == "player_1" and self.tick else 1.0)


class Abandoned(InTurn):
    def step(self, action):
        super().step(action)
        self.agents = []


class Other(AtOnce):
    """Returns other things from reset or step."""

    def __init__(self, returned, call="step"):
        super().__init__([Part(0, 4, "terminated")] * 2)
        self.returned, self.call = returned, call

    def reset(self, **given):
        answer = super().reset(**given)
        return self.returned(*answer) if self.call == "reset" else answer

    def step(self, actions):
        answer = super().step(actions)
        return self.returned(*answer) if self.call == "step" else answer


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        (Other(lambda shown, infos: shown, "reset"), r"reset\(\) must return observations, infos, .*found dict$"),
        (Other(lambda *answers: answers[:4]), r"step\(\) must return observations, .*found dict, dict, dict, dict$"),
        (Other(lambda shown, rewards, *rest: (shown, [1.0, 2.0], *rest)), "each a dict by agent; found dict, list, "),
        (Other(lambda shown, rewards, *rest: (shown, rewards, False, False, {})), "found dict, dict, bool, bool, dict"),
        (Other(lambda *answers: (None, *answers[1:])), "an observation for every agent in agents.*'player_0'"),
    ],
)
def test_values_that_are_no_dicts_by_agent_are_refused(env, problem):
    with pytest.raises(EnvironmentFailure, match=problem):
        play(seat_lanes(env), 1)


def test_infos_may_be_missing():
    lanes = seat_lanes(Other(lambda *answers: (*answers[:-1], None)))
    assert play(lanes, 4)[3][0] == {0: (4.0, True, False), 1: (4.0, True, False)}


@pytest.mark.parametrize(
    ("env", "steps", "problem"),
    [
        (Back([Part(0, 1, "terminated"), Part(0, 4, "terminated")]), 2, "to stay away until reset.*'player_0'"),
        (Unpaid([Part(0, 4, "terminated")] * 2), 1, "must return a reward.*'player_1'"),
        (Vanishing([Part(0, 4, "terminated")] * 2), 1, "terminated or truncated, found neither.*'player_1'"),
        (Poor([Part(0, 4, "terminated")] * 2), 1, "single finite number as reward, found nan .*'player_1'"),
        (Torn([Part(0, 4, "terminated")] * 2), 1, r"as reward, found \(1.0, 2.0\) .*'player_1'"),
        (Blind([Part(0, 4, "terminated")] * 2), 1, "finite.*'player_1'"),
        (Abandoned(2, 9, ["terminated"] * 2), 1, "terminated or truncated by the end of its game.*'player_0'"),
    ],
)
def test_a_game_that_breaks_its_contract_is_named_with_agent_and_lane(env, steps, problem):
    lanes = seat_lanes(AtOnce([Part(0, 9, "terminated")] * 2), env, first_lane=10)
    with pytest.raises(EnvironmentFailure, match=problem) as caught:
        play(lanes, steps)
        shown(lanes)
    assert caught.value.lane in (12, 13)


def test_agents_of_one_policy_have_the_same_spaces():
    class Differing(AtOnce):
        def action_space(self, agent):
            return spaces.Discrete(2 if agent == "player_0" else 3)

    with pytest.raises(UnsupportedSpaceError, match=r"'player_0' sees .* 'player_1' sees .* and does Discrete\(3\)"):
        make_env(lambda: Differing([Part(0, 1, "terminated")] * 2))


OF_SETS = """
import numpy as np
from gymnasium import spaces

class OfSets:
    possible_agents = {"walker", "runner", "flyer", "swimmer"}

    def observation_space(self, agent): return spaces.Box(0.0, 9.0, (1,), np.float32)
    def action_space(self, agent): return spaces.Discrete(2)
    def shown(self): return {agent: np.array([len(agent)], np.float32) for agent in self.agents}
    def close(self): pass

    def reset(self, seed=None, options=None):
        self.agents = set(self.possible_agents)
        return self.shown(), {}

    def step(self, actions):
        shown, on = self.shown(), dict.fromkeys(self.agents, False)
        return shown, {agent: float(len(agent) * action) for agent, action in actions.items()}, on, on, {}

if __name__ == "__main__":
    from penstock.envs.making import make_lanes
    from penstock.envs.spec import EnvSpec

    lanes = make_lanes(EnvSpec.resolve(OfSets), 1)
    lanes.reset()
    column = np.zeros((4, 1), np.float32)
    lanes.write_observations(column, np.arange(4))
    lanes.step(np.array([0, 1, 1, 1]))
    print(lanes.agents, column[:, 0], lanes.reward)
"""


def test_seats_are_the_same_in_processes_that_order_sets_otherwise(tmp_path):
    (tmp_path / "of_sets.py").write_text(OF_SETS)

    def seats(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        ran = subprocess.run(
            [sys.executable, tmp_path / "of_sets.py"], env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout.strip()

    orders = {repr(seats(hash_seed)) for hash_seed in (1, 2, 3)}
    assert orders == {repr("('flyer', 'runner', 'swimmer', 'walker') [5. 6. 7. 6.] [0. 6. 7. 6.]")}
