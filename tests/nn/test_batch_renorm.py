"""Batch renormalisation: plain at first, held near the running moments later, and by these outside learning."""

import copy

import pytest
import torch
from torch import nn

from penstock.envs.spaces import ActionSpec
from penstock.nn import NetworkConfig, NormalizedActorCritic, WeightsLayout, flatten_, update_moments
from penstock.nn.batch_renorm import EPSILON, WARM_UP, BatchRenorm
from tests.nn.plain import IMAGE, VECTOR, observations

N = 16
TORQUE = ActionSpec((2,), "float32", low=(-2.0,) * 2, high=(2.0,) * 2)


def rows(*shape, seed=0):
    return 3.0 + 2.0 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def actions(count, seed=0):
    return 2.0 * torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) - 1.0


def network(observation=VECTOR, **config):
    torch.manual_seed(0)
    settings = NetworkConfig(**{"hidden_sizes": (16, 8), "activation": "relu", **config})
    return NormalizedActorCritic(observation, TORQUE, settings, num_critics=2, critic_sizes=(12, 6))


def test_at_first_it_is_plain_batch_normalisation():
    norm, plain = BatchRenorm((1, 4)), nn.BatchNorm1d(4, eps=EPSILON, momentum=0.01)
    for seed in range(3):
        x = rows(N, 4, seed=seed).requires_grad_()
        found, expected = norm(x), plain(x)
        torch.testing.assert_close(found, expected)
        weight = rows(N, 4, seed=9)
        gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)
        norm.update_moments()
    torch.testing.assert_close(norm.mean[0], plain.running_mean)
    assert norm.batches == 3


def test_outside_learning_rows_are_normalised_by_the_running_moments_each_by_itself():
    norm = BatchRenorm((1, 4))
    norm(rows(N, 4))
    norm.update_moments()
    norm.eval()
    x = rows(5, 4, seed=1)
    torch.testing.assert_close(norm(x), (x - norm.mean) / (norm.var + EPSILON).sqrt())
    torch.testing.assert_close(torch.cat([norm(row) for row in x.split(1)]), norm(x))
    variance, mean = torch.var_mean(rows(N, 4), 0, correction=0)
    torch.testing.assert_close(norm.mean[0], 0.01 * mean)
    torch.testing.assert_close(norm.var[0], 0.99 + 0.01 * variance)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        # Running mean 1, deviation 2. Batch mean 10, deviation 10: r = min(5, 3), d = 4.5, so -3 + 4.5 and 3 + 4.5.
        ([0.0, 20.0], [1.5, 7.5]),
        # Batch mean 21, deviation 1: r = 0.5, d = min(10, 5), so 5 - 0.5 and 5 + 0.5.
        ([20.0, 22.0], [4.5, 5.5]),
        # Batch mean -19, deviation 0.2: r = max(0.1, 1/3), d = max(-10, -5), so -5 - 1/3 and -5 + 1/3.
        ([-19.2, -18.8], [-5.3333, -4.6667]),
    ],
)
def test_once_warm_a_batch_is_held_near_the_running_moments(x, expected):
    norm = BatchRenorm((1, 1))
    norm.mean.fill_(1.0)
    norm.var.fill_(4.0 - EPSILON)
    inputs = torch.tensor(x).unsqueeze(1)
    spread = (inputs.var(0, correction=0) / (inputs.var(0, correction=0) + EPSILON)).sqrt().item()
    norm.batches.fill_(WARM_UP - 1)
    torch.testing.assert_close(norm(inputs).flatten(), torch.tensor([-spread, spread]))
    norm.update_moments()
    norm.mean.fill_(1.0)
    norm.var.fill_(4.0 - EPSILON)
    assert norm(inputs).flatten().tolist() == pytest.approx(expected, abs=0.01)


def test_moments_follow_only_when_they_are_told_to():
    norm = BatchRenorm((1, 4))
    before = copy.deepcopy(norm.state_dict())
    norm(rows(N, 4))
    norm.eval()(rows(N, 4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())
    update_moments(nn.Sequential(norm))
    assert not torch.equal(norm.mean, before["mean"])


def test_both_ends_of_transitions_are_normalised_by_the_moments_of_both():
    q_network, obs, next_obs = network(), rows(N, *VECTOR.shape), rows(N, *VECTOR.shape, seed=1)
    action, next_action = actions(N), actions(N, seed=1)
    q, next_q = q_network.joint_q(obs, action, next_obs, next_action)
    assert q.shape == next_q.shape == (2, N)
    x = torch.cat((torch.cat((obs, next_obs)), torch.cat((action, next_action))), 1)
    critics = q_network.critics
    for critic in range(2):
        h = x
        for layer in (*critics.hidden, critics.head):
            variance, mean = torch.var_mean(h, 0, correction=0)
            h = (h - mean) / (variance + EPSILON).sqrt()
            h = h @ layer.weight[critic] + layer.bias[critic]
            h = h.relu() if layer is not critics.head else h
        torch.testing.assert_close(torch.cat((q[critic], next_q[critic])), h.squeeze(1), atol=1e-4, rtol=1e-4)
    alone, _ = q_network.joint_q(obs, action, obs, action)
    assert not torch.allclose(alone, q, atol=1e-2)


@pytest.mark.parametrize("observation", [VECTOR, IMAGE], ids=["vector", "image"])
def test_a_policy_acts_by_the_running_moments_that_travel_with_its_weights(observation):
    learner, actor = network(observation), network(observation)
    for module in learner.modules():
        if isinstance(module, BatchRenorm):
            module.mean.normal_()
            module.var.uniform_(0.5, 2.0)
    weights, copied = flatten_(learner), flatten_(actor)
    assert len(weights) == WeightsLayout(actor).nbytes
    copied.copy_(weights)
    x = observations(observation, 5)
    actor.eval()
    learner.eval()
    assert torch.equal(actor.policy(x).mean, learner.policy(x).mean)
    torch.testing.assert_close(torch.cat([actor.policy(row).mean for row in x.split(1)]), actor.policy(x).mean)
    if observation is VECTOR:
        by_running_moments = actor.policy(x).mean
        assert not torch.allclose(actor.train().policy(x).mean, by_running_moments, atol=1e-2)


def test_the_first_critic_alone_is_the_first_of_all():
    q_network, x = network().eval(), observations(VECTOR, 5)
    torch.testing.assert_close(q_network.q1(x, actions(5)), q_network.q(x, actions(5))[0])
