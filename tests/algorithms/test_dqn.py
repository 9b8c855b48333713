"""DQN through its own update: targets, loss, gradient, target network and exploration, against numbers by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.bases.replay import ReplayAlgorithm
from penstock.algorithms.btr import BTR
from penstock.algorithms.dqn import DQN
from penstock.algorithms.rainbow import Rainbow
from penstock.config import ConfigError, make_config
from penstock.replay import Prioritized, Uniform
from tests.algorithms.transitions import (
    CHAIN,
    STATE,
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    descend_plainly,
    make,
    random_transitions,
    replayed_episode,
    request,
    transitions,
)
from tests.nn.composites import composite, pack
from tests.nn.plain import CHOICE

CHAIN_Q = [[1.0, 2.0, -9.0], [1.0, 2.0, -9.0]]  # the third action is never taken


def set_q(network, table):
    """Let the values of a linear network over `STATE` be ``table[state][action]``."""
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor(table).T)
        network.head.bias.zero_()


def with_tables(online, target, **settings):
    algorithm = make(DQN, STATE, CHOICE, **{"normalize_returns": False, **settings})
    model = begin(algorithm)
    set_q(model, online)
    set_q(algorithm.target, target)
    return algorithm, model


def test_presets_mean_what_they_meant_whatever_the_defaults_are():
    """Those of papers learn from single steps; DQN's own defaults from three, and Rainbow's step size is constant."""
    config = DQN.Config(env="none")
    assert (config.n_step, config.learning_rate_schedule, config.td_loss) == (3, "linear", "squared")
    assert config.normalize_returns
    for preset, steps in {"atari": 1, "minatar": 1, "goals": 1, "lunarlander": 3}.items():
        config = make_config(DQN.Config, {"env": "none"}, preset)
        assert (config.n_step, config.learning_rate_schedule, config.td_loss) == (steps, "constant", "huber"), preset
        assert not config.normalize_returns, preset
        assert config.max_grad_norm == (math.inf if preset == "atari" else 10.0), preset
    for heir in (Rainbow, BTR):
        config = heir.Config(env="none")
        assert (config.learning_rate_schedule, config.max_grad_norm) == ("constant", 10.0)
        assert not config.normalize_returns


# --- the loss --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
def test_right_after_a_copy_the_td_error_is_exactly_the_value_less_reward_and_discounted_best_value(double):
    """(3 - 0 - 0.5 * 5, 5 - 1 - 0.5 * 4, 4 - 0 - 0.5 * 5, -1 - 2)."""
    table = [[3.0, 5.0, 1.0], [4.0, -1.0, 2.0]]
    algorithm, model = with_tables(table, table, double=double)
    td_error, _ = algorithm.update(model, CHAIN)
    assert td_error.tolist() == [0.5, 2.0, 1.5, -3.0]


@pytest.mark.parametrize("double", [False, True])
def test_at_the_true_values_of_a_chain_nothing_is_left_to_learn(double):
    algorithm, model = with_tables(CHAIN_Q, CHAIN_Q, double=double)
    before = copied(model)
    td_error, metrics = algorithm.update(model, CHAIN)
    assert td_error.tolist() == [0.0] * 4 and metrics["loss"] == 0.0 and metrics["grad_norm"] == 0.0
    assert not changed(model, before)


@pytest.mark.parametrize("double", [False, True])
def test_a_chain_is_learned_to_its_known_values(double):
    algorithm = make(DQN, STATE, CHOICE, learning_rate=0.05, target_period=10, double=double)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight[2] = -9.0
    for number in range(1, 201):
        algorithm.update(model, replace(CHAIN, number=number))
    torch.testing.assert_close(model.q(torch.tensor([0, 1]))[:, :2], torch.tensor([[1.0, 2.0]] * 2), rtol=0, atol=0.02)


@pytest.mark.parametrize(("double", "bootstrap"), [(False, 20.0), (True, 5.0)])
def test_dqn_trusts_the_target_networks_best_action_and_double_dqn_that_of_the_online_network(double, bootstrap):
    """In state 1 online (1, 3, 2), target (10, 5, 20); the value of state 0 is 0: the error is minus the bootstrap."""
    algorithm, model = with_tables([[0.0] * 3, [1.0, 3.0, 2.0]], [[0.0] * 3, [10.0, 5.0, 20.0]], double=double)
    td_error, _ = algorithm.update(model, transitions([0], [0], [0.0], [1.0], [1]))
    assert td_error.tolist() == [-bootstrap]


@pytest.mark.parametrize(
    ("td_loss", "expected", "gradient"), [("huber", 0.6875, (0.25, 0.25)), ("squared", 1.1875, (0.25, 0.75))]
)
def test_importance_weights_multiply_the_loss_and_not_the_error_in_it(td_loss, expected, gradient):
    """Errors 0.5 and 3 of weights 1 and 0.5: (0.5^2 / 2 + 0.5 * (3 - 0.5)) / 2 = 0.6875, where a weighted error of 1.5
    would give (0.125 + 1.0) / 2; squared, (0.5^2 / 2 + 0.5 * 3^2 / 2) / 2 = 1.1875. The gradient is (1 * 0.5, 0.5 * 1)
    / 2, or (1 * 0.5, 0.5 * 3) / 2, and of the common bias of each action too.
    """
    settings = {"max_grad_norm": None, "td_loss": td_loss}
    algorithm, model = with_tables([[0.5, 3.0, 0.0], [0.0] * 3], [[0.0] * 3] * 2, **settings)
    descend_plainly(algorithm)
    before = copied(model)
    batch = transitions([0, 0], [0, 1], [0.0, 0.0], [0.0, 0.0], [1, 1], weights=[1.0, 0.5])
    td_error, metrics = algorithm.update(model, batch)
    assert metrics["loss"].item() == expected and td_error.tolist() == [0.5, 3.0]
    step = before["head.weight"] - model.head.weight
    torch.testing.assert_close(step.detach(), torch.tensor([[gradient[0], 0.0], [gradient[1], 0.0], [0.0, 0.0]]))
    assert metrics["grad_norm"].item() == pytest.approx(math.hypot(*gradient) * math.sqrt(2.0))


@pytest.mark.parametrize("double", [False, True])
def test_no_gradient_flows_through_what_is_learned_towards(double):
    table = [[0.0] * 3, [1.0, 3.0, 2.0]]
    algorithm, model = with_tables(table, table, double=double, max_grad_norm=None)
    descend_plainly(algorithm)
    before, target = copied(model), copied(algorithm.target)
    algorithm.update(model, transitions([0], [0], [0.0], [1.0], [1]))
    assert model.head.weight[0, 0] == 3.0, "error and gradient are -3"
    assert torch.equal(model.head.weight[:, 1], before["head.weight"][:, 1]), "values of the next state stand still"
    assert not changed(algorithm.target, target)


@pytest.mark.parametrize(("norm", "step"), [(None, 1.0), (10.0, 1.0), (1.0, math.sqrt(0.5))])
def test_long_gradients_are_scaled_down_to_max_grad_norm(norm, step):
    """One error beyond 1: the gradient is 1 for a weight and 1 for a bias, of length sqrt(2)."""
    algorithm, model = with_tables([[3.0, 0.0, 0.0]] * 2, [[0.0] * 3] * 2, max_grad_norm=norm, td_loss="huber")
    descend_plainly(algorithm)
    _, metrics = algorithm.update(model, transitions([0], [0], [0.0], [0.0], [1]))
    assert model.head.weight[0, 0].item() == pytest.approx(3.0 - step, rel=1e-5)
    assert metrics["grad_norm"].item() == pytest.approx(math.sqrt(2.0)), "reported as it was"


def test_rmsprop_is_centred_with_decay_0_95_as_published():
    """After one gradient g: mean square 0.05 g^2, mean 0.05 g, so the step is lr g / sqrt(0.05 g^2 - 0.0025 g^2)."""
    algorithm, model = with_tables([[3.0, 0.0, 0.0]] * 2, [[0.0] * 3] * 2, optimizer="rmsprop", learning_rate=0.01)
    algorithm.update(model, transitions([0], [0], [0.0], [0.0], [1]))
    assert model.head.weight[0, 0].item() == pytest.approx(3.0 - 0.01 / math.sqrt(0.0475), rel=1e-5)


@pytest.mark.parametrize(("ending", "discounts"), [("terminated", [0.729, 0.0, 0.0, 0.0]),
                                                   ("truncated", [0.729, 0.729, 0.81, 0.9])])  # fmt: skip
def test_a_truncated_episode_bootstraps_from_its_final_observation_and_a_terminated_one_does_not(ending, discounts):
    """Four rewards of 1, gamma 0.9, three steps each: R = 2.71, 2.71, 1.9, 1. Values are 10, and 7 of the last."""
    algorithm = make(DQN, VECTOR, CHOICE, gamma=0.9, n_step=3)
    model = begin(algorithm)
    with torch.no_grad():
        for network, values in ((model, (0.0, 0.0)), (algorithm.target, (-3.0, 19.0))):  # 19 - 3 t: 10 at 3, 7 at 4
            network.head.weight.copy_(torch.tensor(values).expand(3, 2))
            network.head.bias.zero_()
    batch = replayed_episode(algorithm, ending, length=4, action=1)
    torch.testing.assert_close(batch.discount, torch.tensor(discounts))
    td_error, _ = algorithm.update(model, batch)
    values = torch.tensor([10.0, 7.0, 7.0, 7.0])
    torch.testing.assert_close(-td_error, torch.tensor([2.71, 2.71, 1.9, 1.0]) + torch.tensor(discounts) * values)


# --- masks of legal actions ------------------------------------------------------------------------------------------

MASKED = composite({"": STATE}, num_masked=3)


def masked_states(states, masks):
    """Rows of the two states with the actions' masks beside them."""
    return pack(MASKED, {"": np.array(states)}, np.array(masks, bool))


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    ("mask", "bootstrap"), [([1, 1, 1], 20.0), ([1, 1, 0], 10.0), ([0, 1, 0], 5.0), ([0, 0, 0], 20.0)]
)
def test_the_next_value_is_that_of_the_best_legal_action(double, mask, bootstrap):
    """Of state 1 the values are (10, 5, 20); where its mask leaves nothing, as after a truncation, all count."""
    table = [[0.0] * 3, [10.0, 5.0, 20.0]]
    algorithm = make(DQN, MASKED, CHOICE, double=double)
    model = begin(algorithm)
    set_q(model, table)
    set_q(algorithm.target, table)
    plain = transitions([0], [0], [0.0], [1.0], [1])
    batch = replace(plain, obs=masked_states([0], [[1, 0, 0]]), next_obs=masked_states([1], [mask]))
    td_error, metrics = algorithm.update(model, batch)
    assert td_error.tolist() == [-bootstrap]
    assert metrics["q"] == 0.0 and metrics["loss"] == 0.5 * bootstrap**2 and metrics["grad_norm"].isfinite()


