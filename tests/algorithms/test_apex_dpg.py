"""Ape-X DPG: what lanes record, first priorities that a learner would give, and how it learns from them."""

import gymnasium
import numpy as np
import pytest
import torch

from penstock.algorithms.apex_dpg import ApeXDPG
from penstock.algorithms.arithmetic.td import largest_error
from penstock.config import ConfigError
from penstock.engine.paths.replay import transition_buffer
from penstock.experience.batch import TransitionBatch
from penstock.replay import Prioritized
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    ZERO,
    begin,
    changed,
    copied,
    descend_plainly,
    distance_from_uniform,
    make,
    random_transitions,
    request,
    set_actor,
    set_critics,
    transitions,
)
from tests.engine.replaying import Replaying


class ShortEpisodes(gymnasium.Env):
    """Episodes of 3, 1 and 5 steps in turn, terminated and truncated; everything in them is a random number."""

    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def __init__(self):
        self.random, self.episode = np.random.default_rng(0), -1

    def reset(self, *, seed=None, options=None):
        self.episode, self.step_number = self.episode + 1, 0
        return self.random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        self.step_number += 1
        is_over = self.step_number == (3, 1, 5)[self.episode % 3]
        is_terminated = is_over and self.episode % 2 == 0
        return self.random.normal(size=2).astype(np.float32), 1.0, is_terminated, is_over and not is_terminated, {}


def linear(critic=ZERO, target=ZERO, **settings):
    """With critics that are given, and policies of zero."""
    algorithm = make(ApeXDPG, VECTOR, TORQUE, **settings)
    model = begin(algorithm)
    for network, given in ((model, critic), (algorithm.target, target)):
        set_critics(network, given)
        set_actor(network, [[0.0, 0.0]], [0.0])
    descend_plainly(algorithm)
    return algorithm, model


def test_recorded_are_the_values_of_the_action_taken_and_of_the_policys():
    """Q = 3 a + 1: the policy's action 0 is worth 1, and with noise of 0.3 times 0.5 and -1 it is 1.45 and 0.1."""
    algorithm, model = linear(critic=(0.0, 0.0, 3.0, 1.0))
    columns, _ = algorithm.act(model, request(torch.tensor([[0.5], [-1.0]])))
    torch.testing.assert_close(columns["action"], torch.tensor([[0.15], [-0.3]]))
    torch.testing.assert_close(columns["value"], torch.tensor([1.45, 0.1]))
    torch.testing.assert_close(columns["max_value"], torch.tensor([1.0, 1.0]))
    assert {column.name for column in algorithm.record_columns()} == {"value", "max_value"}


