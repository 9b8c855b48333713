"""Fixed points of V-trace on a small Markov decision process whose values are known by linear algebra.

All paths of three steps are enumerated and weighted by how probable they are under the behaviour policy mu, so that a
sweep, which moves every state's value to its mean target, is exact and without noise. By theorem 1 of arXiv:1802.01561
sweeps converge to the value of the policy pi_rho, proportional to min(rho_bar mu, pi): somewhere between mu and pi.
"""

import itertools
import math

import pytest
import torch

from penstock.algorithms.arithmetic.returns import vtrace

GAMMA, STEPS, SWEEPS = 0.8, 3, 500
STATES, ACTIONS = 3, 2
# Indexed by state, action, next state. Action 0 tends to stay, action 1 to go on.
TRANSITION = torch.tensor(
    [[[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]],
     [[0.1, 0.8, 0.1], [0.2, 0.1, 0.7]],
     [[0.0, 0.3, 0.7], [0.9, 0.0, 0.1]]], dtype=torch.float64,
)  # fmt: skip
REWARD = torch.tensor([[0.0, 1.0], [-1.0, 2.0], [0.5, -2.0]], dtype=torch.float64)  # by state, action
MU = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]], dtype=torch.float64)  # by state, action
PI = torch.tensor([[0.1, 0.9], [0.3, 0.7], [0.9, 0.1]], dtype=torch.float64)
LOG_RATIO = (PI / MU).log()


def policy_value(policy):
    """``V = (I - gamma P)^-1 r`` under `policy`."""
    transition = torch.einsum("sa,san->sn", policy, TRANSITION)
    reward = (policy * REWARD).sum(1)
    return torch.linalg.solve(torch.eye(STATES, dtype=torch.float64) - GAMMA * transition, reward)


def between(rho_bar):
    """The policy whose value V-trace learns."""
    weight = torch.minimum(rho_bar * MU, PI)
    return weight / weight.sum(1, keepdim=True)


def all_paths():
    """Every path of `STEPS` steps: states ``[T + 1, B]``, actions ``[T, B]``, and probabilities under mu ``[B]``."""
    choices = [range(STATES), *[range(ACTIONS), range(STATES)] * STEPS]
    rows = torch.tensor(list(itertools.product(*choices))).T
    state, action = rows[::2], rows[1::2]
    probability = (MU[state[:-1], action] * TRANSITION[state[:-1], action, state[1:]]).prod(0)
    return state, action, probability


STATE, ACTION, PROBABILITY = all_paths()


def returns(value, log_ratio=LOG_RATIO, **settings):
    """V-trace's targets and advantages on all paths when states are worth `value`: twice ``[T, B]``."""
    never = torch.zeros(ACTION.shape, dtype=torch.bool)
    reward, ratio = REWARD[STATE[:-1], ACTION], log_ratio[STATE[:-1], ACTION]
    return vtrace(reward, value[STATE], never, never, ratio, gamma=GAMMA, **settings)


def sweep(value, **settings):
    """The mean target of each state, over the paths that begin there."""
    target, _ = returns(value, **settings)
    return torch.zeros_like(value).index_add(0, STATE[0], PROBABILITY * target[0])


def swept(sweeps=SWEEPS, **settings):
    """Values of the states after a number of sweeps, from zero."""
    value = torch.zeros(STATES, dtype=torch.float64)
    for _ in range(sweeps):
        value = sweep(value, **settings)
    return value


def distance(one, other):
    return (one - other).abs().max().item()


@pytest.mark.parametrize("lambda_", [1.0, 0.5])
@pytest.mark.parametrize("rho_bar", [1.0, 2.0, math.inf])
def test_targets_lead_to_the_value_of_the_policy_that_rho_bar_chooses(rho_bar, lambda_):
    expected = policy_value(PI) if rho_bar == math.inf else policy_value(between(rho_bar))
    assert distance(swept(rho_bar=rho_bar, lambda_=lambda_), expected) < 1e-9


def test_the_policies_in_question_differ_so_much_that_no_value_is_mistaken_for_another():
    values = [policy_value(policy) for policy in (MU, between(1.0), between(2.0), PI)]
    assert min(distance(one, other) for one, other in itertools.combinations(values, 2)) > 0.2


def test_with_ratios_left_out_targets_lead_to_the_value_of_the_behaviour_policy():
    found = swept(log_ratio=torch.zeros_like(LOG_RATIO))
    assert distance(found, policy_value(MU)) < 1e-9
    assert distance(found, policy_value(PI)) > 3.0


def test_c_bar_decides_how_fast_values_come_there_and_not_where():
    end = policy_value(between(2.0))
    assert distance(swept(rho_bar=2.0, c_bar=0.25), end) < 1e-9
    slow, fast = (distance(swept(12, rho_bar=2.0, c_bar=c_bar), end) for c_bar in (0.25, 1.0))
    assert 1e-3 < fast < 0.7 * slow


@pytest.mark.parametrize("rho_pg_bar", [1.0, math.inf])
def test_once_there_the_advantage_of_an_action_is_its_ratio_times_what_it_is_worth_more_than_its_state(rho_pg_bar):
    """Section 4.2: the gradient follows ``min(rho_pg_bar, pi/mu) (Q - V)``, with Q and V of the policy learned."""
    value = policy_value(between(1.0))
    action_value = REWARD + GAMMA * TRANSITION @ value
    _, advantage = returns(value, rho_pg_bar=rho_pg_bar)
    weight = torch.zeros(STATES * ACTIONS, dtype=torch.float64)
    pair = STATE[0] * ACTIONS + ACTION[0]
    total = weight.index_add(0, pair, PROBABILITY * advantage[0])
    found = (total / weight.index_add(0, pair, PROBABILITY)).reshape(STATES, ACTIONS)
    expected = LOG_RATIO.exp().clamp(max=rho_pg_bar) * (action_value - value.unsqueeze(1))
    assert distance(found, expected) < 1e-9
