"""A trained policy by itself: what was saved acts as the trainer's own network does."""

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import penstock
from penstock.config import ConfigError
from penstock.engine.policy import specs_from_json, specs_to_json
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.runs.checkpoint import CheckpointError

SETTINGS: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16, "num_epochs": 1,
    "hidden_sizes": (8,), "memory_size": 6, "total_steps": 500, "backend": "serial", "eval_interval": 0,
    "run_dir": None, "learning_rate": 0.05,
}  # fmt: skip


class OwnEncoder(nn.Module):
    """An encoder that is written to a checkpoint by its name alone."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(observation.shape[0], 5)
        self.output_size = 5

    def forward(self, x):
        return self.layer(x)


def saved(tmp_path, env="CartPole-v1", **settings):
    """A briefly trained policy, and the network it was saved from."""
    with penstock.PPO(env=env, **{**SETTINGS, **settings}) as trainer:
        trainer.train(64, quiet=True)
        trainer.save(str(tmp_path / "saved"))
        weights = trainer.get_parameters()[0]
    policy = penstock.load_policy(tmp_path / "saved", **{k: v for k, v in settings.items() if k == "encoder"})
    assert all(torch.equal(weights[name], x) for name, x in policy.model.state_dict().items())
    return policy


def observations(count, size=4):
    return np.random.default_rng(0).normal(size=(count, size)).astype(np.float32)


def test_one_observation_and_a_batch_of_them_get_the_same_actions(tmp_path):
    policy = saved(tmp_path)
    obs = observations(6)
    actions = policy.act(obs)
    assert actions.shape == (6,) and actions.dtype == np.int64
    assert [int(policy.act(one)) for one in obs] == actions.tolist()
    with torch.no_grad():
        expected, _ = policy.model.act(torch.from_numpy(obs), torch.ones(6, dtype=torch.bool), torch.zeros(6, 0))
    assert actions.tolist() == expected.mode().tolist()


def test_anything_like_an_array_will_do(tmp_path):
    policy = saved(tmp_path)
    obs = observations(1)[0]
    assert policy.act(obs.tolist()) == policy.act(obs.astype(np.float64)) == policy.act(obs)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_with_memory_the_state_is_handed_from_call_to_call(tmp_path, memory):
    policy = saved(tmp_path, memory=memory)
    assert policy.has_memory
    obs = observations(5)
    with torch.no_grad():
        expected, _ = policy.model.evaluate(
            torch.from_numpy(obs)[:, None], torch.tensor([[True]] + [[False]] * 4), policy.model.initial_state(1)
        )
    state, actions, memory = None, [], policy.model.initial_state(1)
    for number, one in enumerate(obs):
        action, state = policy.act(one, state)
        actions.append(int(action))
        with torch.no_grad():
            _, memory = policy.model.act(torch.from_numpy(one)[None], torch.tensor([number == 0]), memory)
        assert torch.equal(state, memory)
    assert actions == expected.mode().squeeze(-1).tolist() and state.shape == (1, policy.model.state_size)
    again, _ = policy.act(obs[0])
    assert int(again) == actions[0], "without a state an episode begins"
    batch, states = policy.act(obs)
    assert batch.shape == (5,) and states.shape == (5, policy.model.state_size)


def test_samples_follow_the_distribution_and_torchs_generator(tmp_path):
    policy = saved(tmp_path)
    with torch.no_grad():
        policy.model.policy_head.weight.zero_()
        policy.model.policy_head.bias[:] = torch.tensor([math.log(0.25), math.log(0.75)])
    obs = observations(1).repeat(4000, 0)
    torch.manual_seed(0)
    actions = policy.act(obs, deterministic=False)
    assert 0.72 < actions.mean() < 0.78
    torch.manual_seed(0)
    assert np.array_equal(policy.act(obs, deterministic=False), actions)
    assert policy.act(obs).all()


def test_continuous_actions_come_as_the_environment_takes_them(tmp_path):
    policy = saved(tmp_path, env="Pendulum-v1")
    with torch.no_grad():
        policy.model.policy_head.weight.zero_()
        policy.model.policy_head.bias.fill_(0.25)
    obs = observations(3, 3)
    actions = policy.act(obs)
    assert actions.dtype == np.float32 and actions.tolist() == [[0.5]] * 3  # scaled from [-1, 1] to [-2, 2]
    assert policy.act(obs[0]).tolist() == [0.5]
    with torch.no_grad():
        policy.model.policy_head.bias.fill_(9.0)
    assert policy.act(obs).tolist() == [[2.0]] * 3


@pytest.mark.parametrize("shape", [(5,), (2, 5), (), (1, 1, 4)])
def test_an_observation_of_another_shape_is_refused(tmp_path, shape):
    policy = saved(tmp_path)
    with pytest.raises(ValueError, match=r"expected an observation of shape .*4\), found"):
        policy.act(np.zeros(shape, np.float32))


def test_what_is_known_of_the_checkpoint_comes_with_the_policy(tmp_path):
    meta = saved(tmp_path).meta
    assert meta["algorithm"] == "ppo" and meta["env"] == "CartPole-v1" and meta["steps"] == 64
    assert meta["config"]["hidden_sizes"] == [8]


def test_an_encoder_of_ones_own_is_found_again_by_its_place(tmp_path):
    saved(tmp_path, encoder=OwnEncoder)
    assert isinstance(penstock.load_policy(tmp_path / "saved").model.encoder, OwnEncoder)


def test_an_encoder_that_has_no_place_is_given_again(tmp_path):
    class Local(OwnEncoder):
        pass

    assert isinstance(saved(tmp_path, encoder=Local).model.encoder, Local)
    with pytest.raises(ConfigError, match="encoder="):
        penstock.load_policy(tmp_path / "saved")


def test_weights_that_do_not_fit_the_settings_are_refused(tmp_path):
    saved(tmp_path)
    with pytest.raises(CheckpointError, match="another architecture"):
        penstock.load_policy(tmp_path / "saved", hidden_sizes=(9,))


def test_a_run_directory_gives_its_best_policy(tmp_path):
    run_dir = str(tmp_path / "run")
    with penstock.PPO(env="CartPole-v1", **{**SETTINGS, "run_dir": run_dir, "eval_interval": 32, "eval_episodes": 2,
                                            "total_steps": 64}) as trainer:  # fmt: skip
        result = trainer.train(quiet=True)
    policy = penstock.load_policy(run_dir)
    assert policy.meta["mean_return"] == max(policy.meta["mean_return"], result.eval_return)
    assert policy.act(observations(1)[0]) in (0, 1)


def test_evaluating_a_saved_policy_is_evaluating_the_trainer(tmp_path):
    from penstock.engine.evaluation import evaluate_run

    with penstock.PPO(env="CartPole-v1", **{**SETTINGS, "memory": "gru"}) as trainer:
        trainer.train(64, quiet=True)
        trainer.save(str(tmp_path / "saved"))
        expected = trainer.evaluate(4, seed=9)
    evaluation = evaluate_run(tmp_path / "saved", episodes=4, seed=9)
    assert evaluation.returns == expected.returns and evaluation.steps == 64


SPECS = [
    (ObservationSpec((), "int64", num_values=7), ActionSpec((), "int32", num_actions=4, start=-1)),
    (
        ObservationSpec((84, 84, 4), "uint8"),
        ActionSpec((2, 2), "float64", low=(-math.inf, 0.1, -1e30, -1.0), high=(math.inf, math.inf, 1 / 3, 1.0)),
    ),
]


@pytest.mark.parametrize("specs", SPECS)
def test_specs_survive_json_with_infinite_and_exact_bounds(specs):
    assert specs_from_json(json.loads(json.dumps(specs_to_json(*specs), allow_nan=False))) == specs
