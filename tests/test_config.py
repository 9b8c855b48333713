"""Settings: errors at construction name the field, the value found and the legal ones."""

import dataclasses
import enum
import functools
import json
import math
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
import pytest

from penstock.algorithms import ALGORITHMS, load_algorithm
from penstock.algorithms.a2c import A2CConfig
from penstock.algorithms.a3c import A3CConfig
from penstock.algorithms.appo import APPOConfig
from penstock.algorithms.dqn import DQNConfig
from penstock.algorithms.impala import IMPALAConfig
from penstock.algorithms.ppo import PPOConfig
from penstock.algorithms.sac import SACConfig
from penstock.config import (
    PRESETS,
    AsynchronousConfig,
    Config,
    ConfigError,
    ReplayConfig,
    SegmentConfig,
    change_config,
    closest,
    foreign_names,
    load_preset,
    make_config,
    tuned,
)
from tests.envs.counting import CountingEnv


def refusal(config_class=APPOConfig, preset=None, **settings):
    """The message with which settings are refused."""
    with pytest.raises(ConfigError) as error:
        make_config(config_class, {"env": "CartPole-v1", **settings}, preset)
    return str(error.value)


def made(config_class=APPOConfig, **settings):
    return make_config(config_class, {"env": "CartPole-v1", **settings})


def test_an_unknown_setting_is_refused_with_the_closest_name_and_all_legal_ones():
    message = refusal(num_env_per_worker=4)
    assert "unknown setting 'num_env_per_worker'; did you mean 'num_envs_per_worker'?" in message
    assert "(legal: activation, adam_beta1, adam_beta2, adam_eps, address, advantage_estimator, backend, " in message
    assert "did you mean" not in refusal(xyzzy=1)


@pytest.mark.parametrize(
    ("config_class", "name", "ours"),
    [
        (PPOConfig, "n_envs", "num_envs_per_worker (for each of num_workers; both together are the lanes)"),
        (PPOConfig, "n_steps", "segment_length"),
        (DQNConfig, "n_steps", "n_step (steps of reward in a transition)"),
        (A2CConfig, "ent_coef", "entropy_coef"),
        (SACConfig, "ent_coef", "alpha (None: learned)"),
        (IMPALAConfig, "gae_lambda", "vtrace_lambda"),
        (PPOConfig, "total_timesteps", "total_steps"),
        (PPOConfig, "clip_coef", "clip_range"),
        (APPOConfig, "rollout", "segment_length"),
        (APPOConfig, "num_sgd_iter", "num_epochs"),
        (APPOConfig, "use_lstm", 'memory="lstm"'),
        (SACConfig, "target_update_interval", "tau"),
    ],
)
def test_a_setting_of_another_library_is_answered_with_ours(config_class, name, ours):
    assert refusal(config_class, **{name: 1}) == f"unknown setting {name!r}: here it is {ours}"


def test_a_setting_of_another_library_that_the_algorithm_lacks_or_nobody_has_is_said_to_be_that():
    assert refusal(DQNConfig, clip_coef=1) == (
        "unknown setting 'clip_coef': other algorithms here call it clip_range, this one lacks it"
    )
    assert "it is not a setting here; training shows its progress" in refusal(verbose=1)
    assert "environments of several agents are detected" in refusal(multi_agent=True)


def test_every_setting_that_is_answered_with_ours_is_one_and_none_is_hidden_by_its_answer():
    ours = {field.name for name in ALGORITHMS for field in fields(load_algorithm(name).Config)}
    for name, answers in foreign_names.SETTINGS.items():
        named = {re.findall(r"\w+", answer)[0] for answer in answers.split(" | ")}
        assert named <= ours and name not in named, name


@pytest.mark.parametrize(
    ("settings", "meant"),
    [
        ({"memory": "rnn"}, "'gru' or 'lstm'"),
        ({"memory": True}, "'gru' or 'lstm'"),
        ({"memory": False}, "'none'"),
        ({"encoder": "CnnPolicy"}, "'nature_cnn' or 'impala_resnet'"),
        ({"backend": "subproc"}, "'local' (one process per role)"),
        ({"device": "gpu"}, "'cuda'"),
        ({"precision": "fp16"}, "'bfloat16'"),
    ],
)
def test_a_value_of_another_library_is_answered_with_ours(settings, meant):
    assert f"is not legal; did you mean {meant}?" in refusal(**settings)


