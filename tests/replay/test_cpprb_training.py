"""The drop-in's spaces and training loop."""

import logging

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from penstock.replay import cpprb

# ---- environments


class Spaces(gymnasium.Env):
    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space


BOX = spaces.Box(-1, 1, (3, 2))
I4, F4 = np.int32, np.float32


@pytest.mark.parametrize(
    ("observation", "action", "expected"),
    [
        (BOX, spaces.Discrete(4), {"obs": ((3, 2), F4), "act": (1, I4)}),
        (spaces.Discrete(5), BOX, {"obs": (1, I4), "act": ((3, 2), F4)}),
        (spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(4), {"obs": ((2,), I4), "act": (4, I4)}),
        (
            spaces.Tuple((BOX, spaces.Discrete(2))),
            spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))),
            {"obs0": ((3, 2), F4), "obs1": (1, I4), "act0": (1, I4), "act1": (1, I4)},
        ),
        (
            spaces.Dict({"arm": BOX, "hand": spaces.Discrete(2)}),
            spaces.Dict({"arm": spaces.Discrete(3)}),
            {"obs_arm": ((3, 2), F4), "obs_hand": (1, I4), "act_arm": (1, I4)},
        ),
    ],
)
def test_spaces_declare_a_buffer_that_takes_their_transitions(observation, action, expected):
    env = Spaces(observation, action)
    declared = {name: (spec["shape"], spec["dtype"]) for name, spec in cpprb.create_env_dict(env).items()}
    successors = {f"next_{name}": value for name, value in expected.items() if name.startswith("obs")}
    assert declared == {"rew": (1, F4), "done": (1, F4), **expected, **successors}
    buffer = cpprb.ReplayBuffer(8, cpprb.create_env_dict(env))
    before_add = cpprb.create_before_add_func(env)
    buffer.add(**before_add(observation.sample(), action.sample(), observation.sample(), 0.5, False))
    assert set(buffer.sample(1)) == set(declared)


def test_dtypes_of_a_declaration_can_be_chosen():
    declared = cpprb.create_env_dict(Spaces(BOX, spaces.Discrete(2)), int_type=np.uint8, float_type=np.float64)
    assert {name: spec["dtype"] for name, spec in declared.items()} == {
        "rew": np.float64, "done": np.float64, "obs": np.float64, "next_obs": np.float64, "act": np.uint8,
    }  # fmt: skip


@pytest.mark.parametrize("space", [spaces.Text(3), spaces.Tuple((spaces.Dict({"a": BOX}),))])
def test_other_spaces_are_named(space):
    with pytest.raises(NotImplementedError, match="no entry for the space"):
        cpprb.create_env_dict(Spaces(space, spaces.Discrete(2)))


# ---- training


class Old:
    """Three steps an episode, in Gym's first way: reset gives an observation, step four values."""

    def __init__(self):
        self.resets = 0

    def reset(self):
        self.t, self.resets = 0, self.resets + 1
        return 0.0

    def step(self, action):
        self.t += 1
        return float(self.t), 10.0 ** (self.t - 1), self.t == 3, {}


class New(Old):
    """The same in Gymnasium's way; the third step cuts the episode."""

    def reset(self):
        return super().reset(), {}

    def step(self, action):
        obs, rew, done, info = super().step(action)
        return obs, rew, False, done, info


@pytest.fixture
def trained():
    """Run train() and return its results."""

    def run(env=None, kind=cpprb.ReplayBuffer, policy=lambda batch, step, episode: None, **options):
        fields = {"obs": {}, "act": {}, "rew": {}, "next_obs": {}, "done": {}}
        buffer, acted, learned, ended = kind(10, fields), [], [], []

        def act(*arguments):
            acted.append(arguments)
            return 7

        def learn(batch, step, episode):
            learned.append((len(batch["obs"]), step, episode))
            return policy(batch, step, episode)

        result = cpprb.train(
            buffer, env or Old(), act, learn, episode_callback=lambda *arguments: ended.append(arguments), **options
        )
        assert result is None
        return buffer, acted, learned, ended

    return run


