"""What a search may change: the file of a space, and its check against an algorithm."""

import re
import tomllib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.appo import APPOConfig
from penstock.algorithms.dqn import DQNConfig
from penstock.algorithms.ppo import PPOConfig
from penstock.bench.arguments import as_flags, names_of
from penstock.config import ConfigError
from penstock.flags import parse_config
from penstock.search.space import Choice, Range, Space, read_space, refusal_of, space_of
from tests.places import DOCS

APPO = APPOConfig(env="CartPole-v1")
PPO = PPOConfig(env="CartPole-v1")
DQN = DQNConfig(env="CartPole-v1")


def test_a_file_has_a_table_for_each_setting(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(
        "[learning_rate]\nlow = 1e-5\nhigh = 1e-2\nlog = true\n"
        "[num_epochs]\nlow = 1\nhigh = 7\nstep = 2\n"
        "[gamma]\nlow = 0\nhigh = 1\n"
        "[hidden_sizes]\nvalues = [[64, 64], [256]]\n"
        '[activation]\nvalues = ["tanh", "relu"]\n'
    )
    assert read_space(path, APPO).dimensions == (
        Range("learning_rate", 1e-5, 1e-2, log=True),
        Range("num_epochs", 1, 7, step=2),
        Range("gamma", 0.0, 1.0),
        Choice("hidden_sizes", ((64, 64), (256,))),
        Choice("activation", ("tanh", "relu")),
    )


def test_the_file_that_the_page_shows_is_a_space():
    (shown,) = re.findall(r"^```toml\n(.*?)^```", (DOCS / "guides" / "search.md").read_text(), re.DOTALL | re.MULTILINE)
    space = space_of(tomllib.loads(shown), PPO)
    assert space.names == ["learning_rate", "num_epochs", "hidden_sizes"]
    assert space.holds(PPO), "the first trial has the settings as they are"


def test_numbers_are_whole_where_the_setting_is():
    space = space_of({"num_epochs": {"low": 1, "high": 4}, "value_coef": {"low": 1, "high": 2}}, APPO)
    epochs, coefficient = space.dimensions
    assert epochs.is_whole and not coefficient.is_whole and isinstance(coefficient.low, float)


def test_a_setting_that_is_a_number_or_none_has_a_range():
    assert space_of({"num_workers": {"low": 1, "high": 4}}, APPO).dimensions == (Range("num_workers", 1, 4),)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"learning_rat": {"low": 1, "high": 2}}, "unknown setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"ent_coef": {"low": 1, "high": 2}}, "unknown setting 'ent_coef'"),
        ({"gamma": 0.9}, "gamma is not a table: write [gamma] with low and high"),
        ({"gamma": {"low": 0.9, "hihg": 1.0}}, "[gamma] has an unknown key 'hihg'; did you mean 'high'?"),
        ({"gamma": {"low": 0.9}}, "[gamma] has low: write it with low and high"),
        ({"gamma": {}}, "[gamma] has no keys"),
        ({"gamma": {"low": 0.9, "high": 1.0, "values": [1]}}, "[gamma] has low, high, values"),
        ({"gamma": {"values": [0.9, 0.99], "log": True}}, "[gamma] has values, log"),
        ({"gamma": {"low": 0.99, "high": 0.9}}, "low must be less than high"),
        ({"gamma": {"low": 0.9, "high": 0.9}}, "low must be less than high"),
        ({"gamma": {"low": 0.9, "high": float("inf")}}, "both finite"),
        ({"gamma": {"low": float("nan"), "high": 1.0}}, "low must be less than high"),
        ({"gamma": {"low": "small", "high": 1.0}}, "gamma='small' is not legal"),
        ({"gamma": {"low": 0.9, "high": 1.5}}, "[gamma]: gamma=1.5 is not legal: gamma must be from 0 to 1"),
        ({"gamma": {"low": 0.0, "high": 0.9, "log": True}}, "low must be more than 0 on a logarithmic scale"),
        ({"gamma": {"low": 0.1, "high": 0.9, "log": True, "step": 0.1}}, "has log and step"),
        ({"gamma": {"low": 0.1, "high": 0.9, "step": 0.3}}, "step=0.3 is not legal: two or more steps from low"),
        ({"gamma": {"low": 0.1, "high": 0.9, "step": 0.8}}, "two or more steps"),
        ({"gamma": {"low": 0.1, "high": 0.9, "step": -0.1}}, "two or more steps"),
        ({"gamma": {"low": 0.1, "high": 0.9, "step": 0}}, "two or more steps"),
        ({"gamma": {"low": 0.1, "high": 0.9, "log": 1}}, "log=1 is not legal"),
        ({"num_epochs": {"low": 1.5, "high": 4}}, "num_epochs=1.5 is not legal: num_epochs must be int"),
        ({"num_epochs": {"low": 0, "high": 4}}, "[num_epochs]: num_epochs=0 is not legal"),
        ({"activation": {"low": 1, "high": 4}}, "activation is not a number: list its values"),
        ({"activation": {"values": ["tanh", "rleu"]}}, "did you mean 'relu'?"),
        ({"activation": {"values": "tanh"}}, "values must be a list"),
        ({"activation": {"values": ["tanh"]}}, "write two or more, each once"),
        ({"activation": {"values": ["tanh", "tanh", "relu"]}}, "write two or more, each once"),
        ({"activation": {"values": [{"a": 1}, "relu"]}}, "a value cannot be a table"),
        ({"learning_rate": {"values": ["a", "b"]}}, "[learning_rate]: learning_rate='a' is not legal"),
        ({"env": {"values": ["CartPole-v1", "Acrobot-v1"]}}, "env cannot be searched: trials compare only"),
        ({"total_steps": {"low": 1000, "high": 2000}}, "total_steps cannot be searched: trials compare only"),
        ({"seed": {"low": 0, "high": 9}}, "seed cannot be searched: --seeds averages over seeds"),
    ],
)
def test_what_is_not_legal_is_told_with_what_was_found(tables, message):
    with pytest.raises(ConfigError) as caught:
        space_of(tables, APPO)
    assert message in str(caught.value)


