"""Distributions as quantiles: cut mixtures, and a loss that looks at no pair, beside one that looks at each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.quantiles import quantile_huber, truncated_mixture


def by_pairs(quantiles, samples):
    """The definition: mean over quantiles and samples of ``|tau_m - 1{u < 0}| Huber(u)``."""
    count = quantiles.shape[-1]
    tau = (2.0 * torch.arange(1, count + 1) - 1.0) / (2.0 * count)
    error = samples[:, None, :] - quantiles[..., None]
    huber = torch.where(error.abs() <= 1.0, 0.5 * error.square(), error.abs() - 0.5)
    return ((tau[:, None] - (error < 0.0).float()).abs() * huber).mean((-1, -2))


def test_the_loss_has_the_golden_value():
    """Quantiles 0 (tau 1/4) and 1 (tau 3/4), samples 0.5 and 3.

    0: 1/4 (0.5^2 / 2) and 1/4 (3 - 0.5); 1: 1/4 (0.5^2 / 2) and 3/4 (2 - 0.5). Mean of 0.03125, 0.625, 0.03125, 1.125.
    """
    loss = quantile_huber(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[0.5, 3.0]]))
    assert loss.shape == (1, 1) and loss.item() == pytest.approx(0.453125)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7),
       st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.0, -1_000.0]))  # fmt: skip
def test_loss_and_gradient_are_those_of_all_pairs(seed, networks, rows, count, samples, spread, center):
    generator = torch.Generator().manual_seed(seed)
    quantiles = (center + spread * torch.randn(networks, rows, count, generator=generator)).requires_grad_()
    y = (center + spread * torch.randn(rows, samples, generator=generator)).sort(1).values
    found, expected = quantile_huber(quantiles, y), by_pairs(quantiles, y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), quantiles)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), quantiles)[0], rtol=1e-4, atol=1e-5)


def test_samples_that_are_all_alike_are_any_number_of_them():
    """As after a termination, where every atom of the target is the reward."""
    quantiles = torch.tensor([[[-3.0, 0.5, 1.0]]])
    one = quantile_huber(quantiles, torch.tensor([[1.0]]))
    torch.testing.assert_close(quantile_huber(quantiles, torch.ones(1, 5)), one)
    torch.testing.assert_close(one, by_pairs(quantiles, torch.tensor([[1.0]])))


def test_a_mixture_is_of_all_networks_atoms_and_loses_its_largest():
    """Rows (1, 4 | 2, 9) and (0, 8 | -1, 5): sorted, less the two largest."""
    atoms = torch.tensor([[[4.0, 1.0], [0.0, 8.0]], [[2.0, 9.0], [5.0, -1.0]]])
    assert truncated_mixture(atoms, 2).tolist() == [[1.0, 2.0], [-1.0, 0.0]]
    assert truncated_mixture(atoms, 0).tolist() == [[1.0, 2.0, 4.0, 9.0], [-1.0, 0.0, 5.0, 8.0]]