def test_every_step_is_acted_on_stored_and_learned_from_after_the_warm_up(trained):
    buffer, acted, learned, ended = trained(max_steps=7, batch_size=2, n_warmups=2)
    assert acted == [
        (0.0, 0, 0, True), (1.0, 1, 0, True), (2.0, 2, 0, False), (0.0, 3, 1, False), (1.0, 4, 1, False),
        (2.0, 5, 1, False), (0.0, 6, 2, False),
    ]  # fmt: skip
    assert learned == [(2, 2, 0), (2, 3, 1), (2, 4, 1), (2, 5, 1), (2, 6, 2)]
    rows = {name: array.ravel().tolist() for name, array in buffer.get_all_transitions().items()}
    assert rows == {
        "obs": [0, 1, 2, 0, 1, 2, 0],
        "act": [7] * 7,
        "rew": [1, 10, 100, 1, 10, 100, 1],
        "next_obs": [1, 2, 3, 1, 2, 3, 1],
        "done": [0, 0, 1, 0, 0, 1, 0],
    }
    assert ended == [(0, 2, 111.0), (1, 2, 111.0)]
    assert buffer.get_current_episode_len() == 1


def test_a_truncated_episode_ends_without_being_done(trained):
    buffer, acted, _, ended = trained(New(), max_steps=6, batch_size=1)
    assert [arguments[0] for arguments in acted] == [0, 1, 2, 0, 1, 2]
    assert buffer.get_all_transitions()["done"].ravel().tolist() == [0] * 6
    assert ended == [(0, 2, 111.0), (1, 2, 111.0)]


def test_training_ends_with_the_episodes_asked_for(trained):
    env = Old()
    buffer, *_, ended = trained(env, max_steps=100, max_episodes=2, batch_size=1)
    assert (buffer.get_stored_size(), len(ended), env.resets) == (6, 2, 2)
    assert trained(max_steps=0)[0].get_stored_size() == 0


def test_hooks_change_what_is_stored_when_an_episode_ends_and_what_is_summed(trained):
    def after_step(obs, act, outcome, step, episode):
        return {"obs": obs, "act": act, "rew": outcome[1], "next_obs": outcome[0], "done": step}

    buffer, acted, _, ended = trained(
        max_steps=5,
        batch_size=1,
        after_step=after_step,
        done_check=lambda transition: transition["next_obs"] == 2,
        obs_update=lambda transition: transition["next_obs"] * 10,
        rew_sum=lambda so_far, transition: so_far + 1.0,
    )
    assert [arguments[0] for arguments in acted] == [0, 10, 0, 10, 0]
    assert buffer.get_all_transitions()["done"].ravel().tolist() == [0, 1, 2, 3, 4]
    assert ended == [(0, 1, 2.0), (1, 1, 2.0)]


@pytest.mark.parametrize("kind", [cpprb.PrioritizedReplayBuffer, cpprb.MPPrioritizedReplayBuffer])
def test_what_is_learned_becomes_the_priorities(trained, kind):
    buffer, *_ = trained(kind=kind, policy=lambda *arguments: [5.0, 5.0], max_steps=4, batch_size=2)
    assert buffer.get_max_priority() == 5.0
    with pytest.raises(TypeError, match="update_policy"):
        trained(kind=kind, max_steps=4, batch_size=2)


def test_episodes_are_logged(trained, caplog):
    with caplog.at_level(logging.INFO):
        trained(max_steps=3, batch_size=1)
    assert "3 steps" in caplog.text
    assert "reward 111.00" in caplog.text


def test_only_buffers_can_be_trained_with():
    with pytest.raises(TypeError, match="dict"):
        cpprb.train({}, Old(), None, None)
    with pytest.raises(ValueError, match="max_steps"):
        cpprb.train(cpprb.ReplayBuffer(4, {"obs": {}}), Old(), None, None, max_steps=2**64)
