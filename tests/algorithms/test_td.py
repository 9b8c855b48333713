"""Targets, errors and schedules of learning from transitions, against numbers worked out by hand."""

import pytest
import torch
from torch import nn
from torch.nn.functional import smooth_l1_loss

from penstock.algorithms.arithmetic.td import (
    double_q_value,
    epsilon_ladder,
    half_squared,
    huber,
    largest_error,
    linear_schedule,
    max_q_value,
    polyak_,
    squared_td_error,
    target_policy_noise,
    td_target,
)

ONLINE, TARGET = torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([[10.0, 5.0, 20.0]])


def test_dqn_bootstraps_from_the_best_target_value():
    assert max_q_value(TARGET).tolist() == [20.0]


def test_double_dqn_bootstraps_from_the_target_value_of_the_action_that_the_online_network_prefers():
    assert double_q_value(ONLINE, TARGET).tolist() == [5.0]


def test_where_both_networks_agree_double_dqn_is_dqn():
    q = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(double_q_value(q, q), max_q_value(q))


def test_critics_minimise_weighted_squares_and_no_gradient_flows_into_targets():
    """Errors 1, -2 and 3, 0 with weights 1, 1/2: (1 + 2)/2 + (9 + 0)/2 = 6, of gradient w (q - y)."""
    q, y = torch.tensor([[2.0, 1.0], [4.0, 3.0]], requires_grad=True), torch.tensor([1.0, 3.0], requires_grad=True)
    loss, error = squared_td_error(q, y, torch.tensor([1.0, 0.5]))
    (3.0 * loss).backward()
    assert loss.item() == 6.0 and error.tolist() == [[1.0, -2.0], [3.0, 0.0]] and not error.requires_grad
    assert q.grad.tolist() == [[3.0, -3.0], [9.0, 0.0]] and y.grad is None
    assert largest_error(error).tolist() == [3.0, 2.0] and largest_error(error[0]).tolist() == [1.0, 2.0]


def test_the_target_is_reward_plus_discounted_value_and_the_reward_alone_after_a_termination():
    """n-step returns of rewards 1 with gamma 0.9: (2.71, 0.729) bootstraps, 2.71 + 0.729 * 10; (1.9, 0) does not."""
    target = td_target(torch.tensor([2.71, 1.9]), torch.tensor([0.729, 0.0]), torch.tensor([10.0, 10.0]))
    torch.testing.assert_close(target, torch.tensor([10.0, 1.9]))


def test_td3_bootstraps_from_the_smaller_target_critic():
    """1 + 0.99 * min(5, 4) = 4.96."""
    smaller = torch.tensor([[5.0], [4.0]]).amin(0)
    assert td_target(torch.tensor([1.0]), torch.tensor([0.99]), smaller).item() == pytest.approx(4.96)


def test_several_values_of_each_transition_have_targets_of_their_own():
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    target = td_target(torch.tensor([0.5, 0.0]), torch.tensor([1.0, 0.5]), values)
    assert target.tolist() == [[1.5, 1.0], [3.5, 2.0]]


def test_huber_is_square_near_zero_and_straight_beyond_one():
    """0.5^2 / 2 = 0.125; at 1 both give 0.5; 3 - 0.5 = 2.5. The gradient is the error, cut at 1."""
    error = torch.tensor([0.0, 0.5, -1.0, 3.0, -3.0], requires_grad=True)
    loss = huber(error)
    assert loss.tolist() == [0.0, 0.125, 0.5, 2.5, 2.5]
    loss.sum().backward()
    assert error.grad.tolist() == [0.0, 0.5, -1.0, 1.0, -1.0]


def test_half_the_square_grows_with_the_error():
    error = torch.tensor([0.5, -3.0], requires_grad=True)
    loss = half_squared(error)
    assert loss.tolist() == [0.125, 4.5]
    loss.sum().backward()
    assert error.grad.tolist() == [0.5, -3.0]


def test_huber_and_its_gradient_are_torchs():
    one = (3.0 * torch.randn(200, generator=torch.Generator().manual_seed(1))).requires_grad_()
    other = one.detach().clone().requires_grad_()
    expected = smooth_l1_loss(other, torch.zeros(200), reduction="none")
    torch.testing.assert_close(huber(one), expected)
    huber(one).sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(one.grad, other.grad)


def test_target_policy_noise_is_scaled_and_cut():
    """0.2 * 1 = 0.2; 0.2 * 3 = 0.6 is cut to 0.5."""
    noise = torch.tensor([1.0, 3.0, -3.0])
    torch.testing.assert_close(target_policy_noise(noise, 0.2, 0.5), torch.tensor([0.2, 0.5, -0.5]))
    assert noise.tolist() == [1.0, 3.0, -3.0]


