"""Noisy layers: factorised noise of the paper's moments, an argument of each pass and no part of the weights."""

import math

import pytest
import torch
from torch import nn

from penstock.nn import NoisyLinear, WeightsLayout
from penstock.nn.noisy import TABLE_SIZE, draw_noise, noise_of_lanes

INPUTS, OUTPUTS = 6, 3


def layer(inputs=INPUTS, outputs=OUTPUTS, sigma=0.5):
    torch.manual_seed(0)
    return NoisyLinear(inputs, outputs, sigma)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_pass_is_that_of_the_weights_with_the_product_of_the_noise_added():
    noisy, x, noise = layer(), torch.randn(4, INPUTS), draw_noise(INPUTS + OUTPUTS, seeded())
    eps_weight = torch.outer(noise[INPUTS:], noise[:INPUTS])
    weight, bias = noisy.weight + noisy.sigma_weight * eps_weight, noisy.bias + noisy.sigma_bias * noise[INPUTS:]
    torch.testing.assert_close(noisy(x, noise), nn.functional.linear(x, weight, bias))


def test_rows_may_have_noise_each_of_its_own():
    noisy, x = layer(), torch.randn(2, INPUTS)
    noise = torch.stack([draw_noise(noisy.noise_size, seeded(seed)) for seed in (1, 2)])
    together = noisy(x, noise)
    torch.testing.assert_close(together, torch.stack([noisy(x[i], noise[i]) for i in range(2)]))
    assert not torch.allclose(noisy(x[:1], noise[1:]), together[:1])


def test_without_noise_it_is_the_linear_layer_of_its_mean_weights():
    noisy, x = layer(), torch.randn(4, INPUTS)
    assert torch.equal(noisy(x), nn.functional.linear(x, noisy.weight, noisy.bias))


def test_means_start_within_the_root_of_the_inputs_and_sigmas_those_of_biases_too_at_their_share_of_it():
    """Of 100 inputs: means uniform within 1/10, sigmas 0.5/10. The outputs, 400, do not matter."""
    noisy = layer(100, 400)
    means = torch.cat((noisy.weight.flatten(), noisy.bias))
    assert 0.0995 < means.abs().max() <= 0.1
    assert means.std().item() == pytest.approx(0.1 / math.sqrt(3), rel=0.02)
    assert (noisy.sigma_weight == 0.05).all() and (noisy.sigma_bias == 0.05).all()


def drawn(count, size):
    made = seeded()
    return torch.stack([draw_noise(size, made) for _ in range(count)])


def of_lanes(count, size):
    return noise_of_lanes(torch.rand(count, 1, generator=seeded()), size)


@pytest.mark.parametrize("draws", [drawn, of_lanes], ids=["of passes", "of lanes"])
def test_noise_has_the_moments_of_the_paper(draws):
    """``Var f(e) = E |e| = sqrt(2/pi)``, and of a weight's noise, a product of two, ``2/pi = 0.63662``."""
    noise = draws(20_000, 8).double()
    weights = noise[:, :4] * noise[:, 4:]
    assert noise.mean().abs() < 0.01 and weights.mean().abs() < 0.01
    assert noise.var().item() == pytest.approx(math.sqrt(2 / math.pi), rel=0.01)
    assert weights.var().item() == pytest.approx(2 / math.pi, rel=0.02)
    assert (torch.corrcoef(noise.T) - torch.eye(8)).abs().max() < 0.03


def test_a_lanes_noise_comes_of_its_number_alone():
    number = torch.tensor([[0.0], [0.25], [1.0 - 2.0**-24], [0.25]])
    noise = noise_of_lanes(number, 50)
    assert noise.shape == (4, 50) and torch.equal(noise[1], noise[3])
    assert len({tuple(row.tolist()) for row in noise}) == 3
    assert torch.equal(noise_of_lanes(number[2:3], 50), noise[2:3])


def test_neighbouring_numbers_have_other_noise_in_every_place():
    noise = noise_of_lanes(torch.tensor([[0.5], [0.5 + 1.0 / TABLE_SIZE]]), 50)
    assert (noise[0] != noise[1]).all()


def test_gradients_reach_means_and_sigmas():
    noisy = layer()
    noisy(torch.randn(4, INPUTS), draw_noise(noisy.noise_size, seeded())).square().sum().backward()
    for name, parameter in noisy.named_parameters():
        assert (parameter.grad != 0).all(), name


def test_noise_is_no_part_of_the_weights():
    noisy = layer()
    noisy(torch.randn(1, INPUTS), noise_of_lanes(torch.rand(1, 1), noisy.noise_size))
    assert list(noisy.state_dict()) == ["weight", "bias", "sigma_weight", "sigma_bias"]
    assert not list(noisy.buffers())
    assert WeightsLayout(noisy).nbytes == 2 * (WeightsLayout(nn.Linear(INPUTS, OUTPUTS)).nbytes)


def test_one_noise_for_many_rows_gives_the_outputs_and_gradients_of_few_rows(monkeypatch):
    noisy, x = layer(), torch.randn(200, 3, INPUTS)
    noise = draw_noise(INPUTS + OUTPUTS, seeded()).unsqueeze(0)
    found = []
    for many in (600, 601):  # rows
        monkeypatch.setattr("penstock.nn.noisy.MANY_ROWS", many)
        y = noisy(x, noise)
        found.append((y, *torch.autograd.grad(y.square().sum(), list(noisy.parameters()))))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