def test_an_activation_given_as_a_class_is_answered_with_its_name():
    class ReLU:
        """As torch names its own."""

    assert "did you mean 'relu'?: activation must be one of" in refusal(activation=ReLU)


def test_an_environment_that_is_already_made_is_answered_with_what_makes_one():
    assert 'give a constructor, env=lambda: gym.make("CartPole-v1"), or env="CartPole-v1"' in refusal(
        env=gymnasium.make("CartPole-v1")
    )
    assert "give a constructor, env=lambda: CountingEnv(...)" in refusal(env=CountingEnv())
    made_vector = gymnasium.make_vec("CartPole-v1", num_envs=2)
    assert (
        'env=lambda num_envs: gym.make_vec("CartPole-v1", num_envs=num_envs), vectorize="vector"'
        in refusal(env=made_vector)
    )
    made_vector.close()


def test_a_directory_may_be_given_as_a_path():
    assert made(run_dir=Path("runs") / "mine").run_dir == "runs/mine"


def test_a_preset_may_be_given_as_a_path(tmp_path):
    (tmp_path / "mine.toml").write_text("[ppo]\ngamma = 0.5\n")
    assert make_config(PPOConfig, {"env": "x"}, tmp_path / "mine.toml").gamma == 0.5


@pytest.mark.parametrize("number", [1e5, np.int64(100_000), np.float32(1e5)])
def test_a_whole_number_of_any_type_serves_as_an_int(number):
    config = made(total_steps=number, num_workers=2.0, hidden_sizes=(64.0,))
    assert (config.total_steps, config.num_workers, config.hidden_sizes) == (100_000, 2, (64,))
    assert {type(config.total_steps), type(config.num_workers), type(config.hidden_sizes[0])} == {int}
    assert made(A3CConfig, num_groups=1.0).num_groups == 1
    assert "total_steps must be int, found float" in refusal(total_steps=1e5 + 0.5)


def test_an_environment_is_needed():
    with pytest.raises(ConfigError, match="env is missing: give a Gymnasium id"):
        make_config(PPOConfig, {})


@pytest.mark.parametrize(
    ("settings", "legal"),
    [
        ({"num_envs_per_worker": 4.5}, "num_envs_per_worker must be int, found float"),
        ({"num_envs_per_worker": "4"}, "num_envs_per_worker must be int, found str"),
        ({"num_envs_per_worker": True}, "num_envs_per_worker must be int, found bool"),
        ({"num_envs_per_worker": None}, "num_envs_per_worker must be int, found NoneType"),
        ({"num_workers": 1.5}, "num_workers must be int or None, found float"),
        ({"gamma": "high"}, "gamma must be float, found str"),
        ({"gamma": True}, "gamma must be float, found bool"),
        ({"reward_clip": "1"}, "reward_clip must be float or None, found str"),
        ({"normalize_returns": 1}, "normalize_returns must be bool, found int"),
        ({"hidden_sizes": 64}, "hidden_sizes must be tuple[int, ...], found int"),
        ({"hidden_sizes": (64, "64")}, "hidden_sizes must be int, found str"),
        ({"env_kwargs": [1]}, "env_kwargs must be dict[str, Any], found list"),
        ({"env": 5}, "env must be str or "),
        ({"encoder": None}, "encoder must be str or "),
        ({"run_dir": 5}, "run_dir must be str or Path or None, found int"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(settings, legal):
    (name, value), message = *settings.items(), refusal(**settings)
    assert legal in message
    assert f"{name}=" in message and (isinstance(value, tuple) or f"{name}={value!r} is not legal" in message)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "grue"}, "memory='grue' is not legal; did you mean 'gru'?: memory must be one of 'none'"),
        ({"inference": "centre"}, "did you mean 'central'?"),
        ({"precision": "float16"}, "precision must be one of 'auto', 'float32', 'bfloat16'"),
        ({"backend": "rai"}, "backend must be one of 'local', 'serial', 'ray'"),
        ({"vectorize": 1}, "vectorize must be one of 'make', 'vector', found int"),
        ({"on_env_error": "ignore"}, "on_env_error must be one of 'stop', 'restart'"),
        ({"learning_rate_schedule": "Linear"}, "did you mean 'linear'?"),
        ({"memory": "lstm "}, "memory='lstm ' is not legal; did you mean 'lstm'?"),
        ({"memory": "LSTM"}, "did you mean 'lstm'?"),
        ({"activation": "ReLU"}, "did you mean 'relu'?"),
        ({"activation": "gelu"}, "activation must be one of 'tanh', 'relu', 'elu', 'silu'"),
    ],
)
def test_a_value_that_is_none_of_those_offered_is_refused_with_the_closest(settings, message):
    assert message in refusal(**settings)


