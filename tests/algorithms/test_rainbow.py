"""Rainbow, and what it is made of as switches of DQN and Ape-X: distributions of returns, and noisy layers."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import smooth_l1_loss

from penstock.algorithms.apex import ApeX
from penstock.algorithms.arithmetic.rescaling import rescale
from penstock.algorithms.bases.q_losses import SupportWatch
from penstock.algorithms.dqn import DQN
from penstock.algorithms.r2d2 import R2D2
from penstock.algorithms.rainbow import Rainbow
from penstock.config import ConfigError, make_config
from penstock.engine.acting.device_inference import WatchedRequest
from penstock.nn import NoisyGreedy
from penstock.nn.noisy import noise_of_lanes
from penstock.nn.q_heads import NoisyDuelingHead
from penstock.replay import Prioritized
from tests.algorithms.projecting import projected_plainly
from tests.algorithms.transitions import (
    CHAIN,
    STATE,
    VECTOR,
    begin,
    descend_plainly,
    make,
    random_transitions,
    request,
    set_outputs,
    tables,
    transitions,
)
from tests.nn.plain import CHOICE

KINDS = ["c51", "quantile", "iqn"]
SUPPORT = {"num_atoms": 5, "v_min": 0.0, "v_max": 4.0}


def with_outputs(online, target, **settings):
    algorithm = make(DQN, STATE, CHOICE, max_grad_norm=None, **settings)
    model = begin(algorithm)
    set_outputs(model, online)
    set_outputs(algorithm.target, target)
    return algorithm, model


# --- what is learned -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
def test_c51_moves_towards_the_projected_distribution_of_the_best_next_action(double):
    online, target = tables(5, seed=4)
    algorithm, model = with_outputs(online, target, distributional="c51", double=double, **SUPPORT)
    batch = transitions([0, 1], [1, 2], [0.5, 3.0], [0.9, 0.0], [1, 0], weights=[1.0, 0.25])
    atoms = torch.arange(5.0)
    of_online, of_target = (torch.tensor(table).softmax(-1) @ atoms for table in (online, target))
    assert of_online[1].argmax() != of_target[1].argmax(), "it matters who chooses"
    chooser = of_online if double else of_target
    expected = []
    for obs, action, reward, discount, next_obs in ((0, 1, 0.5, 0.9, 1), (1, 2, 3.0, 0.0, 0)):
        best = chooser[next_obs].argmax()
        m = projected_plainly(
            (reward + discount * atoms).tolist(), torch.tensor(target[next_obs][best]).softmax(0).tolist(),
            atoms.tolist(),
        )  # fmt: skip
        p = torch.tensor(online[obs][action]).softmax(0).tolist()
        expected.append(sum(a * (math.log(a) - math.log(b)) for a, b in zip(m, p, strict=True) if a))
    descend_plainly(algorithm)
    before = model.head.weight.detach().clone()
    priority, metrics = algorithm.update(model, batch)
    assert priority.tolist() == pytest.approx(expected, rel=1e-4)
    assert metrics["loss"].item() == pytest.approx((expected[0] + 0.25 * expected[1]) / 2, rel=1e-4)
    q = [(torch.tensor(online[s][a]).softmax(0) @ atoms).item() for s, a in ((0, 1), (1, 2))]
    assert metrics["q"].mean().item() == pytest.approx(sum(q) / 2, rel=1e-4)
    moved = (before - model.head.weight.detach()).abs().sum(1).unflatten(0, (3, 5)).sum(1)
    assert moved[0] == 0 and moved[1] > 0 and moved[2] > 0, "only what is said of the actions taken is learned"


@pytest.mark.parametrize("double", [False, True])
def test_quantiles_move_towards_those_of_the_best_next_action(double):
    online, target = tables(4, seed=2)
    algorithm, model = with_outputs(online, target, distributional="quantile", num_quantiles=4, double=double)
    batch = transitions([0, 1], [1, 2], [0.5, 3.0], [0.9, 0.0], [1, 0], weights=[1.0, 0.25])
    chooser = torch.tensor(online if double else target).mean(-1)
    expected = []
    for obs, action, reward, discount, next_obs in ((0, 1, 0.5, 0.9, 1), (1, 2, 3.0, 0.0, 0)):
        best = chooser[next_obs].argmax()
        total = 0.0
        for i, theta in enumerate(online[obs][action]):
            for z in target[next_obs][best]:
                y = reward + discount * z
                huber = smooth_l1_loss(torch.tensor(theta), torch.tensor(y)).item()
                total += abs((2 * i + 1) / 8 - (y < theta)) * huber / 4
        expected.append(total)
    priority, metrics = algorithm.update(model, batch)
    assert (priority * 4).tolist() == pytest.approx(expected, rel=1e-4), "the priority is the mean over the quantiles"
    assert metrics["loss"].item() == pytest.approx((expected[0] + 0.25 * expected[1]) / 2, rel=1e-4)


def test_iqn_draws_its_fractions_anew_for_each_pass_and_row():
    algorithm = make(DQN, VECTOR, CHOICE, distributional="iqn", num_quantiles=7)
    model, seen = begin(algorithm), []
    for network in (model, algorithm.target):

        def watched(observation, noise=None, fractions=None, of=network.distributions):
            seen.append(fractions)
            return of(observation, noise, fractions)

        network.distributions = watched
    algorithm.update(model, random_transitions(CHOICE))
    algorithm.update(model, random_transitions(CHOICE))
    assert [fractions.shape for fractions in seen] == [(16, 7)] * 4
    numbers = torch.cat([fractions.flatten() for fractions in seen])
    assert len(numbers.unique()) > 440 and numbers.min() >= 0.0 and numbers.max() < 1.0


@pytest.mark.long
@pytest.mark.parametrize(("dueling", "noisy"), [(False, False), (True, True)])
@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_a_chain_is_learned_to_its_known_values(kind, dueling, noisy):
    algorithm = make(
        DQN, STATE, CHOICE, distributional=kind, learning_rate=0.03, target_period=10, double=True, dueling=dueling,
        noisy=noisy, noisy_sigma=0.1, num_atoms=9, v_min=-1.0, v_max=3.0, num_quantiles=8,
    )  # fmt: skip
    model = begin(algorithm)
    chain = replace(CHAIN, reward=torch.tensor([0.0, 1.0, 0.0, 2.0]))
    never = transitions([0, 1], [2, 2], [-1.0, -1.0], [0.0, 0.0], [0, 0])  # so that the third action is known, too
    batch = replace(
        chain, **{name: torch.cat((getattr(chain, name), getattr(never, name)))
                  for name in ("obs", "action", "reward", "discount", "next_obs", "weights")},
    )  # fmt: skip
    for number in range(1, 401):
        algorithm.update(model, replace(batch, number=number))
    expected = torch.tensor([[1.0, 2.0, -1.0]] * 2)
    torch.testing.assert_close(model.q(torch.tensor([0, 1])), expected, rtol=0, atol=0.15)


def test_distributions_of_rescaled_values_are_of_rescaled_targets():
    """Quantiles that are all 1.003 = h(3), reward 1 and discount 0.5: every target is h(2.5)."""
    constant = [[[1.003] * 4] * 3] * 2
    algorithm, model = with_outputs(constant, constant, distributional="quantile", num_quantiles=4, rescale_values=True)
    priority, _ = algorithm.update(model, transitions([0], [1], [1.0], [0.5], [1]))
    error = 1.003 - rescale(torch.tensor(2.5)).item()
    assert priority.tolist() == pytest.approx([sum(1 - (2 * i + 1) / 8 for i in range(4)) / 4 * error**2 / 2])


# --- noise -----------------------------------------------------------------------------------------------------------


def noise_seen(algorithm, updates):
    """The noise of each pass of some updates."""
    model, seen = begin(algorithm), []
    for network in (model, algorithm.target):
        for name in ("q", "distributions"):
            found = getattr(network, name)

            def watched(observation, noise=None, *more, of=found):
                seen.append(noise)
                return of(observation, noise, *more)

            setattr(network, name, watched)
    for number in range(1, updates + 1):
        algorithm.update(model, random_transitions(CHOICE, number=number))
    return seen


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_every_pass_of_an_update_has_noise_of_its_own(kind):
    """The target's, the online network's choice and its values, in three updates: nine times other noise."""
    seen = noise_seen(make(DQN, VECTOR, CHOICE, distributional=kind, noisy=True, double=True), 3)
    assert len(seen) == 9 and len({tuple(noise.tolist()) for noise in seen}) == 9
    assert all(noise.shape == (2 + 3 * {"c51": 51, "quantile": 32}.get(kind, 1),) for noise in seen)
    again = noise_seen(make(DQN, VECTOR, CHOICE, distributional=kind, noisy=True, double=True), 3)
    assert all(torch.equal(a, b) for a, b in zip(seen, again, strict=True)), "it comes of the run's seed"
    assert not any(noise_seen(make(DQN, VECTOR, CHOICE, distributional=kind, double=True), 1))


@pytest.mark.parametrize("algorithm", [DQN, ApeX, Rainbow])
def test_a_noisy_network_explores_by_noise_alone_with_any_schedule(algorithm):
    """Every number is below exploration=1, and yet every action is the best of the lane's own noisy values."""
    made = make(algorithm, VECTOR, CHOICE, noisy=True, exploration=1.0, num_envs_per_worker=50, buffer_size=1_000)
    model, number = begin(made), torch.linspace(0.0, 0.99, 50).unsqueeze(1)
    columns, _ = made.act(model, request(number, steps=0))
    noise = noise_of_lanes(number, model.noise_size)
    best = [model.q(torch.zeros(1, 2), row).argmax().item() for row in noise]
    assert columns["action"].tolist() == best and len(set(best)) > 1
    assert isinstance(model.act(torch.zeros(1, 2), torch.zeros(1, dtype=torch.bool), torch.zeros(1, 0))[0], NoisyGreedy)


