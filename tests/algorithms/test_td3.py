"""TD3 through its own update: the smaller of two targets, a smoothed target policy, and a policy that learns less."""

import math

import pytest
import torch

from penstock.algorithms.arithmetic.td import largest_error
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.ddpg import DDPG
from penstock.algorithms.td3 import TD3
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    ZERO,
    begin,
    changed,
    constant,
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


def linear(algorithm=TD3, critics=(ZERO, ZERO), target=(ZERO, ZERO), **settings):
    """With critics that are given, and policies of zero."""
    made = make(algorithm, VECTOR, TORQUE, **settings)
    model = begin(made)
    for network, given in ((model, critics), (made.target, target)):
        set_critics(network, *given)
        set_actor(network, [[0.0, 0.0]], [0.0])
    descend_plainly(made)
    return made, model


def targets(algorithm, model, batch):
    """How far from zero is what critics of zero are drawn towards."""
    td_error, _ = algorithm.update(model, batch)
    return largest_error(td_error)


# --- the target ------------------------------------------------------------------------------------------------------


def test_the_smaller_target_critic_counts():
    """1 + 0.99 * min(5, 4) = 4.96."""
    algorithm, model = linear(target=(constant(5.0), constant(4.0)))
    batch = transitions([[0.0, 0.0]], [[0.0]], [1.0], [0.99], [[0.0, 0.0]])
    assert targets(algorithm, model, batch).item() == pytest.approx(4.96)


def test_it_is_the_smaller_for_each_transition_by_itself():
    """Q1' = o0 and Q2' = 1 - o0 at o0 = 0.2 and 0.7: the smaller ones are 0.2 and 0.3."""
    algorithm, model = linear(target=((1.0, 0.0, 0.0, 0.0), (-1.0, 0.0, 0.0, 1.0)))
    batch = transitions([[0.0, 0.0]] * 2, [[0.0]] * 2, [0.0] * 2, [1.0] * 2, [[0.2, 0.0], [0.7, 0.0]])
    torch.testing.assert_close(targets(algorithm, model, batch), torch.tensor([0.2, 0.3]))


def test_both_critics_descend_their_squared_errors_from_the_one_target():
    """Q1 = 3 and Q2 = -1 at input (1, 2, 0.5), target 4.96: each moves by twice its error, -1.96 and -5.96."""
    algorithm, model = linear(
        critics=(constant(3.0), constant(-1.0)), target=(constant(5.0), constant(4.0)), policy_delay=100
    )
    _, metrics = algorithm.update(model, transitions([[1.0, 2.0]], [[0.5]], [1.0], [0.99], [[0.0, 0.0]]))
    steps = torch.tensor([[2 * 1.96], [2 * 5.96]]) * torch.tensor([[1.0, 2.0, 0.5, 1.0]])
    torch.testing.assert_close(critics_of(model), torch.tensor([constant(3.0), constant(-1.0)]) + steps)
    assert metrics["critic_loss"].item() == pytest.approx(1.96**2 + 5.96**2)


@pytest.mark.parametrize(("std", "clip", "policy"), [(0.2, 0.5, 0.0), (2.0, 0.5, 0.0), (2.0, 1.5, 0.8)])
def test_the_target_policy_is_smoothed_by_clipped_noise_of_the_learners_own_within_the_bounds(std, clip, policy):
    """Q' = a', so that the target is what the target policy does: clip(mu' + clip(std * noise, -c, c), -1, 1)."""
    own = (0.0, 0.0, 1.0, 0.0)
    algorithm, model = linear(target=(own, own), target_noise=std, target_noise_clip=clip, seed=7)
    set_actor(algorithm.target, [[0.0, 0.0]], [policy])
    generator = torch.Generator().manual_seed(7)
    batch = random_transitions(TORQUE, size=64)
    batch.reward.zero_()
    batch.discount.fill_(1.0)
    noise = (std * torch.randn(64, generator=generator)).clamp(-clip, clip)
    expected = (math.tanh(policy) + noise).clamp(-1.0, 1.0)
    torch.testing.assert_close(targets(algorithm, model, batch), expected.abs())
    set_critics(model, ZERO, ZERO)
    noise = (std * torch.randn(64, generator=generator)).clamp(-clip, clip)
    torch.testing.assert_close(  # anew in the next update; the target's policy has not moved yet
        targets(algorithm, model, batch), (math.tanh(policy) + noise).clamp(-1.0, 1.0).abs()
    )


