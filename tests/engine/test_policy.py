"""A trained policy by itself: what was saved acts as the trainer's own network does."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import penstock
from penstock.config import ConfigError
from penstock.envs.columns import observation_writer
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.envs.translation import environment_specs
from penstock.play.policy import Policy, specs_from_json, specs_to_json
from penstock.runs.checkpoint import CheckpointError
from tests.engine.acting import SETTINGS, saved
from tests.envs.masked import Strict


class OwnEncoder(nn.Module):
    """An encoder that is written to a checkpoint by its name alone."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(observation.shape[0], 5)
        self.output_size = 5

    def forward(self, x):
        return self.layer(x)


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


@pytest.mark.parametrize("kind", [np.asarray, torch.Tensor.tolist, torch.Tensor.double])
def test_a_state_may_come_back_as_any_array(tmp_path, kind):
    policy = saved(tmp_path, memory="gru")
    first, second = observations(2)
    _, state = policy.act(first)
    expected, _ = policy.act(second, state)
    for deterministic in (True, False):
        action, _ = policy.act(second, kind(state), deterministic)
        assert action == expected or not deterministic


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(
    ("state", "found"),
    [(torch.zeros(2, 6), r"\(2, 6\)"), (torch.zeros(3, 5), r"\(3, 5\)"), (0, r"\(\)")],
)
def test_a_state_of_another_shape_is_refused(tmp_path, state, found, deterministic):
    policy = saved(tmp_path, memory="gru")
    with pytest.raises(ValueError, match=rf"expected a state of shape \(3, 6\), .*, found {found}: give the state of"):
        policy.act(observations(3), state, deterministic)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_lane_of_a_batch_begins_an_episode_with_a_row_of_zeros(tmp_path, deterministic):
    policy = saved(tmp_path, memory="gru")
    before, now = observations(2), observations(2)[::-1].copy()
    _, state = policy.act(before, deterministic=deterministic)
    state[1] = 0.0
    _, after = policy.act(now, state, deterministic)
    assert torch.equal(after[1], policy.act(now, deterministic=deterministic)[1][1])


def test_a_state_for_a_policy_without_memory_is_refused(tmp_path):
    policy = saved(tmp_path)
    with pytest.raises(ValueError, match="a state is given, False, and this policy has no memory: leave it out"):
        policy.act(observations(1)[0], False)  # meant as deterministic=False


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
    with pytest.raises(ValueError, match=r"expected an observation of shape .*4,?\), found"):
        policy.act(np.zeros(shape, np.float32))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("x", "found a str, 'x'"),
        (None, "found a NoneType, None"),
        ((np.zeros(4, np.float32), {}), r"found a tuple that ends in a dict, as reset\(\) and step\(\) return"),
    ],
)
def test_what_is_no_observation_is_named(tmp_path, given, found):
    with pytest.raises(ValueError, match=found):
        saved(tmp_path).act(given)


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
    from penstock.play.scoring import evaluate_run

    with penstock.PPO(env="CartPole-v1", **{**SETTINGS, "memory": "gru"}) as trainer:
        trainer.train(64, quiet=True)
        trainer.save(str(tmp_path / "saved"))
        expected = trainer.evaluate(4, seed=9)
    evaluation = evaluate_run(tmp_path / "saved", episodes=4, seed=9)
    assert evaluation.returns == expected.returns and evaluation.steps == 64


class Recording:
    """A network that records its input rows and chooses given actions, one vector for each row."""

    state_size = 0
    chain = None

    def __init__(self, chosen):
        self.chosen = chosen

    def initial_state(self, count):
        return torch.zeros(count, 0)

    def act(self, obs, first, memory):
        self.rows = obs.numpy().copy()
        chosen = torch.from_numpy(self.chosen[: len(obs)])
        return SimpleNamespace(mode=lambda: chosen, sample=lambda noise: chosen), memory


def recording_policy(observation_space, action_space, chosen, mask_is_in_info=False):
    """A policy of such an environment without any algorithm."""
    observation, action = environment_specs(observation_space, action_space, mask_is_in_info)
    model = Recording(np.array(chosen, action.column_dtype))
    return Policy(SimpleNamespace(observation=observation, action=action), model, {})


def rows(spec, observations):
    column = np.zeros((len(observations), *spec.shape), spec.dtype)
    observation_writer(spec).write_each(column, np.arange(len(observations)), observations)
    return column


def test_a_policy_that_is_loaded_from_nowhere_is_refused():
    with pytest.raises(TypeError, match="named by a path, found None: give that of a run or of"):
        penstock.load_policy(None)


def test_nested_observations_and_actions_come_and_go_as_the_environment_has_them():
    seen = spaces.Dict(arm=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.Discrete(3)]), bits=spaces.MultiBinary(3))
    taken = spaces.Dict(gear=spaces.Discrete(3, start=1), turn=spaces.Tuple([spaces.Box(-2, 2, (1,))]))
    policy = recording_policy(seen, taken, [[2, 0.5], [0, -1.0]])
    spec = policy.algorithm.observation
    one, other = seen.sample(), seen.sample()
    assert policy.act(one) == {"gear": 3, "turn": (np.float32([1.0]),)}
    assert np.array_equal(policy.model.rows, rows(spec, [one]))
    batch = {
        "arm": tuple(np.stack(pair) for pair in zip(one["arm"], other["arm"], strict=True)),
        "bits": np.stack([one["bits"], other["bits"]]),
    }
    actions = policy.act(batch, deterministic=False)
    assert actions["gear"].tolist() == [3, 1] and actions["turn"][0].tolist() == [[1.0], [-2.0]]
    assert np.array_equal(policy.model.rows, rows(spec, [one, other]))
    with pytest.raises(ValueError, match="bits: expected an observation that has it, found a dict with the keys 'arm'"):
        policy.act({"arm": one["arm"]})


