"""Targets and priorities of sequences: rescaled values, n steps, padding; by hand, and against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.algorithms.arithmetic.priorities import absolute_td_error, sequence_td_priority
from penstock.algorithms.arithmetic.rescaling import inverse_rescale, rescale
from penstock.algorithms.arithmetic.td import n_step_targets, sequence_priority

# ---- rescaling


def test_values_are_rescaled_by_a_square_root_and_a_thousandth():
    """h(3) = sqrt(4) - 1 + 0.003, h(-8) = -(sqrt(9) - 1) - 0.008, h(99) = sqrt(100) - 1 + 0.099."""
    x = [3.0, -8.0, 99.0, 0.0]
    expected = [1.003, -2.008, 9.099, 0.0]
    assert rescale(torch.tensor(x, dtype=torch.float64)).tolist() == pytest.approx(expected, abs=1e-12)
    assert rescale(np.array(x)).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("back", [lambda x: inverse_rescale(rescale(x)), lambda x: rescale(inverse_rescale(x))])
def test_each_is_the_inverse_of_the_other_to_rounding(back):
    x = np.concatenate([[0.0], np.logspace(-9, 6, 400)])
    x = np.concatenate([-x, x])
    np.testing.assert_allclose(back(x), x, rtol=1e-12, atol=0)
    np.testing.assert_allclose(back(torch.from_numpy(x)).numpy(), x, rtol=1e-12, atol=0)
    np.testing.assert_allclose(back(torch.from_numpy(x).float()).numpy(), x, rtol=1e-5, atol=0)


def test_the_inverse_is_the_papers_formula():
    x = torch.linspace(-50.0, 50.0, 101, dtype=torch.float64)
    eps = 1e-3
    published = x.sign() * ((((1 + 4 * eps * (x.abs() + 1 + eps)).sqrt() - 1) / (2 * eps)).square() - 1)
    torch.testing.assert_close(inverse_rescale(x), published, rtol=1e-9, atol=1e-9)


# ---- n-step targets


def column(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype).unsqueeze(1)


def test_a_five_step_target_is_the_rescaled_sum_of_rewards_and_the_discounted_value():
    """Rewards that sum to 1, gamma^5 = 0.98508973 and Q = 1.003 = h(3): h(1 + 0.98508973 * 3) = 1.2299987."""
    gamma = 0.98508973 ** (1 / 5)
    value = inverse_rescale(column([0.0, 0.0, 0.0, 0.0, 0.0, 1.003]))
    y = n_step_targets(
        column([1.0, 0.0, 0.0, 0.0, 0.0]), column([gamma] * 5), value, torch.ones(5, 1, dtype=torch.bool), 5
    )
    assert rescale(y[0]).item() == pytest.approx(1.2299987, abs=1e-7)


def test_targets_near_the_end_of_a_sequence_are_of_fewer_steps():
    """gamma 0.9, n = 3, rewards 1, values 10, 20, 30, 40, 50: 2.71 + 0.729 * 40, 2.71 + 0.729 * 50, then shorter."""
    ones = torch.ones(4, 1, dtype=torch.bool)
    y = n_step_targets(column([1.0] * 4), column([0.9] * 4), column([10.0, 20.0, 30.0, 40.0, 50.0]), ones, 3)
    expected = [2.71 + 0.729 * 40, 2.71 + 0.729 * 50, 1.9 + 0.81 * 50, 1 + 0.9 * 50]
    assert y[:, 0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("last", "expected"), [(0.0, [1.9, 1.0]), (0.9, [1.9 + 0.81 * 30, 1 + 0.9 * 30])])
def test_a_termination_ends_a_target_and_a_truncation_bootstraps_from_the_final_row(last, expected):
    """Two steps, the final row of value 30, and padding of immense values behind it."""
    valid = torch.tensor([[True], [True], [False], [False]])
    y = n_step_targets(
        column([1.0, 1.0, 7.0, 7.0]), column([0.9, last, 0.9, 0.9]), column([10.0, 20.0, 30.0, 1e8, 1e8]), valid, 3
    )
    assert y[:2, 0].tolist() == pytest.approx(expected)


def plain_targets(reward, discount, value, valid, n_step):
    """Of one sequence, step by step."""
    targets = []
    for t in range(len(reward)):
        total, factor, at = 0.0, 1.0, t
        while at < min(t + n_step, len(reward)) and valid[at]:
            total += factor * reward[at]
            factor *= discount[at]
            at += 1
        targets.append(total + factor * value[at])
    return targets


@st.composite
def sequences(draw):
    """Reward, discount, value and valid of B sequences of T rows, padded before and behind an episode's steps."""
    length, batch = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, value = random.normal(size=(length, batch)), random.normal(size=(length + 1, batch)) * 10
    discount, valid = np.full((length, batch), 0.9), np.zeros((length, batch), bool)
    for b in range(batch):
        begin = draw(st.integers(0, length - 1))
        end = draw(st.integers(begin + 1, length))
        valid[begin:end, b] = True
        if draw(st.booleans()):
            discount[end - 1, b] = 0.0
    return reward, discount, value, valid


