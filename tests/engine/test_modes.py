"""Networks are in training mode within updates, and in evaluation mode otherwise; buffers travel with weights."""

import numpy as np
import pytest
import torch
from torch import nn

import penstock
from penstock.algorithms import load_algorithm
from penstock.nn import evaluating, sharing
from penstock.nn.modes import modules_with_modes
from tests.nn.together import in_threads

SEGMENTS = {"env": "CartPole-v1", "num_envs_per_worker": 4, "segment_length": 16}
REPLAY = {"num_envs_per_worker": 1, "learning_starts": 32, "buffer_size": 500, "batch_size": 16}
RUNS = {
    "PPO": {**SEGMENTS, "batch_size": 64, "num_epochs": 2, "rewards": "rudder", "redistributor_interval": 5},
    "IMPALA": {**SEGMENTS, "batch_size": 64, "memory": "gru", "memory_size": 8},
    "IMPACT": {**SEGMENTS, "batch_size": 64},
    "A3C": SEGMENTS,
    "PQN": {**SEGMENTS, "batch_size": 64, "num_epochs": 1},
    "DQN": {"env": "CartPole-v1", **REPLAY},
    "Rainbow": {"env": "CartPole-v1", **REPLAY},
    "R2D2": {"env": "CartPole-v1", **REPLAY, "batch_size": 4},
    "TD3": {"env": "Pendulum-v1", **REPLAY},
    "TQC": {"env": "Pendulum-v1", **REPLAY},
    "CrossQ": {"env": "Pendulum-v1", **REPLAY},
}
SERIAL = {"backend": "serial", "num_workers": 1, "seed": 3, "total_steps": 10**6, "eval_interval": 0, "run_dir": None}


class Watched(nn.Linear):
    """Encoder that notes in which mode it runs, and whether a gradient is to come of it."""

    seen: list = []  # noqa: RUF012

    def __init__(self, observation):
        super().__init__(int(np.prod(observation.shape)), 8)
        self.output_size = 8

    def forward(self, x):
        self.seen.append((self.training, torch.is_grad_enabled()))
        return super().forward(x)


class Normed(nn.Sequential):
    """Encoder with batch normalisation."""

    def __init__(self, observation):
        super().__init__(nn.Linear(observation.shape[0], 16), nn.BatchNorm1d(16), nn.ReLU())
        self.output_size = 16


class Dropping(nn.Sequential):
    """Encoder with dropout, which counts its passes in a buffer that it puts another tensor into."""

    def __init__(self, observation):
        super().__init__(nn.Linear(observation.shape[0], 16), nn.Dropout(0.5))
        self.output_size = 16
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.passes = self.passes + 1.0
        return super().forward(x)


def trained(name, encoder, updates=6, **settings):
    """A training in this process, after so many updates."""
    algo = getattr(penstock, name)(**{**SERIAL, **RUNS[name], "encoder": encoder, **settings})
    while algo.status.updates < updates:
        algo.train(64, quiet=True)
    return algo


@pytest.mark.parametrize("name", RUNS)
def test_what_brings_a_gradient_runs_in_training_mode_and_nothing_else_does(name):
    Watched.seen.clear()
    with trained(name, Watched) as algo:
        algo.evaluate(1)
    assert set(Watched.seen) == {(True, True), (False, False)}


def test_a_policy_with_dropout_or_batch_norm_answers_each_row_alike(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    for encoder in (Dropping, Normed):
        with trained("PPO", encoder, rewards="environment") as algo:
            algo.save(tmp_path / encoder.__name__)
        policy = penstock.load_policy(tmp_path / encoder.__name__, encoder=encoder)
        x = torch.from_numpy(rows)
        logits = [policy.model.evaluate(x)[0].flat for _ in range(2)]
        assert torch.equal(*logits)
        alone = torch.cat([policy.model.evaluate(row)[0].flat for row in x.split(1)])
        torch.testing.assert_close(alone, logits[0])
        assert not modules_with_modes(policy.model)[0].training


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_with_batch_norm_the_first_update_of_a_batch_finds_the_policy_that_acted(memory):
    settings = {"rewards": "environment", "num_epochs": 1, "batch_size": 64, "normalize_observations": False}
    with trained("PPO", Normed, updates=1, memory=memory, **settings) as algo:
        for updates in range(2, 6):
            algo.train(64, quiet=True)
            assert algo.status.updates == updates
            assert abs(algo.status.losses["approx_kl"]) < 1e-7
        mean = algo.get_parameters()[0]["encoder.1.running_mean"]
    assert mean.abs().max() > 0.01, "and its statistics have followed the batches"


def test_running_statistics_and_buffers_that_are_replaced_reach_those_who_act(tmp_path):
    with trained("DQN", Normed, target_period=1) as algo:
        weights = algo.get_parameters()[0]
        assert weights["encoder.1.running_mean"].abs().max() > 0.01 and weights["encoder.1.num_batches_tracked"] >= 6
    with trained("DQN", Dropping) as algo:
        assert algo.get_parameters()[0]["encoder.passes"] == algo.status.updates
    with trained("A3C", Normed) as algo:
        assert algo.get_parameters()[0]["encoder.1.num_batches_tracked"] == algo.status.updates


def test_a_target_network_takes_the_statistics_of_the_model_that_it_follows():
    from penstock.envs.spaces import ActionSpec, ObservationSpec

    kind = load_algorithm("sac")
    action = ActionSpec((1,), "float32", low=(-1.0,), high=(1.0,))
    algorithm = kind(kind.Config(env="Pendulum-v1", encoder=Normed), ObservationSpec((3,), "float32"), action)
    model = algorithm.make_model()
    penstock.nn.flatten_(model)
    algorithm.begin(model)
    with algorithm.training_mode(model):
        model.q(torch.randn(8, 3) + 5.0, torch.zeros(8, 1))
    target, own = (network.critic_encoder[1].running_mean for network in (algorithm.target, model))
    assert not torch.equal(target, own)
    algorithm.update_target(0.01)
    assert torch.equal(target, own)


def test_dropout_draws_from_a_stream_of_the_runs_own():
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        with trained("DQN", Dropping) as algo:
            found.append(algo.get_parameters()[0])
        assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_learners_of_a_group_normalise_by_the_whole_batch():
    from penstock.envs.spaces import ActionSpec, ObservationSpec

    kind = load_algorithm("dqn")
    algorithm = kind(
        kind.Config(env="CartPole-v1", encoder=Normed, num_learners=2),
        ObservationSpec((4,), "float32"), ActionSpec((), "int64", 2),
    )
    torch.manual_seed(0)
    models = [algorithm.make_model() for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    x = torch.randn(8, 4)

    def work(group):
        model = models[group.rank]
        with sharing(group), algorithm.training_mode(model):
            return model.q(x), model.encoder[1].running_mean.clone()

    alone = models[2]
    with algorithm.training_mode(alone):
        expected = alone.q(x)
    for q, mean in in_threads(2, work):
        torch.testing.assert_close(q, expected)
        torch.testing.assert_close(mean, alone.encoder[1].running_mean)


def test_targets_of_a_network_that_learns_are_computed_in_evaluation_mode():
    network = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
    with evaluating(network) as differs:
        assert differs and not network[1].training
    assert network[1].training
    with evaluating(nn.Linear(2, 2)) as differs:
        assert not differs
