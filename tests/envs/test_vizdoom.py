"""Doom scenarios by their ids: images beside numbers, with a frame skip, at the size that is asked for."""

import numpy as np
import pytest

pytest.importorskip("vizdoom")

from penstock.algorithms.appo import APPO, APPOConfig
from penstock.config import make_config
from penstock.engine.trainer import Trainer
from penstock.envs.making import make_env, probe
from penstock.envs.spec import EnvSpec

SMALL = {"frame_skip": 4, "screen_resolution": "RES_160X120"}


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the game leaves its settings where it is started


def test_an_id_is_found_without_importing_the_package_that_registers_it():
    assert EnvSpec.resolve("VizdoomBasic-v1").kind == "gymnasium"


def test_it_shows_an_image_and_numbers_and_tells_its_frame_skip():
    observation, action, frame_skip, *_ = probe(EnvSpec.resolve("VizdoomBasic-v1", SMALL))
    assert {part.path: (part.spec.shape, part.spec.dtype) for part in observation.parts} == {
        "screen": ((120, 160, 3), "uint8"), "gamevariables": ((1,), "float32"),
    }  # fmt: skip
    assert observation.is_image and action.is_discrete and action.num_actions == 4 and frame_skip == 4


def test_lanes_of_one_seed_play_the_same():
    def play():
        lanes = make_env("VizdoomBasic-v1", 2, env_kwargs=SMALL, seed=3)
        lanes.reset()
        column, rewards = np.zeros((2, *lanes.observation.shape), lanes.observation.dtype), []
        for step in range(20):
            lanes.step(np.array([step % 4, (step + 1) % 4]))
            rewards.append(lanes.reward.tolist())
        lanes.write_observations(column, np.arange(2))
        lanes.close()
        return column, rewards

    (one, rewards), (two, again) = play(), play()
    assert np.array_equal(one, two) and rewards == again


@pytest.mark.timeout(120)
def test_the_preset_trains():
    config = make_config(APPOConfig, {"env": "VizdoomBasic-v1"}, "vizdoom")
    assert config.env_kwargs == SMALL
    settings = {"num_workers": 1, "num_envs_per_worker": 2, "segment_length": 8, "batch_size": 32, "memory_size": 16}
    with Trainer(APPO, preset="vizdoom", env="VizdoomBasic-v1", run_dir=None, eval_interval=0, **settings) as trainer:
        assert trainer.train(100, quiet=True).steps >= 100
        assert trainer.status.frame_skip == 4 and trainer.status.version > 0
