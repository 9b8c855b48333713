"""Distributions as quantiles: truncated mixtures, and losses in the native core beside those in torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.quantiles import quantile_huber, truncated_mixture


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


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 70), st.integers(1, 40), st.booleans(),
       st.sampled_from([0.1, 1.0, 5.0]))  # fmt: skip
def test_loss_and_gradient_of_the_native_core_are_those_of_torch(seed, rows, count, samples, of_rows, spread):
    generator = torch.Generator().manual_seed(seed)
    theta, y = (spread * torch.randn(rows, each, generator=generator) for each in (count, samples))
    fraction = torch.rand((rows, count) if of_rows else (count,), generator=generator)
    y[0, 0], weights = theta[0, 0], torch.rand(rows, generator=generator)
    found, expected = [], []
    for results, dtype in ((found, torch.float32), (expected, torch.float64)):
        quantile = theta.to(dtype).requires_grad_()
        loss = quantile_huber(quantile, fraction.to(dtype), y.to(dtype))
        results += [loss.float(), torch.autograd.grad(loss, quantile, weights.to(dtype))[0].float()]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("of_fraction", [(1, 8), (4, 1), (1,), ()])
@pytest.mark.parametrize("rows_of_target", [1, 4])
def test_what_is_the_same_for_all_rows_or_quantiles_may_be_given_once(of_fraction, rows_of_target):
    generator = torch.Generator().manual_seed(0)
    theta, y = torch.randn(4, 8, generator=generator), torch.randn(rows_of_target, 6, generator=generator)
    fraction = torch.rand(of_fraction, generator=generator)
    expected = quantile_huber(theta.double(), fraction.double().expand(4, 8), y.double().expand(4, 6))
    torch.testing.assert_close(quantile_huber(theta, fraction, y).double(), expected, rtol=1e-5, atol=1e-6)


def test_fractions_have_a_gradient():
    fraction = torch.tensor([0.25, 0.5], requires_grad=True)
    quantile_huber(torch.tensor([[0.0, 1.0]]), fraction, torch.tensor([[3.0]])).sum().backward()
    assert fraction.grad.tolist() == pytest.approx([2.5, 1.5])


def test_threads_share_the_rows():
    generator = torch.Generator().manual_seed(0)
    theta, y = torch.randn(67, 40, generator=generator), torch.randn(67, 50, generator=generator)
    together = quantile_huber(theta, torch.rand(40), y * float("nan"))
    assert together.isnan().all()
    fraction = torch.rand(40, generator=generator)
    by_row = [quantile_huber(theta[row : row + 1], fraction, y[row : row + 1]) for row in range(67)]
    torch.testing.assert_close(quantile_huber(theta, fraction, y), torch.cat(by_row), rtol=0.0, atol=0.0)


def test_a_mixture_is_of_all_networks_atoms_and_loses_its_largest():
    """Rows (1, 4 | 2, 9) and (0, 8 | -1, 5): sorted, less the two largest."""
    atoms = torch.tensor([[[4.0, 1.0], [0.0, 8.0]], [[2.0, 9.0], [5.0, -1.0]]])
    assert truncated_mixture(atoms, 2).tolist() == [[1.0, 2.0], [-1.0, 0.0]]
    assert truncated_mixture(atoms, 0).tolist() == [[1.0, 2.0, 4.0, 9.0], [-1.0, 0.0, 5.0, 8.0]]