def test_noisy_acting_looks_at_no_steps_so_that_a_graph_can_be_captured():
    for noisy in (False, True):
        made = make(DQN, VECTOR, CHOICE, noisy=noisy)
        asked = WatchedRequest(**vars(request(torch.rand(2, 1))))
        made.act(begin(made), asked)
        assert asked.steps_were_read is not noisy


def test_it_is_said_when_noise_leaves_an_exploration_schedule_without_effect():
    made = make(DQN, VECTOR, CHOICE, noisy=True, exploration=0.5, exploration_steps=7)
    begin(made)
    expected = "noisy=True: no action is drawn at random, and exploration=0.5, exploration_steps=7 has no effect"
    assert made.remarks == [expected]
    for settings in ({"noisy": True}, {"exploration": 0.5}):
        made = make(DQN, VECTOR, CHOICE, **settings)
        begin(made)
        assert made.remarks == []


@pytest.mark.parametrize("kind", ["none", *KINDS])
def test_ape_x_records_the_mean_values_that_actions_were_chosen_by(kind):
    made = make(ApeX, VECTOR, CHOICE, distributional=kind, noisy=True, num_envs_per_worker=3)
    model, number = begin(made), torch.tensor([[0.1], [0.5], [0.9]])
    columns, _ = made.act(model, request(number))
    q = torch.cat([model.q(torch.zeros(1, 2), row) for row in noise_of_lanes(number, model.noise_size)])
    torch.testing.assert_close(columns["value"], q.amax(1))
    torch.testing.assert_close(columns["max_value"], q.amax(1))
    assert columns["action"].tolist() == q.argmax(1).tolist()


