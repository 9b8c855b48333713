"""A3C's loss: A2C's, summed, with an entropy bonus of each worker's own."""

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.a3c import A3C
from penstock.config import ConfigError
from tests.algorithms.batches import B, T, collect, gradients, learn, make, make_model, settings_alone
from tests.algorithms.given import GivenModel, a_segment, learned_from


@pytest.mark.parametrize("normalize_returns", [False, True])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_its_gradient_is_a2cs_times_the_number_of_steps(memory, normalize_returns):
    shared = {"memory": memory, "normalize_returns": normalize_returns, "gamma": 0.9, "entropy_coef": 0.03}
    a3c, averaging, a2c = make(A3C, **shared), make(A3C, reduction="mean", **shared), make(A2C, **shared)
    model = make_model(a3c)
    model.update_return_statistics(torch.randn(100, generator=torch.Generator().manual_seed(0)) * 3.0 + 1.0)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[3, 1] = False
    batch = collect(a3c, model, valid=valid)
    expected = gradients(learn(a2c, model, batch)[0], model)
    summed = gradients(learn(a3c, model, batch)[0], model)
    averaged = gradients(learn(averaging, model, batch)[0], model)
    for name, gradient in expected.items():
        torch.testing.assert_close(summed[name], (T * B - 1) * gradient, msg=name, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(averaged[name], gradient, msg=name, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("batch", "values", "returns"),
    [
        (a_segment([1.0, 1.0, 1.0]), [5.0, 4.0, 3.0, 10.0], [10.0, 10.0, 10.0]),
        (a_segment([1.0, 1.0, 1.0], terminated=1), [5.0, 4.0, 3.0, 10.0], [1.9, 1.0, 10.0]),
        (a_segment([1.0, 1.0, 0.0, 1.0], truncated=1), [5.0, 4.0, 4.0, 3.0, 10.0], [5.14, 4.6, 10.0]),
    ],
    ids=["no boundary", "terminated", "truncated"],
)
def test_returns_are_of_n_steps_and_the_value_of_what_follows_unless_nothing_does(batch, values, returns):
    algorithm = make(A3C, gamma=0.9, **settings_alone(value_coef=1.0))
    advantages, targets = learned_from(algorithm, values, batch)
    assert targets == pytest.approx(returns, rel=1e-5)
    of_steps = [value for value, is_step in zip(values, batch.valid[:, 0].tolist(), strict=False) if is_step]
    assert advantages == pytest.approx([r - v for r, v in zip(returns, of_steps, strict=True)], rel=1e-5)


def test_lambda_mixes_returns_of_all_lengths():
    algorithm = make(A3C, gamma=0.9, gae_lambda=0.95, **settings_alone(value_coef=1.0))
    advantages, _ = learned_from(algorithm, [0.5, 1.0, 1.5, 2.0], a_segment([1.0, 2.0, 3.0]))
    assert advantages == pytest.approx([5.8216325, 5.1715, 3.3], rel=1e-5)


def bonuses(num_workers, **settings):
    """Weights of the entropy bonus in the loss of a segment of each worker's last lane."""
    algorithm = make(A3C, num_workers=num_workers, **settings_alone(entropy_coef=0.01), **settings)
    batch = a_segment([0.0] * 4, lanes=num_workers)
    batch.lane = (batch.lane + 1) * B - 1
    model = GivenModel(torch.zeros(5, num_workers))
    loss, _ = algorithm.evaluate(model, batch)
    loss.backward()
    assert not model.entropies.grad[-1].any()
    return [-gradient for gradient in model.entropies.grad[0].tolist()]


def test_every_worker_has_an_entropy_bonus_of_its_own_evenly_spread_in_logarithms():
    assert bonuses(3, entropy_spread=2.0) == pytest.approx([0.005, 0.01, 0.02])
    assert bonuses(2, entropy_spread=4.0) == pytest.approx([0.0025, 0.04])
    assert bonuses(1, entropy_spread=2.0) == pytest.approx([0.01])
    assert bonuses(3) == pytest.approx([0.01] * 3)


def test_the_spread_goes_with_the_schedule_of_the_bonus():
    algorithm = make(A3C, num_workers=2, entropy_coef=0.4, entropy_coef_final=0.0, entropy_spread=2.0)
    batch = collect(algorithm, make_model(algorithm))
    batch.progress = 0.5
    assert algorithm.beta(batch).tolist() == pytest.approx([0.1] * B)  # all of them lanes of worker 0


def test_masked_steps_move_nothing():
    algorithm = make(A3C)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    batch.learn = batch.learn.clone()
    batch.learn[:2] = 0.0  # the first: what they bring reaches no other step's return
    before = gradients(learn(algorithm, model, batch)[0], model)
    batch.reward = batch.reward.clone()
    batch.reward[:2] = 1e3
    for name, gradient in gradients(learn(algorithm, model, batch)[0], model).items():
        torch.testing.assert_close(gradient, before[name], msg=name)


@pytest.mark.parametrize(
    ("settings", "legal"),
    [
        ({"inference": "central"}, "inference='central' is not legal: inference must be one of 'auto', 'local'"),
        ({"num_groups": 2}, "num_groups=2 is not legal: num_groups must be one of 1 or None"),
        ({"device": "cuda"}, "device must be one of 'cpu', found str"),
    ],
)
def test_workers_that_would_not_learn_by_themselves_are_refused(settings, legal):
    with pytest.raises(ConfigError) as refusal:
        make(A3C, **settings)
    assert legal in str(refusal.value)
    make(A3C, inference="local", num_groups=1, device="cpu")


@pytest.mark.parametrize("spread", [0.5, float("inf")])
def test_a_spread_is_finite_and_not_below_1(spread):
    legal = "entropy_spread must be a finite number, 1 or more"
    with pytest.raises(ConfigError, match=f"entropy_spread={spread} is not legal: {legal}"):
        make(A3C, entropy_spread=spread)
