"""SAC through its own update: the soft target, the policy between value and entropy, and the temperature."""

import math

import pytest
import torch

from penstock.algorithms.arithmetic.td import largest_error
from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec
from penstock.nn import TanhGaussian
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

ONE = transitions([[0.0, 0.0]], [[0.0]], [1.0], [0.99], [[0.0, 0.0]])
UNIT_STD = math.atanh(3.0 / 7.0)  # what the actor says for a standard deviation of 1: -5 + 3.5 (1 + 3 / 7) = 0


def linear(critics=(ZERO, ZERO), target=(ZERO, ZERO), **settings):
    """With critics that are given; the policy is a standard normal distribution behind a tanh."""
    algorithm = make(SAC, VECTOR, TORQUE, **settings)
    model = begin(algorithm)
    for network, given in ((model, critics), (algorithm.target, target)):
        set_critics(network, *given)
        set_actor(network, [[0.0, 0.0]] * 2, [0.0, UNIT_STD])
    descend_plainly(algorithm)
    return algorithm, model


@pytest.fixture
def log_prob_of_minus_one(monkeypatch):
    """Let every action drawn be as likely as that, and be the middle of the policy."""

    def draw(policy, noise):
        action = policy.mean.tanh()
        return action, 0.0 * action.sum(-1) - 1.0

    monkeypatch.setattr(TanhGaussian, "sample_with_log_prob", draw)


# --- the critics -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("log_prob_of_minus_one")
def test_the_target_is_the_smaller_value_and_the_entropy_beside_it():
    """1 + 0.99 * (min(5, 4) - 0.2 * -1) = 5.158."""
    algorithm, model = linear(target=((0.0, 0.0, 0.0, 5.0), (0.0, 0.0, 0.0, 4.0)), alpha=0.2)
    td_error, _ = algorithm.update(model, ONE)
    assert largest_error(td_error).item() == pytest.approx(5.158)


def test_the_next_action_is_drawn_from_the_policy_of_now_with_the_learners_own_noise():
    """Q' = a', no temperature: the target is tanh(0.5 + noise), whatever the target network's policy would do."""
    own = (0.0, 0.0, 1.0, 0.0)
    algorithm, model = linear(target=(own, own), alpha=0.0, seed=7)
    set_actor(model, [[0.0, 0.0]] * 2, [0.5, UNIT_STD])
    set_actor(algorithm.target, [[0.0, 0.0]] * 2, [-3.0, -3.0])
    noise = torch.randn(64, generator=torch.Generator().manual_seed(7))
    batch = random_transitions(TORQUE, size=64)
    batch.reward.zero_()
    batch.discount.fill_(1.0)
    td_error, _ = algorithm.update(model, batch)
    torch.testing.assert_close(largest_error(td_error), (0.5 + noise).tanh().abs(), rtol=1e-4, atol=1e-5)


def test_without_temperature_and_width_its_target_is_that_of_clipped_double_ddpg():
    sac = make(SAC, VECTOR, TORQUE, hidden_sizes=(8,), alpha=0.0)
    td3 = make(TD3, VECTOR, TORQUE, hidden_sizes=(8,), target_noise=0.0)
    models = begin(sac), begin(td3)
    weights = models[0].state_dict()
    mean = {name: weights[name][:1] for name in ("actor_head.weight", "actor_head.bias")}
    models[1].load_state_dict({name: mean.get(name, weights[name]) for name in models[1].state_dict()})
    td3.reset_target(models[1])
    with torch.no_grad():
        models[0].actor_head.bias[1] = -100.0  # the least standard deviation, exp(-5)
    batch = random_transitions(TORQUE)
    errors = [a.update(m, batch)[0] for a, m in zip((sac, td3), models, strict=True)]
    torch.testing.assert_close(*errors, rtol=0, atol=0.02)
    assert errors[1].std() > 0.5


@pytest.mark.usefixtures("log_prob_of_minus_one")
def test_both_critics_descend_their_squared_errors_and_no_gradient_flows_through_the_target():
    """Q1 = 3 and Q2 = -1 at input (1, 2, 0.5), target 5.158: each moves by twice its error."""
    algorithm, model = linear((constant(3.0), constant(-1.0)), (constant(5.0), constant(4.0)), alpha=0.2)
    _, metrics = algorithm.update(model, transitions([[1.0, 2.0]], [[0.5]], [1.0], [0.99], [[0.0, 0.0]]))
    errors = torch.tensor([3.0 - 5.158, -1.0 - 5.158])
    expected = torch.tensor([constant(3.0), constant(-1.0)]) - 2 * errors.unsqueeze(1) * torch.tensor([1, 2, 0.5, 1])
    torch.testing.assert_close(critics_of(model), expected)
    assert metrics["critic_loss"].item() == pytest.approx(errors.square().sum().item())