def test_noise_goes_with_memory():
    made = make(R2D2, VECTOR, CHOICE, noisy=True, memory_size=4, num_envs_per_worker=2, buffer_size=1000)
    model = begin(made)
    asked = replace(request(torch.rand(2, 1)), memory=torch.zeros(2, model.state_size))
    columns, memory = made.act(model, asked)
    assert memory.shape == (2, 8) and columns["value"].isfinite().all()


# --- the support -----------------------------------------------------------------------------------------------------


def remarks_of(reward, updates, discount=0.0, **settings):
    """Remarks, and the last share outside, of updates on transitions with these rewards and this discount."""
    settings = {"v_min": -1.0, "v_max": 2.0} | settings
    algorithm = make(DQN, VECTOR, CHOICE, distributional="c51", **settings)
    model = begin(algorithm)
    batch = replace(
        random_transitions(CHOICE, size=4), reward=torch.tensor(reward), discount=torch.full((4,), discount),
        weights=torch.ones(4),
    )  # fmt: skip
    for number in range(1, updates + 1):
        _, metrics = algorithm.update(model, replace(batch, number=number))
    return algorithm.remarks, metrics["outside_support"].item()


def test_targets_outside_of_the_support_are_measured_and_said_once():
    remarks, share = remarks_of([0.0, 5.5, -3.0, 2.0], 300)
    assert share == 0.5
    assert remarks == [
        "50% of the targets lie outside the support, v_min=-1 to v_max=2, and are cut off: rewards, summed over "
        "n_step, range from -3 to 5.5; no return of such rewards lies outside -3 to 5.5; give that, or lower "
        "reward_scale or gamma"
    ]


