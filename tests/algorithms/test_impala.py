"""IMPALA's loss: V-trace's targets and advantages, computed anew by the learner."""

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.arithmetic.rmsprop import RMSProp
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from tests.algorithms.batches import B, T, collect, gradients, learn, make, make_model, settings_alone
from tests.algorithms.given import a_segment, learned_from

VALUES = [0.5, 1.0, 1.5, 2.0]
RATIOS = [0.5, 2.0, 1.0]


def traced(batch, values=VALUES, **settings):
    """V-trace's advantages and targets as the loss uses them."""
    return learned_from(make(IMPALA, gamma=0.9, **settings_alone(value_coef=1.0), **settings), values, batch)


def off_policy(algorithm, seed=0):
    """A network, and a batch that an older one has collected."""
    batch = collect(algorithm, make_model(algorithm, seed=1), seed)
    return make_model(algorithm), batch


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(
    ("batch", "values", "settings", "targets", "advantages"),
    [
        (a_segment([1.0, 2.0, 3.0]), VALUES, {}, [6.688, 6.32, 4.8], [6.188, 5.32, 3.3]),
        (a_segment([1.0, 2.0, 3.0], terminated=1), VALUES, {}, [2.8, 2.0, 4.8], [2.3, 1.0, 3.3]),
        (
            a_segment([1.0, 2.0, 0.0, 3.0], truncated=1), [0.5, 1.0, 4.0, 1.5, 2.0], {},
            [6.04, 5.6, 4.8], [5.54, 4.6, 3.3],
        ),
        (a_segment([1.0, 2.0, 3.0], ratios=RATIOS), VALUES, {}, [3.594, 6.32, 4.8], [3.094, 5.32, 3.3]),
        (
            a_segment([1.0, 2.0, 3.0], ratios=RATIOS), VALUES, {"rho_bar": 2.0},
            [4.6515, 8.67, 4.8], [4.1515, 5.32, 3.3],
        ),
        (
            a_segment([1.0, 2.0, 3.0]), VALUES, {"vtrace_lambda": 0.95},
            [6.3216325, 6.1715, 4.8], [5.8216325, 5.1715, 3.3],
        ),
    ],
    ids=["on policy", "terminated", "truncated", "off policy", "rho_bar", "lambda"],
)  # fmt: skip
def test_values_and_advantages_are_v_traces(batch, values, settings, targets, advantages, reduction):
    found = traced(batch, values, reduction=reduction, **settings)
    assert found[0] == pytest.approx(advantages, rel=1e-5) and found[1] == pytest.approx(targets, rel=1e-5)


def test_each_cut_of_the_ratio_changes_what_it_stands_for_and_nothing_else():
    batch = a_segment([1.0, 2.0, 3.0], ratios=RATIOS)
    advantages, targets = traced(batch)
    # rho_pg_bar: the advantage of the step whose ratio is 2 doubles, nothing else changes.
    assert traced(batch, rho_pg_bar=2.0) == (pytest.approx([3.094, 10.64, 3.3]), pytest.approx(targets))
    # c_bar: the errors are the same, their trace is cut shorter. e_1 = 2.35 + 0.9 * 0.5 * 3.3 = 3.835,
    # e_0 = 0.5 * 1.4 + 0.9 * 0.5 * 3.835 = 2.42575; pg_0 = 0.5 * (1 + 0.9 * 4.835 - 0.5), the others stay.
    assert traced(batch, c_bar=0.5) == (
        pytest.approx([2.42575, *advantages[1:]]),
        pytest.approx([2.92575, 4.835, 4.8]),
    )
    # rho_bar: the error of the step whose ratio is 2 doubles; advantages see it through the next step's target only.
    assert traced(batch, rho_bar=2.0) == (
        pytest.approx([4.1515, *advantages[1:]]),
        pytest.approx([4.6515, 8.67, 4.8]),
    )
    # rho_bar = c_bar = 2 also lets the trace through: e_1 = 2 * 2.35 + 0.9 * 2 * 3.3 = 10.64.
    assert traced(batch, rho_bar=2.0, c_bar=2.0)[1][1] == pytest.approx(11.64)


