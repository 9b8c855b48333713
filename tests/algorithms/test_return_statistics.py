"""Running statistics of returns: learned values keep their meaning when the statistics move."""

from __future__ import annotations

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.appo import APPO
from penstock.algorithms.bases.segment import SegmentAlgorithm, SegmentUpdater
from penstock.algorithms.ppo import PPO
from penstock.config import make_config
from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.experience.batch import Batch

GAMMA = 0.99
LANES = 16
STEPS = 200_000
QUICK = {"env": "none", "num_workers": 1, "num_envs_per_worker": LANES, "hidden_sizes": (16,), "gamma": GAMMA}


def world_without_end(algorithm: SegmentAlgorithm, model: torch.nn.Module, batch: int) -> Batch:
    """A batch of a world in which every step pays 1 and no episode ends: its true return is 1 / (1 - gamma)."""
    length, lanes = algorithm.config.segment_length, algorithm.config.segments_per_batch
    time = batch * length + torch.arange(length + 1)[:, None] + 37 * torch.arange(lanes)
    obs = torch.stack((torch.cos(time / 40.0), torch.sin(time / 40.0)), -1)
    steps = (length, lanes)
    action = torch.zeros(steps, dtype=torch.int64)
    with torch.no_grad():
        policy, _ = model.evaluate(obs[:-1])
        log_prob = policy.log_prob(action)
    never = torch.zeros(steps, dtype=torch.bool)
    return Batch(
        obs=obs, first=torch.zeros(length + 1, lanes, dtype=torch.bool), action=action, reward=torch.ones(steps),
        terminated=never, truncated=never, valid=~never, learn=torch.ones(steps), log_prob=log_prob,
        memory=torch.zeros(lanes, 0), lane=torch.arange(lanes), replayed=torch.zeros(lanes, dtype=torch.bool),
    )  # fmt: skip


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (PPO, {"segment_length": 128, "batch_size": 1024, "num_epochs": 4, "learning_rate": 1e-2}),
        (APPO, {"segment_length": 32, "batch_size": 1024, "num_epochs": 4, "learning_rate": 1e-2}),
        (A2C, {"segment_length": 20, "learning_rate": 3e-3}),
    ],
    ids=["ppo", "appo", "a2c"],
)
def test_the_mean_of_returns_never_leaves_the_range_of_true_returns(kind, settings):
    algorithm = kind(
        make_config(kind.Config, {**QUICK, **settings}), ObservationSpec((2,), "float32"),
        ActionSpec((), "int64", num_actions=2),
    )  # fmt: skip
    torch.manual_seed(0)
    model = algorithm.build_model()
    updater = SegmentUpdater(algorithm, model)
    means = []
    for number in range(STEPS // (algorithm.config.segment_length * algorithm.config.segments_per_batch)):
        batch = world_without_end(algorithm, model, number)
        updater.learn(batch)
        means.append(model.return_moments.mean.item())
    assert min(means) > 0.0 and max(means) <= 1.0 / (1.0 - GAMMA)
    assert means[-1] > 20.0  # it did learn: at first nothing is known but a step's own reward