POSITIVE = [
    "num_envs_per_worker", "total_steps", "eval_episodes", "keep_checkpoints", "memory_size", "learning_rate",
    "max_grad_norm", "reward_scale", "segment_length", "batch_size", "num_epochs", "max_policy_lag",
]  # fmt: skip


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("name", POSITIVE)
def test_what_must_be_positive_is_refused_at_zero_and_below(name, value):
    assert f"is not legal: {name} must be more than 0" in refusal(**{name: value})


@pytest.mark.parametrize("value", [0, -2])
@pytest.mark.parametrize("name", ["num_workers", "num_groups", "max_seconds", "reward_clip"])
def test_what_is_positive_or_left_open_is_refused_at_zero_and_below(name, value):
    assert f"is not legal: {name} must be more than 0, or None" in refusal(**{name: value})
    assert getattr(made(**{name: None}), name) is None


@pytest.mark.parametrize("name", ["eval_interval", "checkpoint_interval"])
def test_intervals_may_be_zero_which_is_never(name):
    assert getattr(made(**{name: 0}), name) == 0
    assert f"{name}=-1 is not legal: {name} must be " in refusal(**{name: -1})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.01}, "gamma=1.01 is not legal: gamma must be from 0 to 1"),
        ({"gamma": -0.1}, "gamma must be from 0 to 1"),
        ({"gae_lambda": 2}, "gae_lambda=2.0 is not legal: gae_lambda must be from 0 to 1"),
        ({"memory_span": 1}, "memory_span=1 is not legal: memory_span must be 2 or more, or None"),
        ({"run_dir": ""}, "run_dir='' is not legal: run_dir must be a directory, a URL"),
        ({"seed": -1}, "seed=-1 is not legal: seed must be 0 or more"),
        ({"hidden_sizes": (64, 0)}, "hidden_sizes=(64, 0) is not legal: hidden_sizes must be all more than 0"),
        ({"device": "tpu"}, 'device=\'tpu\' is not legal: device must be "cpu", "cuda" or "cuda:<index>"'),
        ({"device": "cuda:first"}, "device='cuda:first' is not legal"),
    ],
)
def test_a_value_out_of_range_is_refused(settings, message):
    assert message in refusal(**settings)


@pytest.mark.parametrize(
    ("settings", "legal"),
    [
        ({"learning_rate": math.inf}, "finite"),
        ({"rmsprop_eps": math.inf}, "a finite number of more than 0"),
        ({"rmsprop_eps": 0.0}, "a finite number of more than 0"),
        *(
            ({name: value}, "a finite number, 0 or more")
            for name in ("entropy_coef", "entropy_coef_final", "value_coef")
            for value in (-1.0, math.inf)
        ),
    ],
)
def test_rates_and_weights_of_losses_are_finite_and_of_the_right_sign(settings, legal):
    ((name, value),) = settings.items()
    assert f"{name}={value} is not legal: {name} must be {legal}" in refusal(A2CConfig, **settings)


@pytest.mark.parametrize("name", ["gamma", "entropy_coef", "entropy_coef_final", "value_coef", "target_return"])
def test_nan_is_no_setting(name):
    assert f"{name}=nan is not legal: {name} must be a number" in refusal(**{name: math.nan})


def test_lanes_that_cannot_be_split_into_groups_are_refused_with_the_way_out():
    assert refusal(num_envs_per_worker=3, num_groups=2) == (
        "num_envs_per_worker=3 cannot be split into num_groups=2 groups: use a multiple of 2, or num_groups=1"
    )


def test_a_batch_is_a_whole_number_of_segments():
    assert refusal(batch_size=100, segment_length=32) == (
        "batch_size=100 is not a whole number of segments: use a multiple of segment_length=32"
    )
    assert made(AsynchronousConfig, batch_size=96, segment_length=32).segments_per_batch == 3
    assert made(num_minibatches=2, batch_size=96, segment_length=32).segments_per_batch == 6