@settings(max_examples=200)
@given(rows=sequences(), n_step=st.integers(1, 9))
def test_targets_are_those_of_a_plain_loop(rows, n_step):
    reward, discount, value, valid = rows
    y = n_step_targets(*map(torch.from_numpy, rows), n_step).numpy()
    for b in range(reward.shape[1]):
        plain = plain_targets(reward[:, b], discount[:, b], value[:, b], valid[:, b], n_step)
        np.testing.assert_allclose(y[valid[:, b], b], np.array(plain)[valid[:, b]], rtol=1e-9, atol=1e-9)


# ---- priorities


def test_a_priority_is_nine_tenths_of_the_largest_error_and_a_tenth_of_the_mean():
    """0.9 * 10 + 0.1 * (1 + 2 + 3 + 10) / 4 = 9.4, whatever the signs, and whatever stands in padding."""
    error = torch.tensor([[1.0, 1.0], [-2.0, -2.0], [3.0, 3.0], [-10.0, -10.0], [0.0, 99.0]])
    mask = torch.tensor([[True] * 2] * 4 + [[False] * 2])
    assert sequence_priority(error, mask, 0.9).tolist() == pytest.approx([9.4, 9.4])
    assert sequence_priority(error, mask, 0.0).tolist() == pytest.approx([4.0, 4.0])
    assert sequence_priority(error, torch.zeros_like(mask), 0.9).tolist() == [0.0, 0.0]


@settings(max_examples=100)
@given(rows=sequences(), n_step=st.integers(1, 5), burn_in=st.integers(0, 3), rescaled=st.booleans())
def test_first_priorities_are_those_that_a_learner_of_the_same_values_finds(rows, n_step, burn_in, rescaled):
    reward, discount, max_value, valid = rows
    burn_in = min(burn_in, len(reward) - 1)
    value = np.random.default_rng(0).normal(size=max_value.shape)
    bootstrap = torch.from_numpy(max_value)
    y = n_step_targets(
        torch.from_numpy(reward), torch.from_numpy(discount), inverse_rescale(bootstrap) if rescaled else bootstrap,
        torch.from_numpy(valid), n_step,
    )  # fmt: skip
    error = torch.from_numpy(value[:-1]) - (rescale(y) if rescaled else y)
    counts = torch.from_numpy(valid)
    expected = sequence_priority(error[burn_in:], counts[burn_in:], 0.9).numpy()
    more = {"reward": reward, "discount": discount, "valid": valid}  # with an unused last row
    arrays = {name: np.concatenate([array, np.zeros_like(array[:1])]) for name, array in more.items()}
    arrays |= {"value": value, "max_value": max_value}
    order = ("reward", "discount", "value", "max_value", "valid")
    found = sequence_td_priority(
        *(arrays[name].T for name in order), n_step=n_step, burn_in=burn_in, eta=0.9, rescaled=rescaled
    )
    is_known = valid[burn_in:].any(0)
    np.testing.assert_allclose(found[is_known], expected[is_known], rtol=1e-5)
    assert np.isnan(found[~is_known]).all()


def test_errors_that_need_an_unknown_value_count_nowhere():
    """Three steps and a truncation: with n = 1 the last error is not known, and the others are 1 and 3."""
    priority = sequence_td_priority(
        np.float32([[1.0, 3.0, 5.0, 0.0]]), np.float32([[0.5] * 4]), np.zeros((1, 4), np.float32),
        np.float32([[0.0, 0.0, 0.0, np.nan]]), np.array([[True, True, True, False]]),
        n_step=1, burn_in=0, eta=0.9, rescaled=False,
    )  # fmt: skip
    assert priority.tolist() == pytest.approx([0.9 * 3.0 + 0.1 * 2.0])


def test_the_first_priority_of_a_transition_may_be_of_rescaled_values():
    """h(1 + 0.5 * h^-1(1.003)) - 0.25 = h(2.5) - 0.25."""
    arrays = (np.array([1.0]), np.array([0.5]), np.array([0.25]), np.array([1.003]))
    assert absolute_td_error(*arrays, rescaled=True) == pytest.approx([3.5**0.5 - 1 + 0.0025 - 0.25])
    assert absolute_td_error(*arrays) == pytest.approx([1 + 0.5 * 1.003 - 0.25])