def test_the_remark_says_a_support_that_holds_what_the_rewards_come_to():
    reward = [2.0, 1.0, 0.0, -0.5]
    (remark,), share = remarks_of(reward, 100, discount=0.75)  # 2 / (1 - 0.75) = 8, and -0.5 / (1 - 0.75) = -2
    assert share > 0.0
    assert "summed over n_step, range from -0.5 to 2; no return of such rewards lies outside -2 to 8;" in remark
    assert remarks_of(reward, 100, discount=0.75, v_min=-2.0, v_max=8.0) == ([], 0.0)


def test_the_support_that_is_said_is_of_rescaled_returns_where_these_are_learned():
    (remark,), _ = remarks_of([2.0, 1.0, 0.0, -0.5], 100, discount=0.75, v_max=0.5, rescale_values=True)
    assert "outside -0.7341 to 2.008;" in remark  # h(x) = sign(x) (sqrt(abs(x) + 1) - 1) + 0.001 x, of -2 and 8


def test_without_a_discount_no_support_is_said():
    (remark,), _ = remarks_of([9.0, 9.0, 0.0, 9.0], 100, discount=1.0)
    assert "without a discount, such rewards set no bound on returns; widen the support, or lower" in remark


@given(
    rows=st.lists(st.tuples(st.floats(-10, 10, width=32), st.floats(0, 0.875, width=32)), min_size=1, max_size=5),
    order=st.lists(st.integers(0, 4), min_size=1, max_size=30),
)
def test_no_order_of_transitions_has_a_return_outside_of_the_support_that_is_said(rows, order):
    said = []
    watch = SupportWatch(-1e-9, 1e-9, said.append)
    reward, discount = torch.tensor(rows).unbind(1)
    watch.see(torch.ones(()), reward, discount, 100)
    low, high = map(float, re.search(r"outside (\S+) to (\S+);", said[0]).groups())
    value = rows[0][0] / (1.0 - rows[0][1])  # in the end the first of them comes for ever
    for which in order:  # from behind
        number = which % len(rows)
        value = rows[number][0] + rows[number][1] * value
    slack = 1e-3 * (1.0 + abs(value))  # it is said with four digits
    assert low - slack <= value <= high + slack


@pytest.mark.parametrize(("reward", "updates"), [([-1.0, 2.0, 0.0, 1.0], 300), ([9.0] * 4, 99)])
def test_nothing_is_said_of_targets_inside_or_before_a_hundred_updates(reward, updates):
    assert remarks_of(reward, updates)[0] == []


@pytest.mark.parametrize("kind", ["none", "quantile", "iqn"])
def test_only_c51_has_a_support(kind):
    algorithm = make(DQN, VECTOR, CHOICE, distributional=kind)
    _, metrics = algorithm.update(begin(algorithm), random_transitions(CHOICE))
    assert set(metrics) == {"loss", "q", "grad_norm"}


# --- Rainbow ---------------------------------------------------------------------------------------------------------


