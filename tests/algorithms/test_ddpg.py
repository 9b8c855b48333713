"""DDPG through its own update: the critic's target, the policy's gradient, the moving target, and how it acts."""

import math

import pytest
import torch

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.ddpg import DDPG
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    critics_of,
    descend_plainly,
    distance_from_uniform,
    make,
    random_transitions,
    replayed_episode,
    request,
    set_actor,
    set_critics,
    steps_taken,
    transitions,
)
from tests.nn.plain import CHOICE


def linear(**settings):
    algorithm = make(DDPG, VECTOR, TORQUE, **settings)
    model = begin(algorithm)
    descend_plainly(algorithm)
    return algorithm, model


# --- the losses ------------------------------------------------------------------------------------------------------


def test_the_target_is_reward_plus_discounted_value_of_what_the_target_policy_does():
    """Q' = 2 o0 + 4 a + 1 and mu' = tanh(o1): 1 + 0.9 * (2 * 3 + 4 tanh(0.5) + 1), and 1 after a termination."""
    algorithm, model = linear()
    set_critics(model, (0.0, 0.0, 0.0, 0.0))
    set_critics(algorithm.target, (2.0, 0.0, 4.0, 1.0))
    set_actor(algorithm.target, [[0.0, 1.0]], [0.0])
    batch = transitions([[0.0, 0.0]] * 2, [[0.0]] * 2, [1.0, 1.0], [0.9, 0.0], [[3.0, 0.5]] * 2)
    td_error, _ = algorithm.update(model, batch)
    torch.testing.assert_close(-td_error, torch.tensor([1.0 + 0.9 * (7.0 + 4.0 * math.tanh(0.5)), 1.0]))


def test_the_critic_descends_the_mean_of_the_squared_error():
    """Errors (-1, 3) at inputs (o, a) = (1, 0, 0.5) and (0, 2, -1): the gradient is their products' sum, 2 / 2 each."""
    algorithm, model = linear()
    set_critics(model, (0.0, 0.0, 0.0, 0.0))
    batch = transitions([[1.0, 0.0], [0.0, 2.0]], [[0.5], [-1.0]], [1.0, -3.0], [0.0, 0.0], [[0.0, 0.0]] * 2)
    td_error, metrics = algorithm.update(model, batch)
    assert td_error.tolist() == [-1.0, 3.0] and metrics["critic_loss"] == 5.0
    assert critics_of(model).tolist() == [[1.0, -6.0, 3.5, -2.0]]


def test_the_policy_climbs_the_slope_of_q_times_its_own_slope():
    """With Q = 3 a + ..., dQ/da * dmu/dW = 3 (1 - mu^2) o, averaged; the critic, which is right, does not move."""
    algorithm, model = linear()
    set_critics(model, (1.0, -1.0, 3.0, 0.5))
    set_actor(model, [[0.2, -0.4]], [0.1])
    obs = torch.tensor([[1.0, 0.0], [0.5, -2.0]])
    action = torch.tensor([[0.3], [-0.6]])
    q = obs[:, 0] - obs[:, 1] + 3.0 * action[:, 0] + 0.5
    algorithm.update(model, transitions(obs.tolist(), action.tolist(), q.tolist(), [0.0, 0.0], obs.tolist()))
    mu = torch.tanh(obs @ torch.tensor([0.2, -0.4]) + 0.1)
    slope = 3.0 * (1.0 - mu.square())
    step = (slope.unsqueeze(1) * obs).mean(0)
    torch.testing.assert_close(model.actor_head.weight[0].detach(), torch.tensor([0.2, -0.4]) + step)
    torch.testing.assert_close(model.actor_head.bias.detach(), 0.1 + slope.mean().unsqueeze(0))
    torch.testing.assert_close(critics_of(model), torch.tensor([[1.0, -1.0, 3.0, 0.5]]))


def test_each_loss_moves_its_own_parameters_alone():
    algorithm = make(DDPG, VECTOR, TORQUE, hidden_sizes=(8,))
    model = begin(algorithm)
    moved = steps_taken(algorithm, model)
    algorithm.update(model, random_transitions(TORQUE))
    assert moved["critic"] == {name for name in model.state_dict() if name.startswith("critics.")}
    assert moved["actor"] == {name for name in model.state_dict() if name.startswith(("encoder.", "actor_head."))}


def test_actor_and_critic_have_learning_rates_of_their_own():
    """A first step of Adam is the learning rate."""
    algorithm = make(DDPG, VECTOR, TORQUE, learning_rate=1e-2, actor_learning_rate=1e-3)
    model = begin(algorithm)
    actor, critic = model.actor_head.bias.item(), critics_of(model)
    algorithm.update(model, random_transitions(TORQUE))
    assert abs(model.actor_head.bias.item() - actor) == pytest.approx(1e-3, rel=1e-3)
    torch.testing.assert_close((critics_of(model) - critic).abs(), torch.full((1, 4), 1e-2), rtol=1e-3, atol=0)


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_a_truncated_episode_bootstraps_from_its_final_observation_and_a_terminated_one_does_not(ending):
    """Two steps of reward 1, gamma 0.9, Q' = 10 t: 1 + 0.9 * 10, then 1 + 0.9 * 20 or 1."""
    algorithm, model = linear(gamma=0.9)
    set_critics(model, (0.0, 0.0, 0.0, 0.0))
    set_critics(algorithm.target, (10.0, 0.0, 0.0, 0.0))
    td_error, _ = algorithm.update(model, replayed_episode(algorithm, ending, length=2, action=[0.5]))
    torch.testing.assert_close(-td_error, torch.tensor([10.0, 19.0 if ending == "truncated" else 1.0]))


