"""Distributions of returns: their projection onto atoms, and the distances that are learned by."""

import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.distributional import categorical_kl, categorical_projection
from tests.algorithms.projecting import projected_plainly

ATOMS = torch.arange(5.0)  # 0 to 4
PROBABILITY = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]])


@pytest.mark.parametrize(
    ("reward", "discount", "expected"),
    [
        (0.5, 0.5, [0.05, 0.45, 0.45, 0.05, 0.0]),  # 0.5, 1, 1.5, 2, 2.5: the mean, 1.5, stays
        (0.25, 0.0, [0.75, 0.25, 0.0, 0.0, 0.0]),
        (10.0, 0.0, [0.0, 0.0, 0.0, 0.0, 1.0]),
        (-3.0, 1.0, [0.9, 0.1, 0.0, 0.0, 0.0]),  # -3, -2, -1, 0 and 1
        (1.0, 1.0, [0.0, 0.1, 0.2, 0.4, 0.3]),  # every return is an atom
        (0.0, 1.0, PROBABILITY[0].tolist()),
    ],
)
def test_a_distribution_is_projected_onto_atoms_by_golden_rows(reward, discount, expected):
    projected = categorical_projection(reward + discount * ATOMS.unsqueeze(0), PROBABILITY, ATOMS)
    torch.testing.assert_close(projected, torch.tensor([expected]))


@example(pairs=[(3.0, 1.0)], num_atoms=8, low=0.0, width=2.453125)  # the last atom, by division, lies behind the last
@given(
    st.lists(st.tuples(st.floats(-8, 8), st.floats(0.01, 1)), min_size=1, max_size=7),
    st.integers(2, 9), st.floats(-5, 4), st.floats(0.5, 6),
)  # fmt: skip
def test_a_projection_keeps_all_mass_and_where_nothing_is_cut_off_the_mean(pairs, num_atoms, low, width):
    atoms = torch.linspace(low, low + width, num_atoms, dtype=torch.float64)
    returns = torch.tensor([[x for x, _ in pairs]], dtype=torch.float64)
    probability = torch.tensor([[p for _, p in pairs]], dtype=torch.float64)
    probability = probability / probability.sum()
    projected = categorical_projection(returns, probability, atoms)
    expected = projected_plainly(returns[0].tolist(), probability[0].tolist(), atoms.tolist())
    assert projected[0].tolist() == pytest.approx(expected, abs=1e-9)
    assert projected.sum().item() == pytest.approx(1.0) and (projected >= 0).all()
    inside = returns.clamp(atoms[0], atoms[-1])
    assert (projected * atoms).sum().item() == pytest.approx((inside * probability).sum().item(), abs=1e-9)


def test_rows_are_projected_each_for_itself():
    returns = torch.tensor([[0.0, 1.0], [3.5, 9.0]])
    probability = torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    rows = [categorical_projection(returns[i : i + 1], probability[i : i + 1], ATOMS) for i in range(2)]
    assert torch.equal(categorical_projection(returns, probability, ATOMS), torch.cat(rows))


def test_the_divergence_is_the_cross_entropy_less_the_targets_entropy_and_has_the_same_gradient():
    """(1/2) ln 2 + (1/2) ln(2/3) = 0.143841; where the target has no mass nothing is added, and at it all is 0."""
    target = torch.tensor([[0.5, 0.5], [0.0, 1.0]])
    probability = torch.tensor([[0.25, 0.75], [0.5, 0.5]])
    assert categorical_kl(target, probability.log()).tolist() == pytest.approx([0.143841, math.log(2)], abs=1e-6)
    assert categorical_kl(probability, probability.log()).tolist() == pytest.approx([0.0, 0.0], abs=1e-7)

    logits = torch.tensor([[0.3, -1.0], [2.0, 0.0]], requires_grad=True)
    (found,) = torch.autograd.grad(categorical_kl(target, logits.log_softmax(1)).sum(), logits)
    (expected,) = torch.autograd.grad(-(target * logits.log_softmax(1)).sum(), logits)
    torch.testing.assert_close(found, expected)
