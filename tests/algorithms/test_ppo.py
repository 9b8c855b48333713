"""PPO's loss and settings."""

import pytest
import torch

from penstock.algorithms.arithmetic.losses import normalize_advantage
from penstock.algorithms.arithmetic.returns import gae
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
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
from tests.nn.plain import CHOICE, TORQUE


@pytest.mark.parametrize("memory", MEMORIES)
def test_before_the_first_update_the_gradient_is_that_of_advantage_times_log_prob(memory):
    algorithm = make(PPO, memory=memory, **settings_alone())
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    loss, metrics = algorithm.evaluate(model, batch)
    policy, _ = model.evaluate(batch.obs, batch.first, batch.memory)
    policy = policy if memory == "none" else policy[:-1]
    advantage = normalize_advantage(batch.targets["advantage"], batch.learn)
    plain = -(advantage * policy.log_prob(batch.action)).mean()
    expected = gradients(plain, model)
    for name, gradient in gradients(loss, model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)
    assert metrics["approx_kl"].item() == pytest.approx(0.0, abs=1e-6) and metrics["clip_fraction"].item() == 0.0


def test_advantages_and_targets_are_gae_of_the_values_at_collection_time():
    algorithm = make(PPO, gamma=0.9, gae_lambda=0.8)
    model = make_model(algorithm)
    valid = torch.ones(T, B, dtype=torch.bool)
    valid[3, 1] = False
    batch = collect(algorithm, model, valid=valid)
    algorithm.prepare(model, batch)
    value = model.evaluate(batch.obs, batch.first, batch.memory)[1].detach()
    advantage, target = gae(batch.reward, value, batch.terminated, batch.truncated, gamma=0.9, lambda_=0.8, valid=valid)
    assert torch.equal(batch.targets["advantage"], advantage) and torch.equal(batch.targets["return"], target)
    assert torch.equal(batch.targets["old_value"], value[:-1])
    assert not any(target.requires_grad for target in batch.targets.values())


def test_the_loss_is_the_sum_of_its_weighted_terms():
    algorithm = make(PPO, value_coef=0.7, entropy_coef=0.3)
    model = make_model(algorithm)
    loss, metrics = algorithm.evaluate(model, whole(algorithm, prepared(algorithm, model)))
    expected = metrics["policy_loss"] + 0.7 * metrics["value_loss"] - 0.3 * metrics["entropy"]
    assert loss.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(("log_ratio", "is_clipped"), [(0.17, False), (0.19, True), (-0.21, False), (-0.23, True)])
def test_ratios_count_up_to_1_minus_and_1_plus_the_clip_range(log_ratio, is_clipped):
    algorithm = make(PPO, clip_range=0.2)  # log 1.2 = 0.182, log 0.8 = -0.223
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    batch.log_prob = batch.log_prob - log_ratio
    assert algorithm.evaluate(model, batch)[1]["clip_fraction"].item() == float(is_clipped)


def test_values_move_freely_unless_their_clip_range_is_set():
    algorithm = make(PPO, value_clip_range=0.1)
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    batch.targets["old_value"] = batch.targets["return"] - 50.0  # what moved from there to V counts as moved by 0.1
    clipped = algorithm.evaluate(model, batch)[1]["value_loss"].item()
    assert clipped == pytest.approx(0.5 * 49.9**2, rel=1e-4)
    free = make(PPO)
    assert free.evaluate(model, batch)[1]["value_loss"].item() < clipped / 4


def test_masked_steps_change_neither_the_loss_nor_its_gradient():
    algorithm = make(PPO)
    model = make_model(algorithm)
    batch = whole(algorithm, prepared(algorithm, model))
    batch.learn = batch.learn.clone()
    batch.learn[[2, 9]] = 0.0
    loss, metrics = algorithm.evaluate(model, batch)
    before = gradients(loss, model)
    batch.targets = {name: x.clone() for name, x in batch.targets.items()}
    batch.targets["advantage"][[2, 9]] = 1e6
    batch.targets["return"][[2, 9]] = -1e6
    batch.log_prob = batch.log_prob.clone()
    batch.log_prob[[2, 9]] = -300.0
    other, other_metrics = algorithm.evaluate(model, batch)
    assert other.item() == pytest.approx(loss.item())
    for name, gradient in gradients(other, model).items():
        torch.testing.assert_close(gradient, before[name], msg=name)
    for name, value in metrics.items():
        assert other_metrics[name].item() == pytest.approx(value.item()), name