def test_without_noise_and_with_equal_critics_it_is_ddpg():
    td3 = make(TD3, VECTOR, TORQUE, hidden_sizes=(8,), target_noise=0.0, policy_delay=1)
    ddpg = make(DDPG, VECTOR, TORQUE, hidden_sizes=(8,))
    models = begin(td3), begin(ddpg)
    single = {name: tensor.clone() for name, tensor in models[1].state_dict().items()}
    double = {name: torch.cat((tensor, tensor)) if name.startswith("critics.") else tensor for name, tensor in
              single.items()}  # fmt: skip
    models[0].load_state_dict(double)
    td3.reset_target(models[0])
    for number in range(1, 4):
        batch = random_transitions(TORQUE, seed=number, number=number)
        errors = [largest_error(a.update(m, batch)[0]) for a, m in zip((td3, ddpg), models, strict=True)]
        torch.testing.assert_close(*errors)
    torch.testing.assert_close(models[0].policy(batch.obs), models[1].policy(batch.obs))
    torch.testing.assert_close(td3.target.q1(batch.obs, batch.action), ddpg.target.q1(batch.obs, batch.action))


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_a_truncated_episode_bootstraps_from_its_final_observation_and_a_terminated_one_does_not(ending):
    """Two steps of reward 1, gamma 0.9, Q' = 10 t: 1 + 0.9 * 10, then 1 + 0.9 * 20 or 1."""
    growing = (10.0, 0.0, 0.0, 0.0)
    algorithm, model = linear(target=(growing, growing), gamma=0.9)
    found = targets(algorithm, model, replayed_episode(algorithm, ending, length=2, action=[0.5]))
    torch.testing.assert_close(found, torch.tensor([10.0, 19.0 if ending == "truncated" else 1.0]))


def test_the_larger_error_of_both_critics_is_what_an_update_returns():
    algorithm, model = linear(critics=(constant(1.0), constant(-5.0)))
    td_error, _ = algorithm.update(model, transitions([[0.0, 0.0]], [[0.0]], [0.0], [0.0], [[0.0, 0.0]]))
    assert largest_error(td_error).item() == 5.0


# --- the policy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delay", "updates"), [(1, 4), (2, 7), (3, 8)])
def test_policy_and_targets_are_updated_after_every_policy_delay_updates_of_the_critics(delay, updates):
    algorithm = make(TD3, VECTOR, TORQUE, hidden_sizes=(8,), policy_delay=delay, tau=0.25)
    model = begin(algorithm)
    moved = steps_taken(algorithm, model)
    delayed = []
    for number in range(1, updates + 1):
        moved.clear()
        before = copied(algorithm.target)
        _, metrics = algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        assert moved["critic"] == {name for name in model.state_dict() if name.startswith("critics.")}
        target_moved = bool(changed(algorithm.target, before))
        assert target_moved == ("actor" in moved) == ("actor_loss" in metrics)
        if target_moved:
            delayed.append(number)
            assert moved["actor"] == {n for n in model.state_dict() if n.startswith(("encoder.", "actor_head."))}
            for name, weight in model.state_dict().items():
                assert torch.equal(algorithm.target.state_dict()[name], torch.lerp(before[name], weight, 0.25)), name
    assert delayed == list(range(delay, updates + 1, delay)) and len(delayed) == updates // delay


def test_the_policy_climbs_the_first_critic_alone():
    """Q1 = 3 a, Q2 = -9 a, both right about the action 0: at mu = tanh(0) the slope in the bias is 3."""
    algorithm, model = linear(critics=((0.0, 0.0, 3.0, 0.0), (0.0, 0.0, -9.0, 0.0)), policy_delay=1)
    algorithm.update(model, transitions([[2.0, 0.0]], [[0.0]], [0.0], [0.0], [[0.0, 0.0]]))
    assert model.actor_head.bias.item() == pytest.approx(3.0)
    torch.testing.assert_close(model.actor_head.weight[0].detach(), torch.tensor([6.0, 0.0]))


# --- acting ----------------------------------------------------------------------------------------------------------


def test_until_learning_starts_actions_are_uniform_then_the_policys_with_noise():
    algorithm, model = linear(exploration_noise=0.3)
    set_actor(model, [[0.0, 0.0]], [0.5])
    noise = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(0))
    columns, _ = algorithm.act(model, request(noise, steps=algorithm.config.learning_starts - 1))
    assert distance_from_uniform(columns["action"].flatten()) < 1.63
    columns, _ = algorithm.act(model, request(noise, steps=algorithm.config.learning_starts))
    torch.testing.assert_close(columns["action"], (math.tanh(0.5) + 0.3 * noise).clamp(-1.0, 1.0))
    assert columns["action"].abs().max() == 1.0


# --- what is refused -------------------------------------------------------------------------------------------------


def test_discrete_actions_are_refused_with_the_algorithms_that_choose_them():
    with pytest.raises(ConfigError) as refusal:
        make(TD3, VECTOR, CHOICE)
    assert "td3 chooses continuous actions" in str(refusal.value)
    assert "use appo, ppo, a2c, a3c, impala, impact, clear, laser, pqn, dqn, rainbow, btr, apex or r2d2" in str(
        refusal.value
    )


def test_an_action_without_two_bounds_is_refused_by_the_number_of_its_dimension():
    action = ActionSpec((2,), "float32", low=(-1.0, -math.inf), high=(1.0, math.inf))
    with pytest.raises(ConfigError, match=r"dimension 1 of .* unbounded \(from -inf to inf\).*or use ppo or appo"):
        make(TD3, VECTOR, action)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_learned_from(reward):
    algorithm = make(TD3, VECTOR, TORQUE, hidden_sizes=(8,), policy_delay=1)
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
        ({"target_noise": -0.1}, "target_noise=-0.1 is not legal"),
        ({"target_noise_clip": -0.1}, "target_noise_clip=-0.1 is not legal"),
        ({"policy_delay": 0}, "policy_delay=0 is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(TD3, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