@pytest.mark.parametrize("ending", ["terminated", "truncated"])
def test_a_truncated_episode_bootstraps_from_its_final_observation_and_a_terminated_one_does_not(ending):
    """Rewards 1, gamma 0.9, two steps each, Q' = 10 t: 1.9 + 0.81 * 20, then 1.9 + 0.81 * 30 and 1 + 0.9 * 30, or
    1.9 and 1."""
    growing = (10.0, 0.0, 0.0, 0.0)
    algorithm, model = linear(target=(growing, growing), gamma=0.9, n_step=2, alpha=0.0)
    td_error, _ = algorithm.update(model, replayed_episode(algorithm, ending, length=3, action=[0.5]))
    last = [26.2, 28.0] if ending == "truncated" else [1.9, 1.0]
    torch.testing.assert_close(largest_error(td_error), torch.tensor([18.1, *last]))


# --- the policy ------------------------------------------------------------------------------------------------------


def test_the_policy_climbs_the_smaller_value_and_its_entropy():
    """Its gradient by hand, from ``alpha log p - min Q`` at u = mean + std * noise, with Q1 = 3 a and Q2 = 3 a + 1.

    d log p / d mean = 2 tanh(u), as -2 (log 2 - u - softplus(-2 u)) has that slope; so the step in the mean is
    3 (1 - tanh(u)^2) - 0.2 * 2 tanh(u). In log std: (that) * std * noise + 0.2, times 3.5 (1 - (3/7)^2) in x.
    """
    q1, q2 = (0.0, 0.0, 3.0, 0.0), (0.0, 0.0, 3.0, 1.0)
    algorithm, model = linear((q1, q2), alpha=0.2, seed=3)
    algorithm.optimizers["critic"].param_groups[0]["lr"] = 0.0
    generator = torch.Generator().manual_seed(3)
    torch.randn(1, 1, generator=generator)  # of the next action
    noise = torch.randn(1, 1, generator=generator).item()
    algorithm.update(model, ONE)
    a = math.tanh(noise)
    in_mean = 3.0 * (1.0 - a * a) - 0.2 * 2.0 * a
    in_x = (in_mean * noise + 0.2) * 3.5 * (1.0 - (3.0 / 7.0) ** 2)
    step = model.actor_head.bias.detach() - torch.tensor([0.0, UNIT_STD])
    torch.testing.assert_close(step, torch.tensor([in_mean, in_x]), rtol=1e-4, atol=1e-5)


def test_the_policy_climbs_whichever_critic_is_smaller_where_it_acts():
    algorithm, model = linear(((0.0, 0.0, 3.0, 0.0), (0.0, 0.0, -9.0, 99.0)), alpha=0.0)
    algorithm.optimizers["critic"].param_groups[0]["lr"] = 0.0
    algorithm.update(model, ONE)
    assert model.actor_head.bias[0].item() > 0.0
    set_critics(model, (0.0, 0.0, 3.0, 99.0), (0.0, 0.0, -9.0, 0.0))
    set_actor(model, [[0.0, 0.0]] * 2, [0.0, UNIT_STD])
    algorithm.update(model, ONE)
    assert model.actor_head.bias[0].item() < 0.0


def test_each_loss_moves_its_own_parameters_alone():
    algorithm = make(SAC, VECTOR, TORQUE, hidden_sizes=(8,))
    model = begin(algorithm)
    moved = steps_taken(algorithm, model)
    algorithm.update(model, random_transitions(TORQUE))
    assert moved["critic"] == {name for name in model.state_dict() if name.startswith("critics.")}
    assert moved["actor"] == {name for name in model.state_dict() if name.startswith(("encoder.", "actor_head."))}
    assert moved["alpha"] == {"log_alpha"}


# --- the temperature -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("log_prob_of_minus_one")
def test_the_temperature_descends_its_published_loss():
    """log p = -1, target entropy -2, alpha = 0.2: the gradient of -alpha (log p + H) in log alpha is 0.2 * 3 = 0.6."""
    algorithm, model = linear(initial_alpha=0.2, target_entropy=-2.0)
    before = model.log_alpha.item()
    algorithm.update(model, ONE)
    assert before - model.log_alpha.item() == pytest.approx(0.6, rel=1e-5)


