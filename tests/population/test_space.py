"""Legal spaces of a population, and messages about illegal ones."""

import pytest

from penstock.algorithms.ppo import PPOConfig
from penstock.algorithms.td3 import TD3Config
from penstock.config import ConfigError
from penstock.population.space import population_space, tables_of

CONFIG = PPOConfig(env="none")
BOUNDS = {"low": 1e-5, "high": 1e-2}


def test_a_file_holds_the_tables(tmp_path):
    (tmp_path / "space.toml").write_text("[learning_rate]\nlow = 1e-5\nhigh = 1e-2\nlog = true\n")
    space = population_space(tables_of(tmp_path / "space.toml"), CONFIG)
    (rate,) = space.dimensions
    assert (rate.name, rate.range.low, rate.range.high, rate.range.log) == ("learning_rate", 1e-5, 1e-2, True)
    assert (rate.perturb, rate.resample, rate.initial) == ((0.8, 1.2), 0.25, (1e-5, 1e-2))


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "pbt_space is empty"),
        ({"learning_rat": BOUNDS}, "unknown setting 'learning_rat'; did you mean 'learning_rate'?"),
        ({"batch_size": BOUNDS}, "batch_size cannot change during a run.*tunable: gamma, learning_rate"),
        ({"learning_rate": {"low": 1e-2, "high": 1e-5}}, "low must be less than high"),
        ({"learning_rate": {"low": 0, "high": 1, "log": True}}, "low must be more than 0 on a logarithmic scale"),
        ({"learning_rate": {"high": 1}}, r"\[learning_rate\] has high: it needs low and high"),
        ({"learning_rate": {**BOUNDS, "perturbs": [1]}}, "unknown key 'perturbs'; did you mean 'perturb'?"),
        ({"learning_rate": {**BOUNDS, "perturb": [0.0]}}, "write factors of more than 0"),
        ({"learning_rate": {**BOUNDS, "resample": 2.0}}, "it is a probability, from 0 to 1"),
        ({"learning_rate": {**BOUNDS, "initial": [1e-6, 1e-3]}}, r"initial=.* write two values within"),
        ({"gamma": {"low": 0.5, "high": 1.5}}, "gamma must be from 0 to 1"),
        ({"gamma": {"low": 0.5, "high": 1.0, "complement": True, "log": True}}, "high must be less than 1"),
        ({"learning_rate": 3}, "learning_rate is no table"),
    ],
)
def test_a_space_that_is_not_legal_is_refused(tables, message):
    with pytest.raises(ConfigError, match=message):
        population_space(tables, CONFIG)


def test_gamma_of_a_replay_learner_is_no_dimension():
    with pytest.raises(ConfigError, match="stored with it"):
        population_space({"gamma": {"low": 0.5, "high": 0.9}}, TD3Config(env="none"))


def test_a_start_outside_of_the_bounds_is_refused():
    import numpy as np

    space = population_space({"learning_rate": BOUNDS}, CONFIG)
    with pytest.raises(ConfigError, match="learning_rate=1 is outside the bounds that pbt_space gives it, from 1e-05"):
        space.starts([{"learning_rate": 1.0}], np.random.default_rng(0))