def test_padding_of_a_continuous_action_far_from_the_policy_brings_no_nan():
    algorithm = make(PPO, action=TORQUE, continuous_actions="clipped")
    model = make_model(algorithm)
    with torch.no_grad():
        model.log_std.fill_(-15.0)  # the density of the mean is then e^28 in two dimensions
    batch = whole(algorithm, prepared(algorithm, model))
    batch.learn = batch.learn.clone()
    batch.learn[5] = 0.0
    batch.log_prob = batch.log_prob.clone()
    batch.log_prob[5] = -300.0
    loss, _ = algorithm.evaluate(model, batch)
    assert torch.isfinite(loss) and all(torch.isfinite(g).all() for g in gradients(loss, model).values())


@pytest.mark.parametrize("memory", ["gru", "lstm"])
def test_the_memory_core_is_trained_through_time(memory):
    algorithm = make(PPO, memory=memory)
    model = make_model(algorithm)
    batch = prepared(algorithm, model)
    batch.first = torch.zeros_like(batch.first)
    batch.learn = torch.zeros_like(batch.learn)
    batch.learn[-1] = 1.0  # only the last step is learned from, and reaches back through the rows before it
    batch.obs.requires_grad_()
    loss, _ = algorithm.evaluate(model, batch)
    reached = torch.autograd.grad(loss, batch.obs, retain_graph=True)[0]
    assert reached[0].any() and gradients(loss, model)["memory.cell.weight_hh"].any()


def test_the_batch_is_one_segment_of_every_lane():
    algorithm = make(PPO, num_workers=3)
    assert algorithm.config.segments_per_batch == 3 * B and algorithm.synchronous


def test_a_batch_size_that_does_not_divide_what_the_lanes_collect_is_refused_with_the_arithmetic():
    with pytest.raises(ConfigError, match=r"batch_size=18 does not divide the 24 steps that 4 lanes .*segments of 6"):
        make(PPO, batch_size=18)


@pytest.mark.parametrize("algorithm", [PPO, PQN])
def test_minibatches_are_steps_without_memory_and_whole_segments_with_it(algorithm):
    alone = {"num_workers": 1, "num_envs_per_worker": 1, "segment_length": 2048, "batch_size": 64}
    assert make(algorithm, CHOICE, **alone).config.segments_per_batch == 1
    with pytest.raises(ConfigError, match=r"batch_size=64 is not a whole number of segments: .* segment_length=2048"):
        make(algorithm, CHOICE, memory="gru", **alone)
    with pytest.raises(ConfigError, match="batch_size=0 is not legal: batch_size must be more than 0"):
        make(algorithm, CHOICE, **{**alone, "batch_size": 0})


def test_returns_are_normalised_for_the_value_head_alone():
    algorithm = make(PPO, normalize_returns=True)
    model = make_model(algorithm)
    plain = prepared(algorithm, model)
    model.return_moments.count.zero_()  # without the prior
    model.update_return_statistics(torch.tensor([90.0, 110.0]))  # mean 100, deviation 10
    batch = collect(algorithm, model)
    algorithm.prepare(model, batch)
    _, head = model.evaluate(batch.obs, batch.first, batch.memory)
    _, target = gae(batch.reward, 100 + 10 * head.detach(), batch.terminated, batch.truncated,
                    gamma=algorithm.config.gamma, lambda_=algorithm.config.gae_lambda, valid=batch.valid)  # fmt: skip
    torch.testing.assert_close(batch.targets["return"], (target - 100) / 10, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain.targets["return"], batch.targets["return"])
    algorithm.update_statistics(model, batch)
    merged = torch.cat((torch.tensor([90.0, 110.0]), target.flatten()))
    assert model.return_moments.mean.item() == pytest.approx(merged.mean().item(), rel=1e-4)