def test_summed_gradients_are_the_averaged_ones_times_the_number_of_steps_learned_from():
    settings = {"entropy_coef": 0.03}
    summing, averaging = make(IMPALA, **settings), make(IMPALA, reduction="mean", **settings)
    model, batch = off_policy(summing)
    batch.learn = batch.learn.clone()
    batch.learn[[1, 4], [0, 2]] = 0.0
    found = gradients(learn(summing, model, batch)[0], model)
    for name, gradient in gradients(learn(averaging, model, batch)[0], model).items():
        torch.testing.assert_close(found[name], (T * B - 2) * gradient, msg=name, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalize_returns", [False, True])
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_on_policy_and_averaged_its_gradient_is_a2cs(memory, normalize_returns):
    shared = {"memory": memory, "normalize_returns": normalize_returns}
    impala, a2c = make(IMPALA, reduction="mean", **shared), make(A2C, **shared)
    model = make_model(impala)
    model.update_return_statistics(torch.randn(100, generator=torch.Generator().manual_seed(0)) * 3.0 + 1.0)
    batch = collect(impala, model)
    expected = gradients(learn(a2c, model, batch)[0], model)
    for name, gradient in gradients(learn(impala, model, batch)[0], model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("other", [A2C, PPO])
def test_off_policy_its_gradient_is_its_own(other):
    impala = make(IMPALA, reduction="mean")
    batch_size = {"batch_size": T * B, "num_epochs": 1} if other is PPO else {}
    plain = {"normalize_advantages": False, "gae_lambda": 1.0} if other is PPO else {}
    model, batch = off_policy(impala)
    found = gradients(learn(impala, model, batch)[0], model)
    others = gradients(learn(make(other, **batch_size, **plain), model, batch)[0], model)
    for name in ("policy_head.weight", "value_head.weight"):
        assert (found[name] - others[name]).norm() > 0.05 * others[name].norm(), name


@pytest.mark.parametrize("memory", ["none", "gru", "lstm"])
def test_at_zero_lag_the_learner_finds_the_ratios_to_be_1_from_the_memory_that_segments_began_with(memory):
    algorithm = make(IMPALA, memory=memory)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    batch.first = torch.zeros_like(batch.first)  # every segment goes on with an episode
    with torch.no_grad():
        policy, _ = model.evaluate(batch.obs, batch.first, batch.memory)
    batch.log_prob = policy[:-1].log_prob(batch.action)

    def log_ratios():
        policy, _ = model.evaluate(batch.obs[:-1], batch.first[:-1], batch.memory)
        return algorithm.log_ratio(policy.log_prob(batch.action), batch)

    torch.testing.assert_close(log_ratios(), torch.zeros(T, B))
    assert learn(algorithm, model, batch)[1]["ratio"].item() == pytest.approx(1.0)
    batch.memory = torch.zeros_like(batch.memory)
    assert (log_ratios().abs().max() > 0.05) == (memory != "none")


def test_no_gradient_flows_through_targets_and_ratios():
    algorithm = make(IMPALA)
    model, batch = off_policy(algorithm)
    learn(algorithm, model, batch)
    assert batch.targets.keys() == {"return", "advantage", "log_ratio"}
    assert not any(target.requires_grad for target in batch.targets.values())


def test_masked_steps_move_nothing_but_their_rewards_still_count_before_them():
    algorithm = make(IMPALA, **settings_alone(value_coef=1.0), gamma=0.9)
    model, batch = off_policy(algorithm)
    batch.terminated, batch.truncated = torch.zeros_like(batch.terminated), torch.zeros_like(batch.truncated)
    batch.learn = batch.learn.clone()
    batch.learn[3] = 0.0
    before = gradients(learn(algorithm, model, batch)[0], model)
    _, value = model.evaluate(batch.obs, batch.first, batch.memory)
    (reached,) = torch.autograd.grad(learn(algorithm, model, batch)[0], model.value_head.bias)
    error = (value[:-1] - batch.targets["return"]) * batch.learn
    assert reached.item() == pytest.approx(error.sum().item(), rel=1e-4)

    batch.reward = batch.reward.clone()
    batch.reward[3] += 5.0
    earlier = learn(algorithm, model, batch)[0]
    assert not all(torch.allclose(gradient, before[name]) for name, gradient in gradients(earlier, model).items())
    batch.learn[:4] = 0.0  # no row up to it is learned from
    after = gradients(learn(algorithm, model, batch)[0], model)
    batch.reward[3] -= 9.0
    for name, gradient in gradients(learn(algorithm, model, batch)[0], model).items():
        torch.testing.assert_close(gradient, after[name], msg=name)


def test_the_loss_is_the_sum_of_its_weighted_terms_and_the_entropy_is_reported_per_step():
    algorithm = make(IMPALA, value_coef=0.7, entropy_coef=0.3)
    model, batch = off_policy(algorithm)
    loss, metrics = learn(algorithm, model, batch)
    expected = metrics["policy_loss"] + 0.7 * metrics["value_loss"] - 0.3 * T * B * metrics["entropy"]
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_it_takes_whole_segments_once_and_learns_by_rmsprop():
    algorithm = make(IMPALA)
    assert algorithm.needs_segments and not algorithm.synchronous and algorithm.config.segments_per_batch == 2
    model = make_model(algorithm)
    assert isinstance(algorithm.build_optimizer(model), RMSProp)
    batch = collect(algorithm, model)
    assert list(algorithm.minibatches(batch, torch.Generator())) == [batch]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"c_bar": 2.0}, "c_bar=2.0 is not legal: c_bar must be more than 0 and at most rho_bar=1.0"),
        ({"rho_pg_bar": 0.0}, "rho_pg_bar=0.0 is not legal"),
        ({"vtrace_lambda": 1.1}, "vtrace_lambda=1.1 is not legal: vtrace_lambda must be from 0 to 1"),
        ({"batch_size": 13}, "batch_size=13 is not a whole number of segments"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        make(IMPALA, **settings)
