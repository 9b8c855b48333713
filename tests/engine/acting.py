"""Policies that act: a briefly trained one, and one of random weights."""

from typing import Any

import torch

import penstock
from penstock.algorithms.ppo import PPO, PPOConfig
from penstock.envs.making import probe
from penstock.envs.spec import EnvSpec
from penstock.play.policy import Policy

SETTINGS: dict[str, Any] = {
    "num_workers": 1, "num_envs_per_worker": 4, "segment_length": 8, "batch_size": 16, "num_epochs": 1,
    "hidden_sizes": (8,), "memory_size": 6, "total_steps": 500, "backend": "serial", "eval_interval": 0,
    "run_dir": None, "learning_rate": 0.05,
}  # fmt: skip


def saved(tmp_path, env="CartPole-v1", **settings):
    """A briefly trained policy, and the network it was saved from."""
    with penstock.PPO(env=env, **{**SETTINGS, **settings}) as trainer:
        trainer.train(64, quiet=True)
        trainer.save(str(tmp_path / "saved"))
        weights = trainer.get_parameters()[0]
    policy = penstock.load_policy(tmp_path / "saved", **{k: v for k, v in settings.items() if k == "encoder"})
    assert all(torch.equal(weights[name], x) for name, x in policy.model.state_dict().items())
    return policy


def untrained(env: EnvSpec, **settings) -> Policy:
    observation, action, *_ = probe(env)
    algorithm = PPO(PPOConfig(env=env.name, num_workers=1, hidden_sizes=(8,), **settings), observation, action)
    torch.manual_seed(0)
    return Policy(algorithm, algorithm.build_model(), {})