@pytest.mark.usefixtures("log_prob_of_minus_one")
@pytest.mark.parametrize(("target_entropy", "direction"), [(-2.0, -1), (3.0, 1), (1.0, 0)])
def test_the_temperature_falls_where_there_is_more_entropy_than_aimed_at_and_rises_where_there_is_less(
    target_entropy, direction
):
    """The entropy is 1."""
    algorithm = make(SAC, VECTOR, TORQUE, target_entropy=target_entropy)
    model = begin(algorithm)
    before = model.log_alpha.item()
    _, metrics = algorithm.update(model, ONE)
    assert metrics["entropy"].item() == 1.0 and metrics["alpha"].item() == 1.0
    assert math.copysign(1, model.log_alpha.item() - before) * (model.log_alpha.item() != before) == direction


@pytest.mark.usefixtures("log_prob_of_minus_one")
def test_the_entropy_aimed_at_is_minus_the_number_of_dimensions():
    """Two dimensions: -2, of which an entropy of 2 is 4 above, and where log p is 2 nothing is left to do."""
    torque = ActionSpec((2,), "float32", low=(-1.0, -1.0), high=(1.0, 1.0))
    by_default, given = (make(SAC, VECTOR, torque, target_entropy=entropy) for entropy in (None, -2.0))
    steps = []
    for algorithm in (by_default, given):
        model = begin(algorithm)
        descend_plainly(algorithm)
        before = model.log_alpha.item()
        algorithm.update(model, random_transitions(torque))
        steps.append(model.log_alpha.item() - before)
    assert steps[0] == steps[1] < 0


def test_a_temperature_that_is_given_is_used_and_not_learned():
    algorithm, model = linear(alpha=0.3)
    before = model.log_alpha.item()
    _, metrics = algorithm.update(model, ONE)
    assert metrics["alpha"].item() == pytest.approx(0.3) and model.log_alpha.item() == before


# --- the target network ----------------------------------------------------------------------------------------------


def test_after_every_update_the_target_has_moved_by_tau_towards_the_network_to_the_last_bit():
    algorithm = make(SAC, VECTOR, TORQUE, hidden_sizes=(8,), tau=0.25)
    model = begin(algorithm)
    for number in range(1, 4):
        before = copied(algorithm.target)
        algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        for name, weight in model.state_dict().items():
            assert torch.equal(algorithm.target.state_dict()[name], torch.lerp(before[name], weight, 0.25)), name


# --- acting ----------------------------------------------------------------------------------------------------------


def test_until_learning_starts_actions_are_uniform_then_drawn_from_the_policy_within_the_bounds():
    algorithm, model = linear()
    set_actor(model, [[0.0, 0.0]] * 2, [1.0, UNIT_STD])
    noise = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(0))
    columns, _ = algorithm.act(model, request(noise, steps=algorithm.config.learning_starts - 1))
    assert distance_from_uniform(columns["action"].flatten()) < 1.63
    columns, _ = algorithm.act(model, request(noise, steps=algorithm.config.learning_starts))
    torch.testing.assert_close(columns["action"], (1.0 + noise).tanh(), rtol=1e-5, atol=1e-5)
    assert columns["action"].abs().max() <= 1.0 and columns["action"].dtype == torch.float32


# --- what is refused -------------------------------------------------------------------------------------------------


def test_discrete_actions_are_refused_with_the_algorithms_that_choose_them():
    with pytest.raises(ConfigError) as refusal:
        make(SAC, VECTOR, CHOICE)
    assert "sac chooses continuous actions" in str(refusal.value)
    assert "use appo, ppo, a2c, a3c, impala, impact, clear, laser, pqn, dqn, rainbow, btr, apex or r2d2" in str(
        refusal.value
    )


def test_an_action_without_two_bounds_is_refused_by_the_number_of_its_dimension():
    action = ActionSpec((2,), "float32", low=(-1.0, -math.inf), high=(1.0, 1.0))
    with pytest.raises(ConfigError, match=r"dimension 1 of .* unbounded \(from -inf to 1\)"):
        make(SAC, VECTOR, action)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_learned_from(reward):
    algorithm = make(SAC, VECTOR, TORQUE, hidden_sizes=(8,))
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
        ({"alpha": -0.1}, "alpha=-0.1 is not legal"),
        ({"initial_alpha": 0.0}, "initial_alpha=0.0 is not legal"),
        ({"tau": 1.5}, "tau=1.5 is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(SAC, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