# --- the target network ----------------------------------------------------------------------------------------------


def test_after_every_update_the_target_has_moved_by_tau_towards_the_network_to_the_last_bit():
    algorithm = make(DDPG, VECTOR, TORQUE, hidden_sizes=(8,), tau=0.25)
    model = begin(algorithm)
    for number in range(1, 4):
        before = copied(algorithm.target)
        algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        for name, weight in model.state_dict().items():
            moved = algorithm.target.state_dict()[name]
            assert torch.equal(moved, torch.lerp(before[name], weight, 0.25)), name
            torch.testing.assert_close(moved, 0.25 * weight + 0.75 * before[name])


def test_the_target_network_sees_observations_normalised_as_the_network_does():
    algorithm = make(DDPG, VECTOR, TORQUE, tau=1.0, normalize_observations=True)
    model = begin(algorithm)
    batch = random_transitions(TORQUE)
    model.update_observation_statistics(5.0 + 3.0 * batch.obs)
    algorithm.update(model, batch)
    torch.testing.assert_close(algorithm.target.policy(batch.obs), model.policy(batch.obs))


# --- acting ----------------------------------------------------------------------------------------------------------


def normal(num_lanes, seed=0):
    return torch.randn(num_lanes, 1, generator=torch.Generator().manual_seed(seed))


def test_until_learning_starts_actions_are_uniform_for_any_policy():
    algorithm, model = linear()
    set_actor(model, [[0.0, 0.0]], [3.0])
    columns, _ = algorithm.act(model, request(normal(10_000), steps=algorithm.config.learning_starts - 1))
    assert distance_from_uniform(columns["action"].flatten()) < 1.63
    columns, _ = algorithm.act(model, request(normal(10_000), steps=algorithm.config.learning_starts))
    assert distance_from_uniform(columns["action"].flatten()) > 10.0


def test_then_they_are_the_policys_with_noise_of_the_width_that_is_set_and_stay_within_bounds():
    """The policy says tanh(0.5) = 0.4621; at tanh(2) = 0.964 noise of 0.1 often leaves the bounds."""
    algorithm, model = linear(exploration_noise=0.1)
    set_actor(model, [[0.0, 0.0]], [0.5])
    noise = normal(10_000)
    columns, _ = algorithm.act(model, request(noise))
    torch.testing.assert_close(columns["action"], math.tanh(0.5) + 0.1 * noise)
    set_actor(model, [[0.0, 0.0]], [2.0])
    columns, _ = algorithm.act(model, request(noise))
    torch.testing.assert_close(columns["action"], (math.tanh(2.0) + 0.1 * noise).clamp(-1.0, 1.0))
    assert columns["action"].max() == 1.0 and columns["action"].dtype == torch.float32


# --- what is refused -------------------------------------------------------------------------------------------------


def test_discrete_actions_are_refused_with_the_algorithms_that_choose_them():
    with pytest.raises(ConfigError) as refusal:
        make(DDPG, VECTOR, CHOICE)
    assert "ddpg chooses continuous actions" in str(refusal.value) and "(3 of them)" in str(refusal.value)
    assert "use appo, ppo, a2c, a3c, impala, impact, clear, laser, pqn, dqn, rainbow, btr, apex or r2d2" in str(
        refusal.value
    )


@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (-1.0, math.inf), (-math.inf, 1.0)])
def test_an_action_without_two_bounds_is_refused_by_the_number_of_its_dimension(low, high):
    action = ActionSpec((3,), "float32", low=(-1.0, low, -1.0), high=(1.0, high, 1.0))
    with pytest.raises(ConfigError, match=rf"dimension 1 of .* unbounded \(from {low:g} to {high:g}\)"):
        make(DDPG, VECTOR, action)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_learned_from(reward):
    algorithm = make(DDPG, VECTOR, TORQUE, hidden_sizes=(8,))
    model = begin(algorithm)
    algorithm.update(model, random_transitions(TORQUE))
    before, target = copied(model), copied(algorithm.target)
    bad = random_transitions(TORQUE, seed=1, number=2)
    bad.reward[0] = reward
    with pytest.raises(NonFiniteUpdate, match="critic loss"):
        algorithm.update(model, bad)
    assert not changed(model, before) and not changed(algorithm.target, target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exploration_noise": -0.1}, "exploration_noise=-0.1 is not legal"),
        ({"tau": 0.0}, "tau=0.0 is not legal"),
        ({"actor_learning_rate": 0.0}, "actor_learning_rate=0.0 is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(DDPG, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