def test_without_noise_the_target_policy_is_not_smoothed():
    assert (target_policy_noise(torch.randn(5, 2), 0.0, 0.5) == 0).all()


# --- exploration -----------------------------------------------------------------------------------------------------


def test_exploration_rates_of_eight_lanes():
    """With base 0.4 and exponent 7 they are 0.4^1, 0.4^2, ..., 0.4^8."""
    expected = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    assert epsilon_ladder(8) == pytest.approx(expected)


def test_a_single_lane_explores_at_the_base_rate():
    assert epsilon_ladder(1) == [0.4]
    assert epsilon_ladder(1, base=0.1) == [0.1]


def test_the_ladder_ends_at_the_base_to_the_power_of_one_plus_the_exponent():
    assert epsilon_ladder(3, base=0.5, exponent=2.0) == pytest.approx([0.5, 0.25, 0.125])


@pytest.mark.parametrize(("step", "epsilon"), [(0, 1.0), (1, 0.991), (50, 0.55), (100, 0.1), (101, 0.1), (10**9, 0.1)])
def test_a_linear_schedule_goes_straight_to_its_end_and_stays_there(step, epsilon):
    assert linear_schedule(1.0, 0.1, step, 100) == pytest.approx(epsilon)


def test_a_schedule_of_no_duration_is_at_its_end_at_once():
    assert linear_schedule(1.0, 0.1, 0, 0) == 0.1


# --- target networks -------------------------------------------------------------------------------------------------


def pair():
    torch.manual_seed(0)
    return nn.Linear(3, 4), nn.Linear(3, 4)


def test_a_target_network_follows_by_the_share_tau_in_place():
    """0.99 * 2 + 0.01 * 4 = 2.02, and again: 0.99 * 2.02 + 0.04 = 2.0398."""
    target, online = nn.Parameter(torch.tensor([2.0, 0.0])), nn.Parameter(torch.tensor([4.0, -1.0]))
    place = target.data_ptr()
    polyak_([target], [online], 0.01)
    torch.testing.assert_close(target.detach(), torch.tensor([2.02, -0.01]))
    polyak_([target], [online], 0.01)
    torch.testing.assert_close(target.detach(), torch.tensor([2.0398, -0.0199]))
    assert online.tolist() == [4.0, -1.0]
    assert target.data_ptr() == place


def test_every_tensor_of_a_target_network_follows():
    target, online = pair()
    pairs = zip(target.parameters(), online.parameters(), strict=True)
    expected = [0.75 * t.detach() + 0.25 * p.detach() for t, p in pairs]
    polyak_(list(target.parameters()), list(online.parameters()), 0.25)
    torch.testing.assert_close([t.detach() for t in target.parameters()], expected)


def test_a_move_by_all_of_the_way_makes_the_networks_equal_but_not_the_same():
    target, online = pair()
    polyak_(list(target.parameters()), list(online.parameters()), 1.0)
    assert all(torch.equal(t, p) for t, p in zip(target.parameters(), online.parameters(), strict=True))
    with torch.no_grad():
        online.weight.add_(1.0)
    assert not torch.equal(target.weight, online.weight)


def test_a_target_network_that_lacks_a_tensor_is_an_error():
    target, online = pair()
    with pytest.raises(RuntimeError):
        polyak_([target.weight], list(online.parameters()), 0.5)


# --- the parts together ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("next_value", [lambda q, target: max_q_value(target), double_q_value], ids=["dqn", "double"])
def test_a_two_state_chain_is_learned_to_its_known_values(next_value):
    """State 0: action 0 stays for 0, action 1 goes to state 1 for 1. State 1: action 0 goes back for 0, action 1
    terminates with 2. With gamma 0.5, Q(1, 1) = 2; Q(0, 1) = 1 + 0.5 * 2 = 2; Q(0, 0) = Q(1, 0) = 0.5 * 2 = 1.
    """
    state, action = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    reward, discount = torch.tensor([0.0, 1.0, 0.0, 2.0]), torch.tensor([0.5, 0.5, 0.5, 0.0])
    successor = torch.tensor([0, 1, 0, 0])
    q, target = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2, 2))
    for _ in range(20):
        polyak_([target], [q], 1.0)
        y = td_target(reward, discount, next_value(q[successor], target[successor])).detach()
        for _ in range(60):
            (gradient,) = torch.autograd.grad(huber(q[state, action] - y).sum(), q)
            q.data.sub_(0.5 * gradient)
    torch.testing.assert_close(q.detach(), torch.tensor([[1.0, 2.0], [1.0, 2.0]]), rtol=0, atol=1e-3)
