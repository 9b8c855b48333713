"""Defaults that depend on the network are settled when a run starts, said, and recorded."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import penstock
from penstock.config import ConfigError
from penstock.engine.roles import learner

IMAGE = Box(0, 255, (4, 4, 1), np.uint8)
VECTOR = Box(-1.0, 1.0, (3,), np.float32)


class Shows(gymnasium.Env):
    """Random observations of a space; every action is worth as much."""

    action_space = Discrete(2)

    def __init__(self, what):
        self.observation_space = {
            "image": IMAGE, "vector": VECTOR, "both": Dict(image=IMAGE, vector=VECTOR),
            "grey": Box(0, 255, (16, 16), np.uint8),
        }[what]  # fmt: skip

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, bool(self.np_random.random() < 0.2), False, {}


def small(algorithm, what, **settings):
    return algorithm(
        env=Shows, env_kwargs={"what": what}, backend="serial", num_workers=1, num_envs_per_worker=2, segment_length=4,
        batch_size=8, eval_interval=0, **{"total_steps": 16, "run_dir": None, **settings},
    )  # fmt: skip


def test_what_network_and_lanes_decide_is_said_together(tmp_path):
    with small(penstock.APPO, "vector", run_dir=tmp_path / "run") as algo:
        algo.train(quiet=True)
        assert algo.config.num_epochs == 8
    assert "defaults for this run: learning_rate=0.002, num_epochs=8\n" in (tmp_path / "run" / "log.txt").read_text()


def test_images_that_are_flattened_and_masks_that_are_ignored_are_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(Shows, "action_masks", lambda env: np.ones(2, np.bool_), raising=False)
    with small(penstock.PPO, "grey", run_dir=tmp_path / "run") as algo:
        algo.train(quiet=True)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "encoder='auto' flattens uint8 (16, 16)" in log and "action_masks() is not called" in log


@pytest.mark.parametrize("algorithm", [penstock.APPO, penstock.IMPALA, penstock.IMPACT])
@pytest.mark.parametrize(("what", "rate"), [("vector", 2e-3), ("image", 5e-4), ("both", 5e-4)])
def test_the_step_size_follows_from_what_the_network_encodes(algorithm, what, rate):
    with small(algorithm, what) as algo:
        assert algo.config.learning_rate == algo.get_hyperparameters()["learning_rate"] == rate
    with small(algorithm, what, encoder="mlp") as algo:
        assert algo.config.learning_rate == 2e-3, "pixels as numbers"
    with small(algorithm, what, learning_rate=1e-2) as algo:
        assert algo.config.learning_rate == 1e-2


def test_what_was_settled_is_said_recorded_and_kept_by_a_resume(tmp_path):
    run = tmp_path / "run"
    with small(penstock.IMPALA, "both", run_dir=run) as algo:
        algo.train(quiet=True)
    assert json.loads((run / "config.json").read_text())["learning_rate"] == 5e-4
    assert "defaults for this run: learning_rate=0.0005\n" in (run / "log.txt").read_text()
    (run / "config.json").write_text((run / "config.json").read_text().replace("0.0005", "0.002"))
    with penstock.IMPALA.resume(run, total_steps=32, env=Shows) as algo:
        algo.train(quiet=True)
        assert algo.config.learning_rate == 2e-3, "of the run, not of the defaults"
    assert (run / "log.txt").read_text().count("defaults for this run") == 1


def test_every_policy_has_the_step_size_of_its_network():
    policies = {"sees": {}, "reads": {"encoder": "mlp"}}
    with small(penstock.IMPALA, "image", policies=policies) as algo:
        rates = {name: each["learning_rate"] for name, each in algo.get_hyperparameters().items()}
    assert rates == {"sees": 5e-4, "reads": 2e-3}


def test_none_is_no_step_size_elsewhere():
    with pytest.raises(ConfigError, match=r"learning_rate=None is not legal: learning_rate must be"):
        small(penstock.PPO, "vector", learning_rate=None)


def test_a_network_that_has_died_is_warned_of_once(monkeypatch, tmp_path):
    monkeypatch.setattr(learner, "FEATURES_INTERVAL", 1)
    monkeypatch.setattr("penstock.nn.policy_network.CONSTANT", 1e9)  # every feature counts as constant
    with small(penstock.IMPALA, "vector", total_steps=80, run_dir=tmp_path / "run") as algo:
        algo.train(quiet=True, on_update=(shares := []).append)
    assert {status.experience["constant_features"] for status in shares[1:]} == {1.0}
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("warning: 100% of the encoder's features are the same") == 1
    assert "smaller learning_rate (now 0.002)" in log
