"""Wrappers with running statistics: what a policy is trained with it is evaluated, resumed and loaded with."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation

import penstock
from penstock.play.scoring import evaluate_run
from penstock.runs.run_directory import RunDirectory
from tests.engine.inside import role_of

pytestmark = pytest.mark.timeout(180)


class Wild(gymnasium.Env):
    """Each episode shows one number of a wild scale all the time: by its side of the mean the action is right.

    A wrapper that has seen one episode takes its number for the mean, and shows nothing.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.side, self.steps = int(self.np_random.integers(2)), 0
        return self._shown(), {}

    def step(self, action):
        self.steps += 1
        return self._shown(), float(action == self.side), False, self.steps == 10, {}

    def _shown(self):
        return np.array([1e5 + 1e3 * self.side, -7.0], np.float32)


def normalized():
    return NormalizeObservation(Wild())


def scored(policy, make, episodes):
    """Mean return of a policy in environments that its user has made, a new one for each episode."""
    total = 0.0
    for episode in range(episodes):
        env = make()
        (observation, _), is_over = env.reset(seed=episode), False
        while not is_over:
            observation, reward, _, is_over, _ = env.step(policy.act(observation))
            total += reward
    return total / episodes


def saved_in(run):
    """Statistics that the newest checkpoint of a run holds."""
    return RunDirectory.open(run).checkpoints.latest().meta["statistics"]


SETTINGS: dict[str, Any] = {
    "env": normalized, "backend": "serial", "num_workers": 2, "num_envs_per_worker": 4, "segment_length": 16,
    "batch_size": 128, "num_epochs": 4, "hidden_sizes": (16,), "learning_rate": 3e-3, "total_steps": 4_096,
    "normalize_observations": False, "eval_interval": 0.5, "eval_episodes": 20, "seed": 1,
}  # fmt: skip


def test_evaluations_resumed_runs_and_loaded_policies_see_what_training_has_seen(tmp_path):
    run = str(tmp_path / "run")
    with penstock.PPO(**SETTINGS, run_dir=run) as trainer:
        result = trainer.train(quiet=True)
        (player,) = role_of(trainer, "evaluator")._players.values()
        (seen,) = player.group.statistics.moments
        assert result.eval_return == trainer.evaluate(40).mean_return == 10.0
    assert evaluate_run(run, episodes=40, env=normalized).mean_return == 10.0

    policy = penstock.load_policy(run, env=normalized)
    assert scored(policy, lambda: policy.prepare(normalized()), 10) == 10.0
    assert scored(policy, normalized, 10) < 9.0, "wrappers of their own know nothing yet"
    (statistics,) = saved_in(run)
    assert statistics["count"] > 4_096, "one observation of each step, and one of each episode's beginning"
    assert statistics["mean"] == pytest.approx([1e5 + 500.0, -7.0], rel=1e-2)
    assert statistics["var"][0] == pytest.approx(500.0**2, rel=1e-2)
    assert seen.is_frozen, "an evaluation sees what training has seen, and adds nothing"
    assert seen.now().to_json() == statistics

    with penstock.Trainer.resume(run, env=normalized, total_steps=4_224) as trainer:
        assert trainer.evaluate(40).mean_return == 10.0
        assert trainer.train(quiet=True).mean_return > 8.0, "its first episodes, which are sampled"
    (later,) = saved_in(run)
    assert later["count"] > statistics["count"] + 128


class Own(gymnasium.ObservationWrapper):
    """A wrapper with running statistics that nobody knows."""

    class Running:
        mean, var, count = 0.0, 1.0, 0

        def update(self, value):
            self.count += 1

    def __init__(self):
        super().__init__(Wild())
        self.rms = self.Running()

    def observation(self, observation):
        self.rms.update(observation)
        return observation


def test_statistics_that_cannot_be_shared_are_warned_of_once_with_what_to_use_instead(tmp_path):
    settings = {**SETTINGS, "env": Own, "total_steps": 256, "eval_interval": 0}
    with penstock.PPO(**settings, run_dir=str(tmp_path / "run")) as trainer:
        trainer.train(quiet=True)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert log.count("warning: the running statistics Own.rms are not saved, and not shared by environments") == 1
    assert log.count("use normalize_observations=True") == 1
