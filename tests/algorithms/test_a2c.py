"""A2C's loss: policy gradient with n-step returns, a special case of PPO's."""

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.arithmetic.rmsprop import RMSProp
from penstock.algorithms.ppo import PPO
from tests.algorithms.batches import B, T, collect, gradients, learn, make, make_model, settings_alone
from tests.algorithms.given import a_segment, learned_from


def a_batch(algorithm, model, **arguments):
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[3, 1] = False
    return collect(algorithm, model, valid=valid, **arguments)


@pytest.mark.parametrize("normalize_returns", [False, True])
@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_its_gradient_is_that_of_ppo_with_one_pass_over_one_minibatch_and_plain_advantages(memory, normalize_returns):
    shared = {"memory": memory, "normalize_returns": normalize_returns, "gamma": 0.9, "entropy_coef": 0.03}
    a2c = make(A2C, **shared)
    ppo = make(PPO, **shared, batch_size=T * B, num_epochs=1, gae_lambda=1.0, normalize_advantages=False)
    model = make_model(a2c)
    model.update_return_statistics(torch.randn(100, generator=torch.Generator().manual_seed(0)) * 3.0 + 1.0)
    found = gradients(learn(a2c, model, a_batch(a2c, model))[0], model)
    expected = gradients(learn(ppo, model, a_batch(ppo, model))[0], model)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6, msg=name)
        assert gradient.any(), name


@pytest.mark.parametrize(
    ("batch", "values", "returns"),
    [
        (a_segment([1.0, 1.0, 1.0]), [5.0, 4.0, 3.0, 10.0], [10.0, 10.0, 10.0]),  # R = 1 + 0.9 * 10
        # The future counts nothing after the end: R_1 = 1, R_0 = 1 + 0.9.
        (a_segment([1.0, 1.0, 1.0], terminated=1), [5.0, 4.0, 3.0, 10.0], [1.9, 1.0, 10.0]),
        # The final observation is worth 4: R_1 = 1 + 0.9 * 4, R_0 = 1 + 0.9 * 4.6.
        (a_segment([1.0, 1.0, 0.0, 1.0], truncated=1), [5.0, 4.0, 4.0, 3.0, 10.0], [5.14, 4.6, 10.0]),
    ],
    ids=["no boundary", "terminated", "truncated"],
)
def test_returns_are_of_n_steps_and_the_value_of_what_follows_unless_nothing_does(batch, values, returns):
    algorithm = make(A2C, gamma=0.9, **settings_alone(value_coef=1.0))
    advantages, targets = learned_from(algorithm, values, batch)
    assert targets == pytest.approx(returns, rel=1e-5)
    of_steps = [value for value, is_step in zip(values, batch.valid[:, 0].tolist(), strict=False) if is_step]
    assert advantages == pytest.approx([r - v for r, v in zip(returns, of_steps, strict=True)], rel=1e-5)


def test_lambda_mixes_returns_of_all_lengths():
    algorithm = make(A2C, gamma=0.9, gae_lambda=0.95, **settings_alone(value_coef=1.0))
    advantages, _ = learned_from(algorithm, [0.5, 1.0, 1.5, 2.0], a_segment([1.0, 2.0, 3.0]))
    assert advantages == pytest.approx([5.8216325, 5.1715, 3.3], rel=1e-5)


def test_masked_steps_change_neither_the_loss_nor_its_gradient():
    algorithm = make(A2C)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    batch.learn = batch.learn.clone()
    batch.learn[0, 2] = 0.0  # no return reaches back beyond the first row
    loss, _ = algorithm.evaluate(model, batch)
    batch.reward[0, 2] = 1e6
    other, _ = algorithm.evaluate(model, batch)
    before = gradients(loss, model)
    for name, gradient in gradients(other, model).items():
        torch.testing.assert_close(gradient, before[name], msg=name)


def test_how_the_action_came_about_does_not_matter():
    algorithm = make(A2C)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    loss = learn(algorithm, model, batch)[0].item()
    batch.log_prob = batch.log_prob - 3.0
    assert learn(algorithm, model, batch)[0].item() == loss


def test_the_loss_is_the_sum_of_its_weighted_terms():
    algorithm = make(A2C, value_coef=0.7, entropy_coef=0.3)
    model = make_model(algorithm)
    loss, metrics = learn(algorithm, model, collect(algorithm, model))
    expected = metrics["policy_loss"] + 0.7 * metrics["value_loss"] - 0.3 * metrics["entropy"]
    assert loss.item() == pytest.approx(expected.item())


def test_a_batch_is_one_segment_of_every_lane_and_one_update_by_rmsprop():
    algorithm = make(A2C, num_workers=3, rmsprop_eps_inside=False)
    assert algorithm.config.segments_per_batch == 3 * B and algorithm.synchronous
    model = make_model(algorithm)
    optimizer = algorithm.build_optimizer(model)
    assert isinstance(optimizer, RMSProp) and optimizer.defaults["eps_inside"] is False
    batch = collect(algorithm, model)
    assert [update is batch for update in algorithm.minibatches(batch, torch.Generator())] == [True]


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_a_batch_is_evaluated_once(memory, monkeypatch):
    algorithm = make(A2C, memory=memory)
    model = make_model(algorithm)
    batch, count, evaluate = collect(algorithm, model), [], model.evaluate
    monkeypatch.setattr(model, "evaluate", lambda *inputs: count.append(1) or evaluate(*inputs))
    learn(algorithm, model, batch)
    assert len(count) == 1 and not any(target.requires_grad for target in batch.targets.values())
