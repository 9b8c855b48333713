"""The example for Ray Tune, without Ray: a stand-in that calls a Trainable as Ray does."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock.config import ConfigError
from penstock.imports import load_module
from tests.places import ROOT

CONFIG = {
    "env": "CartPole-v1", "num_workers": 1, "num_envs_per_worker": 2, "segment_length": 16, "batch_size": 32,
    "hidden_sizes": (8,), "backend": "serial", "total_steps": 400, "steps_per_iteration": 100, "learning_rate": 1e-3,
}  # fmt: skip


class Trainable:
    """As much of ``ray.tune.Trainable`` as trials see (Ray 2)."""

    def __init__(self, config):
        self.config = config
        self.setup(config)


@pytest.fixture
def trainable(monkeypatch):
    """Makes Trainables, which are cleaned up."""
    ray, tune = ModuleType("ray"), ModuleType("ray.tune")
    ray.tune, tune.Trainable = tune, Trainable
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.tune", tune)
    made = []

    def make(**changes):
        made.append(load_module(str(ROOT / "examples" / "ray_trainable.py")).PenstockTrainable({**CONFIG, **changes}))
        return made[-1]

    yield make
    for one in made:
        one.cleanup()
        assert not one.folder.exists()


def test_it_trains_in_slices_until_its_budget_is_spent(trainable):
    trial = trainable()
    told = [trial.step() for _ in range(4)]
    assert [each["steps"] >= 100 * (i + 1) for i, each in enumerate(told)] == [True] * 4
    assert [each["done"] for each in told] == [False, False, False, True]
    assert all(each["mean_return"] >= 8 for each in told)


def test_a_trial_goes_on_from_anothers_checkpoint_with_settings_of_its_own(trainable, tmp_path):
    parent, child = trainable(learning_rate=1e-3), trainable(learning_rate=5e-4, entropy_coef=0.1)
    steps = parent.step()["steps"]
    child.step()
    parent.save_checkpoint(str(tmp_path))
    child.load_checkpoint(str(tmp_path))
    assert child.algo.status.steps == steps
    assert (child.algo.config.learning_rate, child.algo.config.entropy_coef) == (5e-4, 0.1)
    mine, theirs = child.algo.get_parameters()[0], parent.algo.get_parameters()[0]
    assert all((mine[name] == theirs[name]).all() for name in theirs)
    assert child.step()["steps"] > steps and parent.algo.config.learning_rate == 1e-3
    parent.step()
    assert not all((mine[name] == value).all() for name, value in child.algo.get_parameters()[0].items())


def test_a_checkpoint_outlives_the_trial_that_wrote_it(trainable, tmp_path):
    trial = trainable()
    steps = trial.step()["steps"]
    trial.save_checkpoint(str(tmp_path))
    trial.cleanup()
    again = trainable()
    again.load_checkpoint(str(tmp_path))
    assert again.algo.status.steps == steps
    assert Path(again.algo.run_dir) != tmp_path / "run"


def test_secrets_are_refused_because_ray_writes_the_settings(trainable):
    with pytest.raises(ConfigError, match=r"'api_key'.* not legal in Ray Tune"):
        trainable(env_kwargs={"api_key": "sesame"})