def test_a_setting_that_a_flag_gives_is_not_searched():
    given_ = names_of(["--learning-rate=1e-3", "--no-double", "--hidden-sizes", "8"], DQN)
    assert given_ == {"learning_rate", "double", "hidden_sizes"}
    with pytest.raises(ConfigError, match=r"double is searched, but also given by a flag: leave out --double or \[dou"):
        space_of({"double": {"values": [True, False]}}, DQN, given_)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "cannot be read: No such file"), ("[gamma", "is not TOML"), ("", "is empty: write a table")],
)
def test_a_file_that_is_no_space_is_told_by_its_name(text, message, tmp_path):
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_space(path, APPO)
    assert message in str(caught.value) and "mine.toml" in str(caught.value)


def test_an_error_in_a_file_names_the_file(tmp_path):
    (tmp_path / "mine.toml").write_text("[gama]\nlow = 0.9\nhigh = 1.0\n")
    with pytest.raises(ConfigError, match=r"mine.toml': unknown setting 'gama'; did you mean 'gamma'"):
        read_space(tmp_path / "mine.toml", APPO)


def test_settings_that_are_legal_only_together_may_be_searched():
    ppo = PPOConfig(env="CartPole-v1", num_workers=1, num_envs_per_worker=16, segment_length=8, batch_size=64)
    assert refusal_of(ppo, {"batch_size": 48}), "48 does not divide the 16 x 8 steps that are collected"
    assert not refusal_of(ppo, {"batch_size": 48, "segment_length": 12})
    alone = {"batch_size": {"values": [64, 48]}}
    with pytest.raises(ConfigError, match=r"\[batch_size\]: batch_size=48 does not divide the 128 steps"):
        space_of(alone, ppo)
    together = space_of({**alone, "gamma": {"low": 0.9, "high": 1.0}, "segment_length": {"values": [8, 12]}}, ppo)
    assert together.names == ["batch_size", "gamma", "segment_length"]


def test_how_rewards_are_scaled_for_learning_may_be_searched():
    assert space_of({"reward_scale": {"low": 0.01, "high": 1.0}}, APPO).names == ["reward_scale"]


def test_a_space_knows_what_it_holds():
    space = Space((Range("learning_rate", 1e-5, 1e-2, log=True), Range("num_epochs", 1, 7, step=2)))
    assert space.holds(replace(APPO, learning_rate=1e-5, num_epochs=3))
    assert not space.holds(replace(APPO, learning_rate=1e-5, num_epochs=2)), "no step leads there"
    assert not space.holds(replace(APPO, learning_rate=0.1, num_epochs=3))
    assert not space.holds(replace(APPO, learning_rate="schedules.py:falling", num_epochs=3))
    assert not Range("num_workers", 1, 4).holds(None)
    assert Choice("hidden_sizes", ((8, 8), (9,))).holds((8, 8)) and not Choice("x", (1, 2)).holds(True)


SPACES = {
    "learning_rate": st.floats(1e-6, 1.0),
    "gamma": st.floats(0.0, 1.0),
    "target_period": st.integers(1, 10**6),
    "double": st.booleans(),
    "hidden_sizes": st.lists(st.integers(1, 512), min_size=1, max_size=3).map(tuple),
    "activation": st.sampled_from(["tanh", "relu"]),
    "v_min": st.floats(-1e9, -1e-9),
    "num_groups": st.integers(1, 1),
}


@settings(max_examples=15)
@given(st.fixed_dictionaries({}, optional=SPACES))
def test_the_flags_of_settings_give_these_settings(found):
    config = parse_config(DQNConfig, ["--env", "CartPole-v1", "--v-max", "1", *as_flags(found)], prog="penstock train")
    assert config == replace(DQN, v_max=1.0, **found)


def test_a_space_is_the_same_after_json():
    tables = {
        "learning_rate": {"low": 1e-5, "high": 1e-2, "log": True, "step": None},
        "num_epochs": {"low": 1, "high": 7, "log": False, "step": 2},
        "hidden_sizes": {"values": [[64, 64], [256]]},
    }
    assert space_of({"hidden_sizes": tables["hidden_sizes"]}, APPO).to_json() == {
        "hidden_sizes": tables["hidden_sizes"]
    }
    legal = {name: {key: value for key, value in table.items() if value is not None} for name, table in tables.items()}
    assert space_of(legal, APPO).to_json() == tables
