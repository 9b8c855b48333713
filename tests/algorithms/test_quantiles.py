"""Distributions as quantiles: cut mixtures, and a loss that looks at no pair, beside one that looks at each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.quantiles import quantile_huber, quantile_huber_of_sorted, truncated_mixture


@pytest.mark.parametrize(
    ("theta", "tau", "y", "expected"),
    [
        (0.0, 0.25, 2.0, 0.25 * 1.5),  # below the target: weighed by tau, Huber(2) = 1.5
        (0.0, 0.25, -2.0, 0.75 * 1.5),  # above it: by 1 - tau
        (0.0, 0.25, 0.5, 0.25 * 0.125),
        (0.5, 0.9, 0.5, 0.0),
    ],
)
def test_an_error_of_a_quantile_is_weighed_by_its_fraction_on_one_side_and_by_the_rest_on_the_other(
    theta, tau, y, expected
):
    loss = quantile_huber(torch.tensor([[theta]]), torch.tensor([tau]), torch.tensor([[y]]))
    assert loss.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("fractions_of_rows", [False, True])
def test_the_quantile_loss_is_a_sum_over_quantiles_of_a_mean_over_targets(fractions_of_rows):
    generator = torch.Generator().manual_seed(0)
    theta, y = 2.0 * torch.randn(3, 4, generator=generator), 2.0 * torch.randn(3, 6, generator=generator)
    fraction = torch.rand((3, 4) if fractions_of_rows else (4,), generator=generator)
    expected = []
    for b in range(3):
        tau = fraction[b] if fractions_of_rows else fraction
        total = 0.0
        for i in range(4):
            for j in range(6):
                error = (y[b, j] - theta[b, i]).item()
                huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
                total += abs(tau[i].item() - (error < 0)) * huber / 6
        expected.append(total)
    assert quantile_huber(theta, fraction, y).tolist() == pytest.approx(expected, rel=1e-5)


def test_descending_the_quantile_loss_finds_the_quantiles():
    """Of returns 0, 10, 20 ... 100, far apart beside the threshold of 1: those at 0.25 and 0.75 are near 25 and 75."""
    theta = torch.full((1, 2), 50.0, requires_grad=True)
    y = torch.arange(0.0, 101.0, 10.0).unsqueeze(0)
    for _ in range(4_000):
        (gradient,) = torch.autograd.grad(quantile_huber(theta, torch.tensor([0.25, 0.75]), y).sum(), theta)
        theta = (theta - 0.5 * gradient).detach().requires_grad_()
    low, high = theta[0].tolist()
    assert 19.0 <= low <= 31.0 and 69.0 <= high <= 81.0


def of_all_pairs(quantiles, samples):
    """The same by `quantile_huber`, a network at a time."""
    tau = (torch.arange(quantiles.shape[2]) + 0.5) / quantiles.shape[2]
    return torch.stack([quantile_huber(each, tau, samples) for each in quantiles])


def test_the_loss_of_sorted_samples_has_the_golden_value():
    """Quantiles 0 (tau 1/4) and 1 (tau 3/4), samples 0.5 and 3.

    0: 1/4 (0.5^2 / 2) and 1/4 (3 - 0.5); 1: 1/4 (0.5^2 / 2) and 3/4 (2 - 0.5). Each quantile has the mean of two.
    """
    loss = quantile_huber_of_sorted(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[0.5, 3.0]]))
    assert loss.shape == (1, 1) and loss.item() == pytest.approx(0.90625)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7),
       st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from([0.0, -1_000.0]))  # fmt: skip
def test_loss_and_gradient_are_those_of_all_pairs(seed, networks, rows, count, samples, spread, center):
    generator = torch.Generator().manual_seed(seed)
    quantiles = (center + spread * torch.randn(networks, rows, count, generator=generator)).requires_grad_()
    y = (center + spread * torch.randn(rows, samples, generator=generator)).sort(1).values
    found, expected = quantile_huber_of_sorted(quantiles, y), of_all_pairs(quantiles, y)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), quantiles)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), quantiles)[0], rtol=1e-4, atol=1e-5)


def test_samples_that_are_all_alike_are_any_number_of_them():
    """As after a termination, where every atom of the target is the reward."""
    quantiles = torch.tensor([[[-3.0, 0.5, 1.0]]])
    one = quantile_huber_of_sorted(quantiles, torch.tensor([[1.0]]))
    torch.testing.assert_close(quantile_huber_of_sorted(quantiles, torch.ones(1, 5)), one)
    torch.testing.assert_close(one, of_all_pairs(quantiles, torch.tensor([[1.0]])))


def test_a_mixture_is_of_all_networks_atoms_and_loses_its_largest():
    """Rows (1, 4 | 2, 9) and (0, 8 | -1, 5): sorted, less the two largest."""
    atoms = torch.tensor([[[4.0, 1.0], [0.0, 8.0]], [[2.0, 9.0], [5.0, -1.0]]])
    assert truncated_mixture(atoms, 2).tolist() == [[1.0, 2.0], [-1.0, 0.0]]
    assert truncated_mixture(atoms, 0).tolist() == [[1.0, 2.0, 4.0, 9.0], [-1.0, 0.0, 5.0, 8.0]]
