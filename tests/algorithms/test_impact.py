"""IMPACT: the ratio that its surrogate is measured by, its target network, and its circular buffer."""

import math
from types import SimpleNamespace

import pytest
import torch

from penstock.algorithms.arithmetic.losses import normalize_advantage
from penstock.algorithms.arithmetic.returns import vtrace
from penstock.algorithms.impact import IMPACT, surrogate_ratio
from penstock.config import ConfigError
from penstock.engine.paths.circular_learner import CircularBatches, CircularLearner
from penstock.engine.paths.segment_learner import SegmentLearner
from tests.algorithms.batches import MEMORIES, collect, gradients, make, make_model, settings_alone


def begun(**settings):
    algorithm = make(IMPACT, **settings)
    model = make_model(algorithm)
    algorithm.begin(model)
    return algorithm, model


@pytest.mark.parametrize(("pi", "mu", "target", "expected"), [(0.3, 0.2, 0.4, 0.75), (0.3, 0.9, 0.3, 0.666667)])
def test_the_ratio_has_the_golden_values(pi, mu, target, expected):
    found = surrogate_ratio(*(torch.tensor(math.log(p)) for p in (pi, target, mu)), 2.0)
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_the_ratio_is_min_of_mu_over_target_and_rho_times_pi_over_mu():
    generator = torch.Generator().manual_seed(0)
    pi, target, mu = torch.rand(3, 10_000, generator=generator).clamp(min=1e-3)
    expected = torch.minimum(mu / target, torch.tensor(2.0)) * pi / mu
    torch.testing.assert_close(surrogate_ratio(pi.log(), target.log(), mu.log(), 2.0), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("memory", MEMORIES)
def test_where_all_three_policies_are_one_the_gradient_is_the_policy_gradient(memory):
    algorithm, model = begun(memory=memory, **settings_alone())
    batch = collect(algorithm, model)
    loss, metrics = algorithm.evaluate(model, batch)
    policy, _ = model.evaluate(batch.obs, batch.first, batch.memory)
    advantage = normalize_advantage(batch.targets["advantage"], batch.learn)
    expected = gradients(-(advantage * policy[:-1].log_prob(batch.action)).mean(), model)
    for name, gradient in gradients(loss, model).items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=name)
    assert metrics["clip_fraction"].item() == 0.0


def test_targets_are_of_the_target_policy_and_the_newest_values():
    algorithm, model = begun()
    batch = collect(algorithm, model)
    with torch.no_grad():
        model.policy_head.weight.mul_(0.1)
        model.value_head.weight.mul_(3.0)
        policy, _ = algorithm.target.evaluate(batch.obs)
        _, values = model.evaluate(batch.obs)
    algorithm.evaluate(model, batch)
    target, advantage = vtrace(
        batch.reward, values, batch.terminated, batch.truncated,
        policy[:-1].log_prob(batch.action) - batch.log_prob, gamma=0.99, lambda_=0.95, valid=batch.valid,
    )  # fmt: skip
    torch.testing.assert_close(batch.targets["return"], target)
    torch.testing.assert_close(batch.targets["advantage"], advantage)
    assert not any(target.requires_grad for target in batch.targets.values())


def test_the_target_network_is_the_model_of_every_target_period_and_is_restored():
    algorithm, model = begun(target_period=3)
    head = algorithm.target.policy_head.weight
    before = head.clone()
    with torch.no_grad():
        model.policy_head.weight.add_(1.0)
    for updates in (1, 2):
        algorithm.after_update(model, updates)
    assert torch.equal(head, before)
    algorithm.after_update(model, 3)
    assert torch.equal(head, model.policy_head.weight)
    other, other_model = begun()
    other.begin(other_model, algorithm.learning_state())
    assert torch.equal(other.target.policy_head.weight, head)


def test_the_target_network_normalises_observations_as_the_model_does():
    """By another normalisation, parameters of one network for one observation would differ."""
    algorithm, model = begun(normalize_observations=True)
    model.update_observation_statistics(5.0 + 3.0 * collect(algorithm, model).obs)
    batch = collect(algorithm, model)
    algorithm.evaluate(model, batch)
    policy, _ = model.evaluate(batch.obs, batch.first, batch.memory)
    torch.testing.assert_close(batch.targets["parameters"], policy[:-1].flat)


def test_the_penalty_pulls_towards_the_target_policy():
    algorithm, model = begun(kl_coef=1.0, **settings_alone())
    batch = collect(algorithm, model)
    assert algorithm.evaluate(model, batch)[1]["target_kl"].item() == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        model.policy_head.bias.add_(torch.tensor([1.0, 0.0, -1.0]))
    _, metrics = algorithm.evaluate(model, batch)
    policy, _ = model.evaluate(batch.obs)
    kl = algorithm.target.evaluate(batch.obs)[0][:-1].kl(policy[:-1]).mean()
    assert metrics["target_kl"].item() == pytest.approx(kl.item(), rel=1e-5) and kl > 0.1


def test_each_batch_is_handed_out_so_many_times_and_the_oldest_gives_way():
    batches = CircularBatches(3, 2, torch.Generator().manual_seed(0))
    assert batches.again() is None and len(batches) == 0
    for number in range(4):
        assert batches.put(number) == number, "a new one at once"
    assert len(batches) == 3
    handed_out = [batches.again() for _ in range(3)]
    assert sorted(handed_out) == [1, 2, 3], "0 has given way; each of the others once more"
    assert batches.again() is None and len(batches) == 0
    assert (batches.num_taken, batches.num_used) == (4, 7)


def test_one_batch_of_one_use_is_a_queue():
    batches = CircularBatches(1, 1, torch.Generator())
    for number in range(3):
        assert batches.put(number) == number and batches.again() is None and len(batches) == 0


@pytest.fixture
def with_a_kept_batch(monkeypatch):
    """A learner that has learned from half of its steps, and keeps one batch, from an earlier point of the run."""
    monkeypatch.setattr(SegmentLearner, "_weights_set", lambda learner: None)
    learner = object.__new__(CircularLearner)
    learner._config = SimpleNamespace(num_batches=1, total_steps=100)
    learner._steps = 50
    learner._batches = CircularBatches(1, 3, torch.Generator().manual_seed(0))
    learner._batches.put(collect(*begun()))
    return learner


def test_a_batch_that_is_used_again_is_a_replayed_one_of_the_present_point_of_the_run(with_a_kept_batch):
    batch = with_a_kept_batch._next_batch()
    assert batch.replayed.all() and batch.progress == 0.5


def test_batches_are_forgotten_when_weights_are_set_from_outside(with_a_kept_batch):
    with_a_kept_batch._weights_set()
    assert len(with_a_kept_batch._batches) == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"batch_uses": 0}, "batch_uses=0"), ({"rho_target": 0.0}, "rho_target=0.0"), ({"c_bar": 2.0}, "c_bar=2.0"),
     ({"kl_coef": -1.0}, "kl_coef=-1.0")],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(setting, message):
    with pytest.raises(ConfigError, match=f"{message} is not legal"):
        make(IMPACT, **setting)
