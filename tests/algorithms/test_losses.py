"""The terms of the losses, against numbers worked out by hand."""

import math

import pytest
import torch

from penstock.algorithms.arithmetic.losses import (
    approximate_kl,
    clip_fraction,
    clipped_surrogate,
    log_importance_ratio,
    masked_mean,
    normalize_advantage,
    value_error,
)


def tensor(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


# The objective min(ratio A, clip(ratio, 0.8, 1.2) A), and its slope in the ratio: A where not clipped, else 0.
@pytest.mark.parametrize(
    ("advantage", "ratio", "objective", "slope"),
    [(1.0, 0.7, 0.7, 1.0), (1.0, 1.0, 1.0, 1.0), (1.0, 1.3, 1.2, 0.0),
     (-1.0, 0.7, -0.8, 0.0), (-1.0, 1.0, -1.0, -1.0), (-1.0, 1.3, -1.3, -1.0)],
)  # fmt: skip
def test_the_surrogate_stops_paying_beyond_the_clip_range_but_never_stops_punishing(advantage, ratio, objective, slope):
    at = tensor(ratio).requires_grad_()
    value = clipped_surrogate(at, tensor(advantage), 0.8, 1.2)
    assert value.item() == pytest.approx(objective)
    assert torch.autograd.grad(value, at)[0].item() == pytest.approx(slope)


def test_at_ratio_1_the_surrogates_gradient_is_that_of_advantage_times_log_prob():
    logits = torch.randn(50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantage = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    log_prob = torch.log_softmax(logits, -1)[:, 2]
    ratio = log_importance_ratio(log_prob, log_prob.detach()).exp()
    (surrogate,) = torch.autograd.grad(clipped_surrogate(ratio, advantage, 0.8, 1.2).mean(), logits, retain_graph=True)
    (policy_gradient,) = torch.autograd.grad((advantage * log_prob).mean(), logits)
    assert torch.equal(surrogate, policy_gradient)


def test_the_ratio_stays_finite_with_a_finite_gradient_however_far_the_policies_are_apart():
    log_prob = tensor(500.0, -500.0, 0.5).requires_grad_()
    log_ratio = log_importance_ratio(log_prob, tensor(0.0, 0.0, 0.25))
    assert log_ratio.tolist() == [20.0, -20.0, 0.25]
    learn = tensor(0.0, 0.0, 1.0)
    masked_mean(clipped_surrogate(log_ratio.exp(), tensor(-1.0, 1.0, 1.0), 0.8, 1.2), learn).backward()
    assert log_prob.grad is not None and torch.isfinite(log_prob.grad).all()


def test_a_masked_mean_is_over_what_the_mask_keeps():
    assert masked_mean(tensor(1.0, 100.0, 3.0), tensor(1.0, 0.0, 1.0)).item() == 2.0


def test_a_mean_over_nothing_is_zero_with_zero_gradient():
    x = tensor(1.0, 2.0).requires_grad_()
    mean = masked_mean(x, tensor(0.0, 0.0))
    mean.backward()
    assert mean.item() == 0.0 and x.grad is not None and not x.grad.any()


def test_advantages_are_normalised_by_the_steps_that_are_learned_from_alone():
    advantage, mask = tensor(1.0, 3.0, 1e6, -50.0), tensor(1.0, 1.0, 0.0, 0.0)
    normal = normalize_advantage(advantage, mask)
    assert normal[:2].tolist() == [-1.0, 1.0]  # mean 2, deviation 1


def test_equal_advantages_and_a_single_one_become_zero_not_nan():
    assert normalize_advantage(tensor(4.0, 4.0), tensor(1.0, 1.0)).tolist() == [0.0, 0.0]
    assert normalize_advantage(tensor(4.0, 9.0), tensor(1.0, 0.0))[0].item() == 0.0
    assert torch.isfinite(normalize_advantage(tensor(4.0, 9.0), tensor(0.0, 0.0))).all()


@pytest.mark.parametrize(
    ("value", "old_value", "expected"),
    [
        (2.0, None, 0.5 * (2.0 - 1.0) ** 2),
        (0.9, 0.5, 0.5 * (0.7 - 1.0) ** 2),  # moved by 0.4, counts as 0.2: the larger error
        (0.6, 0.5, 0.5 * (0.6 - 1.0) ** 2),  # within the range
        (2.0, 1.5, 0.5 * (2.0 - 1.0) ** 2),  # moved away by 0.5: the unclipped error is the larger
    ],
)
def test_a_clipped_value_error_is_the_larger_of_both(value, old_value, expected):
    old = None if old_value is None else tensor(old_value)
    assert value_error(tensor(value), tensor(1.0), old, 0.2).item() == pytest.approx(expected)


def test_without_a_clip_range_old_values_do_not_matter():
    assert value_error(tensor(0.9), tensor(1.0), tensor(0.0), None).item() == pytest.approx(0.005)


def test_the_kl_estimate_is_zero_at_ratio_1_and_positive_elsewhere():
    kl = approximate_kl(tensor(0.0, math.log(2.0), math.log(0.5)))
    assert kl.tolist() == pytest.approx([0.0, 1.0 - math.log(2.0), -0.5 + math.log(2.0)])


def test_the_clip_fraction_counts_what_lies_outside_the_bounds_among_the_steps_kept():
    ratio, mask = tensor(0.82, 0.85, 1.19, 1.21, 9.0), tensor(1.0, 1.0, 1.0, 1.0, 0.0)
    assert clip_fraction(ratio, mask, 1 / 1.2, 1.2).item() == 0.5  # 0.82 and 1.21
    assert clip_fraction(ratio, mask, 0.8, 1.2).item() == 0.25