def test_a_field_that_would_do_nothing_is_not_there():
    assert "unknown setting 'num_minibatches'" in refusal(PPOConfig, num_minibatches=2)
    assert "unknown setting 'max_policy_lag'" in refusal(PPOConfig, max_policy_lag=2), "none is ever late"
    for config_class in (A2CConfig, A3CConfig):
        assert "unknown setting 'batch_size'" in refusal(config_class, batch_size=2), "it follows from the lanes"
    for config_class in (A2CConfig, A3CConfig, IMPALAConfig):
        assert "unknown setting 'num_epochs'" in refusal(config_class, num_epochs=2), "one pass is what they are"


@pytest.mark.parametrize("config_class", [PPOConfig, APPOConfig])
def test_a_target_kl_is_a_distance_or_none(config_class):
    assert made(config_class).target_kl is None and made(config_class, target_kl=0.01).target_kl == 0.01
    assert refusal(config_class, target_kl=0.0) == "target_kl=0.0 is not legal: target_kl must be more than 0, or None"


def test_a_target_needs_evaluations():
    message = refusal(PPOConfig, target_return=10.0, eval_interval=0)
    assert message.startswith("eval_interval=0 is not legal: eval_interval must be more than 0, or None, with a target")


def test_integers_serve_as_floats_and_lists_as_tuples():
    config = made(gamma=1, max_seconds=60, hidden_sizes=[32, 16])
    assert (config.gamma, type(config.gamma), type(config.max_seconds)) == (1.0, float, float)
    assert config.hidden_sizes == (32, 16)


def own(hint, default, decorated=True):
    """A config with a field of its own, `extra`."""
    plain = type("Own", (PPOConfig,), {"__annotations__": {"extra": hint}, "extra": default})
    return dataclasses.dataclass(frozen=True, kw_only=True)(plain) if decorated else plain


def test_a_config_that_is_no_dataclass_is_refused_unless_what_it_adds_is_a_class_variable():
    for settings in ({}, {"extra": 2}):
        message = refusal(own(int, 1, decorated=False), **settings)
        assert message.startswith("Own is not decorated, so that its extra would be ignored: write @dataclass(")
    assert made(own(ClassVar[int], 1, decorated=False)).extra == made(own(ClassVar[int], 1)).extra == 1


@pytest.mark.parametrize(
    ("hint", "value", "read"),
    [
        (Any, "x", "x"), (tuple, [1, "x"], (1, "x")), (tuple[float, str], [1, "x"], (1.0, "x")),
        (Any | None, "x", "x"), (tuple[float, ...] | None, [1, 2], (1.0, 2.0)), (Literal["x"] | int, "x", "x"),
    ],
)  # fmt: skip
def test_a_setting_of_ones_own_has_any_of_the_simple_types(hint, value, read):
    assert made(own(hint, None), extra=value).extra == read


def test_a_setting_of_ones_own_that_is_not_tunable_is_answered_with_how_it_becomes_so():
    message = "extra cannot change during a run: it is not declared Tunable; write `extra: Tunable\\[float\\]` in Own"
    with pytest.raises(ConfigError, match=message):
        tuned(made(own(float, 1.0)), {"extra": 2.0})


def test_a_tuple_of_another_length_is_refused():
    assert "extra must be tuple[float, str], found tuple" in refusal(own(tuple[float, str], (1.0, "x")), extra=(1.0,))


@pytest.mark.parametrize("hint", [list[float], list, enum.Enum, set[int] | None, tuple[list[int], ...]])
def test_a_type_that_is_not_checked_is_refused_with_those_that_are(hint):
    message = refusal(own(hint, None))
    assert message.startswith("Own.extra has the type ")
    assert "legal types are bool, int, float, str, None, Any, Literal (for Enum), tuple (for list), dict" in message


def test_a_setting_without_a_default_is_asked_for():
    required = own(float, dataclasses.field())
    assert refusal(required) == "extra is missing, Own has no default for it: give extra=..."
    assert made(required, extra=2).extra == 2.0


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        made().gamma = 0.5


@pytest.mark.parametrize(("cores", "workers"), [(4.0, 4), (64.0, 16), (2.5, 2), (0.5, 1)])
def test_without_a_number_of_workers_there_is_one_for_each_whole_core_up_to_16(monkeypatch, cores, workers):
    monkeypatch.setattr("penstock.ipc.limits.available_cores", lambda: cores)
    assert made().workers == workers and made(num_workers=3).workers == 3
    assert made(num_envs_per_worker=6).num_lanes == 6 * workers


