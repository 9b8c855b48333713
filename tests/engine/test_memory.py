"""Memory does what it is for: a maze that cannot be solved without it is solved with it, by every algorithm."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import penstock
from tests.variants import only

SERIAL: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 4, "backend": "serial", "hidden_sizes": (16,), "memory_size": 16,
    "segment_length": 16, "total_steps": 4096, "learning_rate": 1e-2, "seed": 1, "eval_interval": 0, "run_dir": None,
}  # fmt: skip
ALGORITHMS = [
    pytest.param(penstock.PPO, {"batch_size": 64, "num_epochs": 2}, id="ppo"),
    pytest.param(penstock.APPO, {"batch_size": 64, "num_minibatches": 1}, id="appo"),
    pytest.param(penstock.A2C, {}, id="a2c"),
    pytest.param(penstock.A3C, {}, id="a3c"),
    pytest.param(penstock.IMPALA, {"batch_size": 64}, id="impala"),
]


class TMaze(gym.Env):
    """A corridor that ends at a wall. A sign at its entrance says where the prize is: left or right of the wall.

    Only the action at the wall counts: 1 where the prize is, else -1. Without memory no policy has a mean return but 0.
    """

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 2) -> None:
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.prize = int(self.np_random.integers(2))
        self.place = 0
        return np.array([2 * self.prize - 1, 0], np.float32), {}

    def step(self, action):
        is_at_wall = self.place == self.length
        reward = (1.0 if action == self.prize else -1.0) if is_at_wall else 0.0
        self.place += 1
        return np.array([0, self.place == self.length], np.float32), reward, is_at_wall, False, {}


def return_of(algorithm, **settings):
    """Mean return of 200 episodes after a short training; chance alone has a standard deviation of 0.07."""
    with algorithm(env=TMaze, **{**SERIAL, **settings}) as trainer:
        trainer.train(quiet=True)
        return trainer.evaluate(200).mean_return


@pytest.mark.parametrize(("algorithm", "settings"), ALGORITHMS)
def test_with_a_gru_the_maze_is_solved(algorithm, settings):
    assert return_of(algorithm, memory="gru", **settings) > 0.95


@pytest.mark.parametrize(("algorithm", "settings"), only("a3c", ALGORITHMS[-2:]))
def test_with_an_lstm_the_maze_is_solved(algorithm, settings):
    assert return_of(algorithm, memory="lstm", **settings) > 0.95


def test_with_burn_in_the_maze_is_solved():
    assert return_of(penstock.IMPALA, memory="gru", burn_in=8, batch_size=64) > 0.95


def test_what_lies_before_a_segment_reaches_it_through_the_memory_state():
    """The sign and the wall are two steps apart, so that no segment of two steps holds both."""
    settings = {"segment_length": 2, "num_envs_per_worker": 32, "total_steps": 12_288}
    assert return_of(penstock.A2C, memory="gru", **settings) > 0.95


def test_without_memory_it_is_a_matter_of_luck():
    assert abs(return_of(penstock.PPO, memory="none", batch_size=64, num_epochs=2)) < 0.3