def test_it_is_noisy_dueling_double_prioritized_c51_of_three_steps():
    algorithm = make(Rainbow, VECTOR, CHOICE)
    c = algorithm.config
    assert c.double and c.dueling and c.prioritized and c.noisy and c.n_step == 3 and c.distributional == "c51"
    assert algorithm.sampler() == Prioritized(0.5, 0.4, normalize="batch")
    assert [algorithm.beta(progress) for progress in (0.0, 1.0)] == pytest.approx([0.4, 1.0])
    model = begin(algorithm)
    assert isinstance(model.head, NoisyDuelingHead) and model.distributions(torch.zeros(1, 2))[0].shape == (1, 3, 51)


def test_the_preset_for_atari_has_the_papers_numbers():
    c = make_config(Rainbow.Config, {"env": "ALE/Pong-v5"}, preset="atari")
    assert (c.num_atoms, c.v_min, c.v_max, c.noisy_sigma, c.n_step) == (51, -10.0, 10.0, 0.5, 3)
    assert (c.learning_rate, c.optimizer, c.optimizer_eps, c.batch_size) == (6.25e-5, "adam", 1.5e-4, 32)
    assert (c.buffer_size, c.learning_starts, c.updates_per_step) == (1_000_000, 20_000, 0.25)
    assert c.target_period == 2_000, "8,000 steps"
    assert (c.priority_alpha, c.priority_beta, c.priority_beta_final) == (0.5, 0.4, 1.0)
    assert c.reward_clip == 1.0 and c.gamma == 0.99 and c.max_grad_norm == 10.0


def test_without_sigma_and_with_many_atoms_it_learns_as_dueling_double_dqn_does():
    """The mean of the target's distribution is DQN's target, and after many updates on one batch so is the value."""
    settings = {"dueling": True, "double": True, "n_step": 3, "learning_rate": 0.02, "target_period": 10**6}
    batch = random_transitions(CHOICE, size=3, seed=4)
    batch = replace(batch, weights=torch.ones(3))
    found = {}
    for name, own in (("dqn", {}), ("c51", {"distributional": "c51", "num_atoms": 201, "v_min": -5.0, "v_max": 5.0})):
        algorithm = make(DQN, VECTOR, CHOICE, **settings, **own)
        model = begin(algorithm)
        with torch.no_grad():
            for parameter in algorithm.target.parameters():
                parameter.zero_()  # Q is 0, of DQN and of evenly likely atoms, and so targets are the rewards
        for _ in range(600):
            algorithm.update(model, batch)
        found[name] = model.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found["dqn"], batch.reward, rtol=0, atol=0.1)
    torch.testing.assert_close(found["c51"], batch.reward, rtol=0, atol=0.3)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"),
    [
        (DQN, {"v_min": 5.0, "v_max": 5.0}, "v_min=5.0 is not legal: v_min must be less than v_max=5.0"),
        (Rainbow, {"v_min": 200.0}, "v_min=200.0 is not legal: v_min must be less than v_max="),
        (Rainbow, {"v_max": math.inf}, "v_max=inf is not legal: v_max must be finite"),
        (ApeX, {"num_atoms": 1}, "num_atoms=1 is not legal: num_atoms must be 2 or more"),
        (DQN, {"num_quantiles": 0}, "num_quantiles=0 is not legal: num_quantiles must be 1 or more"),
        (DQN, {"noisy_sigma": 0.0}, "noisy_sigma must be more than 0, and finite; noisy=False is without noise"),
        (DQN, {"distributional": "c52"}, "did you mean 'c51'?"),
        (DQN, {"distributional": "c51", "memory": "gru"}, "distributional='c51' cannot be combined with memory='gru'"),
        (R2D2, {"distributional": "iqn"}, 'use memory="none" or distributional="none"'),
    ],
)  # fmt: skip
def test_illegal_settings_are_named_with_what_is_legal(algorithm, settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(algorithm, VECTOR, CHOICE, **settings)
    assert message in str(refusal.value)


def test_priorities_of_every_kind_are_finite_and_not_negative():
    for kind in KINDS:
        algorithm = make(ApeX, VECTOR, CHOICE, distributional=kind)
        priority, _ = algorithm.update(begin(algorithm), random_transitions(CHOICE))
        assert priority.shape == (16,) and np.isfinite(priority.numpy()).all() and (priority >= -1e-6).all()