@pytest.mark.parametrize(
    "config_class",
    [
        Config,
        SegmentConfig,
        ReplayConfig,
        PPOConfig,
        APPOConfig,
        A2CConfig,
        A3CConfig,
        IMPALAConfig,
        DQNConfig,
        SACConfig,
    ],
)
def test_settings_survive_json(config_class):
    shared = {"hidden_sizes": (32,), "reward_clip": 1.0, "env_kwargs": {"g": 9.5}, "run_dir": None, "num_workers": 2}
    config = made(config_class, **shared)
    assert make_config(config_class, json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (CountingEnv, "tests.envs.counting:CountingEnv"),
        (functools.partial(CountingEnv, tag=3), "functools.partial(<class 'tests.envs.counting.CountingEnv'>, tag=3)"),
    ],
)
def test_what_can_be_called_is_written_by_name(source, name):
    config = made(env=source)
    assert config.env is source
    assert json.loads(json.dumps(config.to_json()))["env"] == name


def test_a_presets_settings_are_defaults_that_ones_own_replace(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[ppo]\ngamma = 0.5\nhidden_sizes = [8]\n\n[appo]\ngamma = 0.25\n")
    config = make_config(PPOConfig, {"env": "CartPole-v1", "hidden_sizes": (16,)}, str(preset))
    assert (config.gamma, config.hidden_sizes) == (0.5, (16,))
    assert make_config(APPOConfig, {"env": "CartPole-v1"}, str(preset)).gamma == 0.25


@pytest.mark.parametrize(
    ("preset", "table"),
    [(path.stem, name) for path in sorted(PRESETS.glob("*.toml")) for name in tomllib.loads(path.read_text())],
)
@pytest.mark.parametrize("num_workers", [1, 3, 16])
def test_every_preset_that_comes_with_penstock_is_legal_on_every_machine(preset, table, num_workers):
    config_class = load_algorithm(table).Config
    settings = load_preset(preset, config_class) | {"env": "x", "num_workers": num_workers}
    assert settings.items() <= make_config(config_class, settings).to_json().items()


def test_an_unknown_preset_is_refused_with_the_closest():
    message = refusal(PPOConfig, preset="atarri")
    assert message.startswith("unknown preset 'atarri'; did you mean 'atari'? (legal: atari, ")
    assert message.endswith(", or the path of a .toml file)")


def test_a_preset_without_a_table_for_the_algorithm_is_refused_with_those_it_has(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("ppo = 3\n[appo]\n[impala]\n")
    problem = f"preset {str(preset)!r} has no table [ppo]: "
    assert f"{problem}its tables are appo, impala" in refusal(PPOConfig, preset=str(preset))
    preset.write_text("")
    assert f"{problem}it has no tables; write [ppo] above the settings" in refusal(PPOConfig, preset=str(preset))


def test_a_presets_unknown_ill_typed_or_foreign_settings_are_refused_as_ones_own_are(tmp_path):
    preset = tmp_path / "mine.toml"
    for text, message in (
        ("[ppo]\ngama = 0.5", "unknown setting 'gama'; did you mean 'gamma'?"),
        ("[ppo]\ngamma = 'x'", "gamma must be float, found str"),
        ("[ppo]\nrho_bar = 2.0", "unknown setting 'rho_bar'"),
        ("[ppo\n", "is not TOML: "),
    ):
        preset.write_text(text)
        assert message in refusal(PPOConfig, preset=str(preset))
    assert f"there is no file {tmp_path / 'none.toml'}" in refusal(PPOConfig, preset=str(tmp_path / "none.toml"))
    preset.write_text("[ppo]\ngamma = 0.5")
    assert load_preset(str(preset), PPOConfig) == {"gamma": 0.5}


def test_the_closest_name_is_offered_only_where_one_is_close():
    assert closest("lerning_rate", ["learning_rate", "gamma"]) == "; did you mean 'learning_rate'?"
    assert closest("xyz", ["learning_rate", "gamma"]) == ""


MAY_CHANGE = """
    env env_kwargs vectorize team_reward on_env_error num_workers num_envs_per_worker num_groups inference backend
    pin_workers address nodes nodes_per_gateway node_weights evaluator num_evaluators num_learners learner_nodes
    device precision seed learning_rate learning_rate_schedule
    total_steps max_seconds target_return eval_interval eval_episodes eval_max_steps checkpoint_interval
    keep_checkpoints batch_size segment_length max_grad_norm entropy_coef entropy_coef_final value_coef max_policy_lag
    num_epochs gae_lambda normalize_advantages clip_range target_kl value_clip_range num_minibatches advantage_estimator
    rho_bar c_bar rho_pg_bar vtrace_lambda reduction rmsprop_decay rmsprop_eps rmsprop_eps_inside entropy_spread
    learning_starts updates_per_step ratio_slack publish_interval save_replay replay_at optimizer_eps double
    priority_beta priority_beta_final target_period exploration exploration_final exploration_steps exploration_exponent
    actor_learning_rate tau exploration_noise target_noise target_noise_clip policy_delay alpha target_entropy replay
    noise_hold reset_interval target_std learning_rate_decay exploration_noise_high
    policy_cloning_coef value_cloning_coef trust_region num_batches batch_uses rho_target kl_coef eval_exploration
    priority_eta q_lambda dropped_quantiles adam_beta1 adam_beta2 adam_eps pbt pbt_interval pbt_start pbt_fraction
    pbt_metric pbt_episodes schedule schedule_policy max_actor_grad hindsight goals_per_step redistribution_value
    redistribution_share redistribution_trace redistribution_points redistribution_max_error redistributor_learning_rate
    redistributor_interval redistributor_batch_size redistributor_lessons redistributor_chunk redistributor_max_steps
    seats opponents opponent_pool opponent_interval opponent_share opponent_sampling eval_against
    munchausen munchausen_alpha munchausen_temperature munchausen_floor weight_decay noisy_epsilon exploration_share
    loss td_loss rho_proximal batch_timeout eval_videos upload_timeout
"""
"""Settings that can change within a run of every algorithm that has them, but for those below."""
FIXED_FOR_REPLAY = {"gamma", "reward_scale", "reward_clip", "burn_in"}  # what is stored depends on them


@pytest.mark.parametrize("name", ALGORITHMS)
def test_of_every_setting_it_is_said_whether_it_can_change_within_a_run(name):
    config_class = load_algorithm(name).Config
    fields, fixed = {f.name for f in dataclasses.fields(config_class)}, config_class.fixed_settings()
    may_change = set(MAY_CHANGE.split()) | (set() if issubclass(config_class, ReplayConfig) else FIXED_FOR_REPLAY)
    assert fixed.keys() <= fields and all(fixed.values())
    assert fields - fixed.keys() == fields & may_change


def test_a_setting_that_cannot_change_is_refused_if_it_is_another_one():
    config_class = load_algorithm("dqn").Config
    before = config_class(env="CartPole-v1", n_step=3).to_json()
    changes = {"n_step": 3, "target_period": 50, "hidden_sizes": [128, 128]}
    assert change_config(config_class, before, changes).target_period == 50
    message = r"n_step=2 is not legal here: n_step cannot change .* is 3 in this one, because the contents of the"
    with pytest.raises(ConfigError, match=message):
        change_config(config_class, before, {"n_step": 2})
    with pytest.raises(ConfigError, match="did you mean 'target_period'"):
        change_config(config_class, before, {"target_perio": 2})
    with pytest.raises(ConfigError, match="total_steps=0 is not legal"):
        change_config(config_class, before, {"total_steps": 0})


def test_a_replay_in_shards_has_a_gateway_for_each_and_is_refused_where_there_is_none():
    on_nodes = {"env": "CartPole-v1", "backend": "ray"}
    config = DQNConfig(**on_nodes, nodes=3)
    config.validate()
    assert config.gateway_levels == [] and config.num_shards == 0
    config = DQNConfig(**on_nodes, nodes=3, replay_at="gateways")
    config.validate()
    assert config.gateway_levels == [[range(3)]] and config.num_shards == 1
    many = DQNConfig(**on_nodes, nodes=20, nodes_per_gateway=2, replay_at="gateways")
    assert [len(level) for level in many.gateway_levels] == [2, 10] and many.num_shards == 10
    assert DQNConfig(**on_nodes, nodes=8).gateway_levels == []
    assert DQNConfig(**on_nodes, nodes=9).gateway_levels == [[range(9)]]
    assert 'is for backend="ray", found backend="local"' in refusal(DQNConfig, replay_at="gateways")
    given = {**on_nodes, "replay_at": "gateways"}
    assert "not possible with save_replay=True" in refusal(DQNConfig, **given, save_replay=True)
    found = refusal(DQNConfig, **given, rewards="rudder", n_step=1)
    assert "rewards='rudder' is not possible with replay_at=\"gateways\"" in found
