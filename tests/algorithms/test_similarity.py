"""Distances between features: what is nearer is smaller, for each of them."""

import pytest
import torch

from penstock.algorithms.arithmetic.similarity import Projection, change, remoteness

T, M, F = 5, 7, 4
ALL = torch.ones(T, M, dtype=torch.bool)


def features(seed=0):
    return torch.randn(T, M, F, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("distance", ["ln_norm", "cosine", "kl"])
def test_what_has_not_changed_is_nearest_and_more_change_is_farther(distance):
    then, noise = features(), features(1)
    steps = torch.linspace(0.0, 1.2, M).view(1, M, 1)
    found = change(then + steps * noise[:, :1], then.clone().copy_(then[:, :1]), ALL, distance)
    same = change(then, then, ALL, distance)
    torch.testing.assert_close(same, torch.zeros(M), atol=1e-5, rtol=0)
    spread = change(then[:, :1] + steps * noise[:, :1], then[:, :1].expand(T, M, F), ALL, distance)
    assert (spread.diff() > 0).all() and found.shape == (M,)


def test_the_distances_are_those_of_their_definitions():
    now, then = features(), features(1)
    a, b = now[:, 2], then[:, 2]
    norm = (a - b).abs().pow(3).sum() ** (1 / 3)
    assert change(now, then, ALL, "ln_norm", 3.0)[2].item() == pytest.approx(norm.item(), rel=1e-5)
    cosine = (a * b).sum() / (a.norm() * b.norm())
    assert change(now, then, ALL, "cosine")[2].item() == pytest.approx(1.0 - cosine.item(), rel=1e-5)
    kl = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=a), torch.distributions.Categorical(logits=b)
    )
    assert change(now, then, ALL, "kl")[2].item() == pytest.approx(kl.sum().item(), rel=1e-5)


@pytest.mark.parametrize("distance", ["ln_norm", "cosine", "kl"])
def test_rows_that_are_not_real_count_nowhere(distance):
    now, then, valid = features(), features(1), ALL.clone()
    valid[3:] = False
    changed = now.clone()
    changed[3:] = 1e3
    here = features(2)[0, :2]
    torch.testing.assert_close(change(changed, then, valid, distance), change(now, then, valid, distance))
    torch.testing.assert_close(
        remoteness(changed, valid, here, distance), remoteness(now[:3], valid[:3], here, distance)
    )


@pytest.mark.parametrize("distance", ["ln_norm", "cosine", "kl"])
def test_states_that_are_where_the_lanes_are_are_nearest(distance):
    states, here = features(), features(2)[0, :2]
    states[:, 4] = here.mean(0) + 0.01 * states[:, 4]
    found = remoteness(states, ALL, here, distance)
    assert found.shape == (M,) and found.argmin().item() == 4
    one = remoteness(states[2:3], ALL[2:3], states[2, 5:6], distance)
    torch.testing.assert_close(one[5], torch.tensor(0.0), atol=1e-5, rtol=0)
    assert (one.sum() - one[5]) > 0


def test_a_projection_is_fixed_and_keeps_distances_on_the_whole():
    project, one_of_each = Projection(64, seed=3), torch.eye(512)
    matrix = project(one_of_each)
    assert torch.equal(matrix, Projection(64, seed=3)(one_of_each))
    assert not torch.equal(matrix, Projection(64, seed=4)(one_of_each))
    one, other = torch.randn(2, 512, generator=torch.Generator().manual_seed(0))
    far, near = project(one - other), project(0.1 * one)
    assert far.norm() > 3 * near.norm()


def test_without_a_width_features_are_as_they_are():
    states = features()
    assert Projection(0, seed=3)(states) is states