def test_what_is_illegal_is_neither_chosen_nor_learned():
    algorithm = make(DQN, MASKED, CHOICE, exploration=0.5, exploration_final=0.5, normalize_returns=False)
    model = begin(algorithm)
    set_q(model, [[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    obs = masked_states([0] * 4, [[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 1, 1]])
    for noise, actions in ((0.0, [0, 0, 0, 1]), (0.499, [2, 2, 0, 2]), (0.501, [1, 2, 0, 1])):
        columns, _ = algorithm.act(model, request(torch.full((4, 1), noise), obs=obs))
        assert columns["action"].tolist() == actions
    descend_plainly(algorithm)
    before = copied(model)
    batch = transitions([0], [2], [0.0], [0.0], [1])
    algorithm.update(model, replace(batch, obs=obs[1:2], next_obs=obs[1:2]))
    assert torch.equal(model.head.weight[:2], before["head.weight"][:2])
    assert not torch.equal(model.head.weight[2], before["head.weight"][2])


# --- the target network ----------------------------------------------------------------------------------------------


def test_the_target_network_is_the_network_as_it_began():
    algorithm = make(DQN, VECTOR, CHOICE)
    model = begin(algorithm)
    assert not changed(algorithm.target, copied(model))


def test_the_target_network_becomes_the_network_after_every_target_period_updates_and_at_no_other():
    algorithm = make(DQN, VECTOR, CHOICE, target_period=3, normalize_returns=False)
    model = begin(algorithm)
    copies = []
    for number in range(1, 9):
        before = copied(algorithm.target)
        algorithm.update(model, random_transitions(CHOICE, seed=number, number=number))
        if changed(algorithm.target, before):
            copies.append(number)
            assert not changed(algorithm.target, copied(model)), "and exactly so"
    assert copies == [3, 6]


def test_the_target_network_sees_observations_normalised_as_the_network_does():
    algorithm = make(DQN, VECTOR, CHOICE, target_period=1, normalize_observations=True)
    model = begin(algorithm)
    batch = random_transitions(CHOICE)
    model.update_observation_statistics(5.0 + 3.0 * batch.obs)
    algorithm.update(model, batch)
    torch.testing.assert_close(algorithm.target.q(batch.obs), model.q(batch.obs))


# --- acting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "epsilon"), [(0, 1.0), (50, 0.55), (99, 0.109), (100, 0.1), (10**9, 0.1)])
def test_exploration_falls_with_the_steps_of_the_run(steps, epsilon):
    """Noise below epsilon explores, and just below it means the last action; the best one is the first."""
    algorithm = make(DQN, VECTOR, CHOICE, exploration=1.0, exploration_final=0.1, exploration_steps=100)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    columns, _ = algorithm.act(model, request(torch.tensor([[epsilon - 1e-4], [epsilon + 1e-4]]), steps))
    assert columns["action"].tolist() == [2, 0] and set(columns) == {"action"}


# --- replay ----------------------------------------------------------------------------------------------------------


def test_replay_is_uniform_without_weights_unless_it_is_prioritized():
    algorithm = make(DQN, VECTOR, CHOICE)
    assert algorithm.sampler() == Uniform() and algorithm.beta(0.5) is None


def test_prioritized_replay_has_weights_by_the_largest_in_the_batch_of_an_exponent_that_rises_to_its_end():
    algorithm = make(DQN, VECTOR, CHOICE, prioritized=True)
    assert algorithm.sampler() == Prioritized(0.6, 0.4, normalize="batch")
    assert [algorithm.beta(p) for p in (0.0, 0.5, 1.0, 1.5)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


# --- what is refused -------------------------------------------------------------------------------------------------


def test_continuous_actions_are_refused_with_the_algorithms_that_choose_them():
    with pytest.raises(ConfigError) as refusal:
        make(DQN, VECTOR, TORQUE)
    assert "dqn chooses discrete actions" in str(refusal.value)
    assert "ddpg, td3, sac, tqc, crossq, flashsac, fasttd3, xqc or apexdpg" in str(refusal.value)


class Own(ReplayAlgorithm):
    """Q-learning of a linear network, from nothing but what a subclass must have."""

    build_model, trained_parameters = DQN.build_model, DQN.trained_parameters
    final_epsilon = 0.0
    Config = DQN.Config


def test_an_algorithm_with_one_loss_needs_no_update_of_its_own():
    class OneLoss(Own):
        def evaluate(self, model, batch):
            td_error = model.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1) - batch.reward
            return td_error, td_error.square().mean(), {}

    algorithm = make(OneLoss, STATE, CHOICE)
    model = begin(algorithm)
    descend_plainly(algorithm)
    set_q(model, [[0.0] * 3] * 2)
    td_error, metrics = algorithm.update(model, CHAIN)
    assert td_error.tolist() == [0.0, -1.0, 0.0, -2.0] and not td_error.requires_grad
    assert metrics.keys() == {"loss", "grad_norm"} and model.q(torch.tensor([1]))[0, 1].item() > 0.0
    with pytest.raises(TypeError, match="Own defines no loss"):
        lossless = make(Own, STATE, CHOICE)
        lossless.update(begin(lossless), CHAIN)


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_learned_from(reward):
    algorithm = make(DQN, VECTOR, CHOICE, target_period=1)
    model = begin(algorithm)
    algorithm.update(model, random_transitions(CHOICE))
    before, target = copied(model), copied(algorithm.target)
    bad = random_transitions(CHOICE, seed=1, number=2)
    bad.reward[0] = reward
    with pytest.raises(NonFiniteUpdate, match="q loss"):
        algorithm.update(model, bad)
    assert not changed(model, before) and not changed(algorithm.target, target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exploration": 1.5}, "exploration=1.5 is not legal"),
        ({"priority_beta_final": -0.1}, "priority_beta_final=-0.1 is not legal"),
        ({"priority_alpha": -1.0}, "priority_alpha=-1.0 is not legal"),
        ({"target_period": 0}, "target_period=0 is not legal"),
        ({"max_grad_norm": 0.0}, "max_grad_norm=0.0 is not legal"),
        ({"optimizer": "sgd"}, "optimizer='sgd' is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(DQN, VECTOR, CHOICE, **settings)
    assert message in str(refusal.value)


def test_in_bfloat16_the_gradient_of_the_head_is_float32():
    algorithm = make(DQN, VECTOR, CHOICE, hidden_sizes=(16, 16), precision="bfloat16")
    model = begin(algorithm)
    with torch.autocast("cpu"):
        algorithm.update(model, random_transitions(CHOICE, number=1))
    gradient = model.head.weight.grad
    assert (gradient.bfloat16().float() != gradient).any()
