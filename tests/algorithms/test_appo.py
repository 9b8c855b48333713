"""APPO's loss and settings: PPO where experience is fresh, clipped and corrected where it is not."""

import pytest
import torch

from penstock.algorithms.appo import APPO, APPOConfig
from penstock.algorithms.arithmetic.losses import normalize_advantage
from penstock.algorithms.arithmetic.returns import vtrace
from penstock.algorithms.ppo import PPO
from penstock.config import ConfigError
from tests.algorithms.batches import (
    MEMORIES,
    B,
    T,
    collect,
    gradients,
    make,
    make_model,
    prepared,
    settings_alone,
    whole,
)
from tests.nn.plain import TORQUE


@pytest.mark.parametrize("memory", MEMORIES)
def test_on_fresh_experience_with_gae_it_is_ppo(memory):
    appo, ppo = (make(kind, memory=memory, entropy_coef=0.01) for kind in (APPO, PPO))
    model = make_model(appo)
    results = [a.evaluate(model, whole(a, prepared(a, model))) for a in (appo, ppo)]
    assert results[0][0].item() == pytest.approx(results[1][0].item(), rel=1e-6)
    expected = gradients(results[1][0], model)
    for name, gradient in gradients(results[0][0], model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_its_clip_range_is_asymmetric_from_1_over_1_plus_eps_to_1_plus_eps():
    # eps 0.1: [0.909091, 1.1].
    algorithm = make(APPO, clip_range=0.1)
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    fresh = batch.log_prob
    for ratio, is_clipped in ((0.9089, True), (0.9092, False), (1.0999, False), (1.1001, True)):
        batch.log_prob = fresh - torch.tensor(ratio).log()
        assert algorithm.evaluate(model, batch)[1]["clip_fraction"].item() == float(is_clipped), ratio


@pytest.mark.parametrize(("sign", "bound"), [(1.0, 1.1), (-1.0, 1 / 1.1)])
def test_beyond_the_bounds_the_objective_stands_still(sign, bound):
    algorithm = make(APPO, clip_range=0.1, **settings_alone())
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    batch.log_prob = batch.log_prob - sign  # ratios e and 1 / e
    advantage = normalize_advantage(batch.targets["advantage"], batch.learn)
    ratio = torch.tensor(sign).exp()
    loss, _ = algorithm.evaluate(model, batch)
    expected = -torch.minimum(ratio * advantage, bound * advantage).mean()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("memory", MEMORIES)
def test_with_vtrace_targets_come_from_the_ratios_of_this_very_update(memory):
    algorithm = make(APPO, memory=memory, advantage_estimator="vtrace", rho_bar=1.5, c_bar=0.9,
                     **settings_alone(value_coef=1.0))  # fmt: skip
    assert algorithm.needs_segments
    model = make_model(algorithm)
    batch = prepared(algorithm, model)
    noise = torch.randn(batch.log_prob.shape, generator=torch.Generator().manual_seed(3))
    batch.log_prob = batch.log_prob + 0.3 * noise
    policy, values = model.evaluate(batch.obs, batch.first, batch.memory)
    log_ratio = policy[:-1].log_prob(batch.action) - batch.log_prob
    c = algorithm.config
    target, advantage = vtrace(
        batch.reward, values.detach(), batch.terminated, batch.truncated, log_ratio.detach(), gamma=c.gamma,
        lambda_=c.gae_lambda, rho_bar=1.5, c_bar=0.9, valid=batch.valid,
    )  # fmt: skip
    _, metrics = algorithm.evaluate(model, batch)
    assert metrics["value_loss"].item() == pytest.approx(0.5 * (values[:-1] - target).square().mean().item(), rel=1e-5)
    normal, ratio = normalize_advantage(advantage, batch.learn), log_ratio.exp()
    objective = torch.minimum(ratio * normal, ratio.clamp(1 / 1.2, 1.2) * normal).mean()
    assert metrics["policy_loss"].item() == pytest.approx(-objective.item(), rel=1e-4)


def test_vtrace_equals_gae_on_fresh_experience_and_differs_when_it_is_stale():
    settings = {"memory": "gru", **settings_alone()}
    algorithms = [make(APPO, advantage_estimator=name, **settings) for name in ("gae", "vtrace")]
    model = make_model(algorithms[0])

    def policy_gradients(shift):
        batch = prepared(algorithms[0], model)
        noise = torch.randn(batch.log_prob.shape, generator=torch.Generator().manual_seed(4))
        batch.log_prob = batch.log_prob + shift * noise
        losses = [algorithm.evaluate(model, batch)[0] for algorithm in algorithms]
        return [gradients(loss, model)["policy_head.weight"] for loss in losses]

    fresh, stale = policy_gradients(0.0), policy_gradients(0.5)
    assert fresh[0].any()
    torch.testing.assert_close(fresh[0], fresh[1])
    assert not torch.allclose(stale[0], stale[1], rtol=1e-2)


def test_no_gradient_flows_through_vtrace_targets():
    algorithm = make(APPO, advantage_estimator="vtrace", **settings_alone())
    model = make_model(algorithm)
    loss, _ = algorithm.evaluate(model, prepared(algorithm, model))
    of_the_loss = gradients(loss, model)
    assert of_the_loss["policy_head.weight"].any() and not of_the_loss["value_head.weight"].any()


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_how_likely_a_masked_action_was_changes_neither_the_loss_nor_its_gradient(estimator):
    algorithm = make(APPO, memory="gru", advantage_estimator=estimator)
    model = make_model(algorithm)
    batch = prepared(algorithm, model)
    batch.learn, batch.log_prob = batch.learn.clone(), batch.log_prob.clone()
    batch.learn[0, 2] = 0.0  # no trace passes through the first row
    results = []
    for log_prob in (-0.5, -400.0):
        batch.log_prob[0, 2] = log_prob
        loss, metrics = algorithm.evaluate(model, batch)
        results.append((loss.item(), metrics["approx_kl"].item(), gradients(loss, model)))
    assert results[0][:2] == results[1][:2]
    for name, gradient in results[0][2].items():
        assert torch.equal(gradient, results[1][2][name]), name


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
@pytest.mark.parametrize("action", ["discrete", "continuous"])
def test_a_minibatch_of_which_nothing_is_learned_has_a_loss_and_gradient_of_zero_and_no_nan(estimator, action):
    algorithm = make(APPO, advantage_estimator=estimator, **({"action": TORQUE} if action == "continuous" else {}))
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    batch.learn = torch.zeros_like(batch.learn)
    loss, metrics = algorithm.evaluate(model, batch)
    assert loss.item() == 0.0 and not any(g.any() for g in gradients(loss, model).values())
    assert all(torch.isfinite(metrics[name]) for name in ("policy_loss", "value_loss", "entropy", "approx_kl"))


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_memory_core_is_trained_through_time(memory, estimator):
    algorithm = make(APPO, memory=memory, advantage_estimator=estimator)
    model = make_model(algorithm)
    batch = prepared(algorithm, model)
    batch.first = torch.zeros_like(batch.first)
    batch.learn = torch.zeros_like(batch.learn)
    batch.learn[-1] = 1.0
    batch.obs.requires_grad_()
    loss, _ = algorithm.evaluate(model, batch)
    assert torch.autograd.grad(loss, batch.obs, retain_graph=True)[0][0].any()
    assert gradients(loss, model)["memory.cell.weight_hh"].any()


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_returns_are_normalised_for_the_value_head_alone(estimator):
    algorithm = make(APPO, normalize_returns=True, advantage_estimator=estimator)
    plain = make(APPO, normalize_returns=False, advantage_estimator=estimator)
    model = make_model(algorithm)
    model.return_moments.count.zero_()  # without the prior
    model.update_return_statistics(torch.tensor([-2.0, 2.0]))  # mean 0, deviation 2; values stay as they were
    bare = make_model(plain)
    metrics = [a.evaluate(m, whole(a, prepared(a, m)))[1] for a, m in ((algorithm, model), (plain, bare))]
    assert metrics[0]["policy_loss"].item() == pytest.approx(metrics[1]["policy_loss"].item(), rel=1e-4, abs=1e-6)
    assert metrics[0]["value_loss"].item() == pytest.approx(metrics[1]["value_loss"].item() / 4, rel=1e-4)
    batch = prepared(algorithm, model)
    algorithm.update_statistics(model, batch)
    assert model.return_moments.count.item() == 2 + batch.valid.sum().item()


class EvaluatedFirst(APPO):
    """Several updates' way of learning, for a single one too: targets come first, of an evaluation of their own."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        assert self.targets_for == ("update",)
        self.targets_for = ("batch",)
        self.needs_segments = self.config.memory != "none"


ONE_UPDATE = {"num_epochs": 1, "num_minibatches": 1, "batch_size": T * B, "value_coef": 0.5}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("normalize_returns", [False, True])
@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_one_update_learns_the_same_as_from_targets_that_were_found_before_it(estimator, normalize_returns, memory):
    learned = []
    for kind in (EvaluatedFirst, APPO):
        settings = {"advantage_estimator": estimator, "normalize_returns": normalize_returns, "memory": memory}
        algorithm = make(kind, **ONE_UPDATE, **settings)
        model = make_model(algorithm)
        model.update_return_statistics(torch.randn(100, generator=torch.Generator().manual_seed(0)) * 3.0 + 1.0)
        batch = collect(algorithm, model)
        batch.log_prob = batch.log_prob + 0.2 * torch.randn(T, B, generator=torch.Generator().manual_seed(5))
        batch.learn = batch.learn.clone()
        batch.learn[2, 1] = 0.0
        with torch.no_grad():
            algorithm.prepare(model, batch)
        (update,) = algorithm.minibatches(batch, torch.Generator())
        loss, metrics = algorithm.evaluate(model, update)
        learned.append(({"loss": loss, **metrics}, gradients(loss, model), batch.targets))
    (metrics, gradient, targets), (found, found_gradient, found_targets) = learned
    for name, expected in metrics.items():
        torch.testing.assert_close(found[name], expected, rtol=1e-5, atol=1e-6, msg=name)
    for name, expected in gradient.items():
        torch.testing.assert_close(found_gradient[name], expected, rtol=1e-4, atol=1e-6, msg=name)
    assert found_targets.keys() >= {"return", "advantage"}
    for name in found_targets:
        torch.testing.assert_close(found_targets[name], targets[name], rtol=1e-5, atol=1e-5, msg=name)
    assert not any(target.requires_grad for target in found_targets.values())


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
@pytest.mark.parametrize(("num_minibatches", "count"), [(1, 1), (2, 3)])
def test_a_batch_of_one_update_is_evaluated_once_and_one_of_several_once_before_them(
    estimator, num_minibatches, count, monkeypatch
):
    settings = {**ONE_UPDATE, "num_minibatches": num_minibatches, "batch_size": T * B // num_minibatches}
    algorithm = make(APPO, **settings, advantage_estimator=estimator, normalize_returns=True)
    model = make_model(algorithm)
    batch, seen, evaluate = collect(algorithm, model), [], model.evaluate
    monkeypatch.setattr(model, "evaluate", lambda *inputs: seen.append(1) or evaluate(*inputs))
    with torch.no_grad():
        algorithm.prepare(model, batch)
    for update in algorithm.minibatches(batch, torch.Generator()):
        algorithm.evaluate(model, update)
    assert len(seen) == count


@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_the_one_update_leaves_its_targets_to_the_return_statistics(estimator):
    algorithm = make(APPO, **ONE_UPDATE, advantage_estimator=estimator, normalize_returns=True)
    model = make_model(algorithm)
    batch = collect(algorithm, model)
    (update,) = algorithm.minibatches(batch, torch.Generator())
    algorithm.evaluate(model, update)
    before = model.return_moments.count.item()
    algorithm.update_statistics(model, batch)
    assert model.return_moments.count.item() == before + T * B


def test_a_batch_has_num_minibatches_minibatches_of_any_lanes():
    algorithm = make(APPO, num_minibatches=5)  # of 12 steps in segments of 6
    assert algorithm.config.segments_per_batch == 10 and not algorithm.synchronous


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_minibatches": 0}, "num_minibatches=0 is not legal"),
        ({"clip_range": 0.0}, "clip_range=0.0 is not legal"),
        ({"c_bar": 2.0}, "c_bar=2.0 is not legal: c_bar must be more than 0 and at most rho_bar=1.0"),
        ({"c_bar": 0.0}, "c_bar=0.0 is not legal"),
        ({"advantage_estimator": "v-trace"}, "did you mean 'vtrace'"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(APPO, **settings)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("lanes", "more", "epochs"),
    [
        (1, {}, 8),
        (32, {}, 8),  # 32 lanes / 16 segments x 2 minibatches: 4 updates of lag for each epoch
        (40, {}, 6),
        (64, {}, 4),
        (128, {}, 2),
        (512, {}, 2),
        (64, {"batch_size": 512}, 8),
        (64, {"num_minibatches": 4}, 4),  # more updates of a batch, and fewer batches
        (64, {"segment_length": 64}, 2),
        (512, {"num_epochs": 5}, 5),
    ],
)
def test_few_lanes_are_learned_from_more_often(lanes, more, epochs):
    config = APPOConfig(env="", num_workers=1, num_envs_per_worker=lanes, **more)
    assert config.resolved(encodes_images=False).num_epochs == epochs
    assert config.resolved(encodes_images=True).num_epochs == more.get("num_epochs", 2)