@pytest.mark.parametrize(
    ("mask", "legal"), [(None, [1, 1, 1, 1, 1]), (np.array([1, 0, 0, 1, 1]), [1, 0, 0, 1, 1]),
                        ((np.array([0, 1]), np.array([1, 0, 0])), [0, 1, 1, 0, 0])]
)  # fmt: skip
def test_a_mask_that_is_in_the_info_is_given_beside_the_observation(mask, legal):
    policy = recording_policy(spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3]), [[1, 2]], mask_is_in_info=True)
    assert policy.act([0.25, 0.5], action_mask=mask).tolist() == [1, 2]
    assert policy.model.rows.view(np.float32)[0, :2].tolist() == [0.25, 0.5]
    assert policy.model.rows[0, 8:13].tolist() == legal


def test_a_batch_of_observations_takes_a_batch_of_masks():
    policy = recording_policy(spaces.Discrete(9), spaces.Discrete(3), [2, 0], mask_is_in_info=True)
    assert policy.act(4, action_mask=[0, 0, 1]) == 2
    assert policy.model.rows[:, 8:11].tolist() == [[0, 0, 1]]
    assert policy.act(np.array([4, 5])).tolist() == [2, 0]
    assert policy.model.rows[:, 8:11].all()
    policy.act(np.array([4, 5]), action_mask=np.array([[0, 0, 1], [1, 0, 1]]))
    assert policy.model.rows[:, 8:11].tolist() == [[0, 0, 1], [1, 0, 1]]
    for wrong in ([1, 1], np.ones((1, 3)), np.ones((2, 2))):
        with pytest.raises(ValueError, match="expected 3 entries in action_mask, "):
            policy.act(np.array([4, 5]), action_mask=wrong)


def test_a_mask_that_leaves_a_choice_no_value_is_refused():
    plan = spaces.MultiDiscrete([2, 3])
    policy = recording_policy(spaces.Discrete(9), plan, [[1, 2], [0, 0]], mask_is_in_info=True)
    masks = np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])
    with pytest.raises(ValueError, match="a mask leaves a choice no legal value: let one be legal"):
        policy.act(np.array([4, 5]), action_mask=masks)
    seen = spaces.Dict(action_mask=spaces.MultiBinary(3), seen=spaces.Discrete(9))
    policy = recording_policy(seen, spaces.Discrete(3), [2])
    with pytest.raises(ValueError, match="a mask leaves a choice no legal value"):
        policy.act({"action_mask": [0, 0, 0], "seen": 4})


def test_masks_in_infos_are_heeded_in_training_evaluation_and_scoring(tmp_path):
    from penstock.play.scoring import evaluate_run

    with penstock.PPO(env=Strict, **{**SETTINGS, "eval_interval": 32, "eval_episodes": 2}) as trainer:
        trainer.train(64, quiet=True)
        assert trainer.evaluate(2).lengths == (3, 3)
        trainer.save(str(tmp_path / "saved"))
    assert evaluate_run(tmp_path / "saved", episodes=2, env=Strict).lengths == (3, 3)


def test_a_mask_that_nothing_asks_for_is_refused():
    policy = recording_policy(spaces.Discrete(9), spaces.Discrete(3), [2])
    with pytest.raises(ValueError, match="action_mask is given"):
        policy.act(4, action_mask=[1, 1, 1])


SPECS = [
    (ObservationSpec((), "int64", num_values=7), ActionSpec((), "int32", num_actions=4, start=-1)),
    (
        ObservationSpec((84, 84, 4), "uint8"),
        ActionSpec((2, 2), "float64", low=(-math.inf, 0.1, -1e30, -1.0), high=(math.inf, math.inf, 1 / 3, 1.0)),
    ),
    environment_specs(
        spaces.Dict(a=spaces.Tuple([spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3], start=[1, 0])])),
        spaces.Tuple([spaces.Dict(gear=spaces.Discrete(3, start=1), x=spaces.Box(0, np.inf)), spaces.MultiBinary(2)]),
        mask_is_in_info=True,
    ),
    environment_specs(spaces.Dict(action_mask=spaces.MultiBinary(2), x=spaces.Discrete(2)), spaces.Discrete(2)),
    environment_specs(spaces.Dict(x=spaces.Box(np.array([-9, 2**62]), np.iinfo(np.int64).max - 1, dtype=np.int64)),
                      spaces.Discrete(2)),
]


@pytest.mark.parametrize("specs", SPECS)
def test_specs_survive_json_with_infinite_and_exact_bounds(specs):
    assert specs[1].noise_size == len(specs[1].choices) + specs[1].num_numbers  # computed once, and no field
    found = specs_from_json(json.loads(json.dumps(specs_to_json(*specs), allow_nan=False)))
    assert found == specs
    assert [(x.low, x.high) for x in found[0].leaves] == [(x.low, x.high) for x in specs[0].leaves]


def test_specs_written_before_there_were_composites_are_read():
    observation = {"shape": [3], "dtype": "float32", "num_values": None, "start": 0, "is_stacked": False}
    action = {"shape": [1], "dtype": "float32", "num_actions": None, "start": 0, "low": ["-inf"], "high": ["2.0"]}
    expected = ObservationSpec((3,), "float32"), ActionSpec((1,), "float32", low=(-math.inf,), high=(2.0,))
    assert specs_from_json({"observation": observation, "action": action}) == expected


def test_bytes_whose_checkpoint_names_no_bounds_are_seen_as_they_were_learned():
    of_bytes, of_numbers = ObservationSpec((2,), "uint8"), ObservationSpec((2,), "int8")
    assert of_bytes.scaling == ((0,), (255.0,)) and of_numbers.scaling is None