def test_until_learning_starts_actions_are_uniform_and_their_values_are_recorded():
    algorithm, model = linear(critic=(0.0, 0.0, 3.0, 1.0))
    noise = torch.randn(10_000, 1, generator=torch.Generator().manual_seed(0))
    columns, _ = algorithm.act(model, request(noise, steps=algorithm.config.learning_starts - 1))
    assert distance_from_uniform(columns["action"].flatten()) < 1.63
    torch.testing.assert_close(columns["value"], 3.0 * columns["action"].squeeze(1) + 1.0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_a_first_priority_is_the_td_error_that_a_learner_of_the_same_weights_finds(n_step):
    """Two lanes, before the first update: the learner's target is a copy of what acts."""
    run = Replaying(ApeXDPG, env=ShortEpisodes, num_envs_per_worker=2, n_step=n_step, learning_starts=200)
    run.algorithm.begin(run.model)
    given: dict[int, float] = {}

    def update(ids, priorities):
        given.update(zip(ids.tolist(), priorities.tolist(), strict=True))

    run.replay.buffer.update_priorities = update
    for _ in range(60):
        assert run.poll()
    rows = run.replay.buffer.get_all()
    assert list(given) == sorted(rows["ids"].tolist()) and len(given) > 80, "every transition has got one"
    assert (rows["discount"] == 0).any() and len(np.unique(rows["discount"])) == n_step + 1
    tensors = {name: torch.from_numpy(rows[name]) for name in ("obs", "next_obs", "action", "reward", "discount")}
    batch = TransitionBatch(**tensors, weights=torch.ones(len(rows["ids"])), number=1, progress=0.0)
    td_error, _ = run.algorithm.update(run.model, batch)
    found = [given[i] for i in rows["ids"].tolist()]
    np.testing.assert_allclose(found, largest_error(td_error).numpy(), rtol=1e-4, atol=1e-5)
    run.close()


def test_the_target_is_the_target_networks_value_of_its_own_action():
    """Q' = a', mu' = tanh(0.5): y = 1 + 0.9 tanh(0.5), and the online critic gives 0."""
    algorithm, model = linear(target=(0.0, 0.0, 1.0, 0.0))
    set_actor(algorithm.target, [[0.0, 0.0]], [0.5])
    error, _ = algorithm.update(model, transitions([[0.0, 0.0]], [[0.0]], [1.0], [0.9], [[0.0, 0.0]]))
    assert error.item() == pytest.approx(-1.0 - 0.9 * np.tanh(0.5), rel=1e-5)


@pytest.mark.parametrize(("limit", "bias", "weight"), [(1.0, 1.0, 1.0), (None, 3.0, 1.2), (0.5, 0.5, 0.5)])
def test_each_element_of_the_policys_gradient_is_clipped_by_itself(limit, bias, weight):
    """Q = 3 a, right about the action 0: slopes 3 in the bias, 3 * 0.4 = 1.2 and 0 in the weights of o = (0.4, 0)."""
    algorithm, model = linear(critic=(0.0, 0.0, 3.0, 0.0), max_actor_grad=limit)
    algorithm.update(model, transitions([[0.4, 0.0]], [[0.0]], [0.0], [0.0], [[0.0, 0.0]]))
    assert model.actor_head.bias.item() == pytest.approx(bias)
    assert model.actor_head.weight.flatten().tolist() == pytest.approx([weight, 0.0])


def test_targets_are_copied_after_every_target_period_updates():
    algorithm = make(ApeXDPG, VECTOR, TORQUE, hidden_sizes=(8,), target_period=3)
    model = begin(algorithm)
    copies = []
    for number in range(1, 8):
        before = copied(algorithm.target)
        algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        if changed(algorithm.target, before):
            assert not changed(algorithm.target, copied(model))
            copies.append(number)
    assert copies == [3, 6]


def test_its_defaults_are_the_papers():
    algorithm = make(ApeXDPG, VECTOR, TORQUE)
    c = algorithm.config
    assert (c.n_step, c.learning_rate, c.target_period) == (5, 1e-4, 100)
    assert (c.max_actor_grad, c.exploration_noise) == (1.0, 0.3)
    assert algorithm.sampler() == Prioritized(0.6, 0.4, normalize="buffer", eviction_alpha=-0.4)
    assert [algorithm.beta(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx([0.4] * 3)


def test_in_a_full_buffer_transitions_of_small_error_go_first():
    buffer = transition_buffer(make(ApeXDPG, VECTOR, TORQUE, buffer_size=1000))()
    step = {"obs": np.zeros(2), "action": np.zeros(1), "reward": 0.0, "next_obs": np.zeros(2)}
    step |= {"value": 0.0, "next_value": 0.0, "terminated": True, "truncated": False}
    for number in range(1000):
        buffer.add(**step, priorities=0.01 if number % 2 else 1.0)
    before = set(buffer.get_all()["ids"][1::2].tolist())
    for _ in range(500):
        buffer.add(**step, priorities=1.0)
    # At first one of small error goes 100 ** 0.4 = 6.3 times as likely as one of large error.
    assert len(before & set(buffer.get_all()["ids"].tolist())) < 200


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prioritized": False}, 'Ape-X DPG without priorities is "ddpg"'),
        ({"target_period": 0}, "target_period=0 is not legal"),
        ({"max_actor_grad": 0.0}, "max_actor_grad=0.0 is not legal"),
        ({"eviction_alpha": 0.4}, "eviction_alpha=0.4 is not legal: eviction_alpha must be 0 or less and finite"),
        ({"priority_alpha": 0.0}, "priority_alpha must be more than 0 with eviction_alpha=-0.4"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(ApeXDPG, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
