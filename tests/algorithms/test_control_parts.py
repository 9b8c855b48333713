"""Parts around the learners of continuous control: scale of rewards, resets, entropy of a standard deviation."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import penstock
from penstock.algorithms.apex_dpg import ApeXDPG
from penstock.algorithms.bases.continuous import RETURN_RATE, ReturnScale
from penstock.algorithms.crossq import CrossQ
from penstock.algorithms.sac import SAC
from penstock.algorithms.td3 import TD3
from penstock.config import ConfigError
from penstock.envs.spaces import ActionSpec
from penstock.runs.tensors import as_bytes, from_bytes
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    make,
    random_transitions,
)


def with_returns(number=1, returns=(1.0, -3.0), **settings):
    """A batch with running returns."""
    batch = random_transitions(TORQUE, size=len(returns), number=number, **settings)
    return dataclasses.replace(batch, running_return=torch.tensor(returns))


# --- the scale of rewards --------------------------------------------------------------------------------------------


def test_rewards_are_divided_by_the_deviation_of_returns_or_by_what_keeps_the_largest_within_the_bound():
    """Returns 1 and -3 have mean -1, deviation 2 and a largest magnitude of 3: 2 with bound 5, 3 with bound 1."""
    for bound, divisor in ((5.0, 2.0), (1.0, 3.0)):
        algorithm = make(SAC, VECTOR, TORQUE, return_bound=bound)
        model = begin(algorithm)
        batch = with_returns()
        scaled, metrics = algorithm.prepare(model, batch)
        torch.testing.assert_close(scaled.reward, batch.reward / divisor)
        assert metrics["reward_divisor"].item() == pytest.approx(divisor)


def test_the_moments_of_returns_are_weighted_means_and_the_largest_is_never_forgotten():
    bounded, free = (ReturnScale(bound, torch.device("cpu")) for bound in (5.0, 1e9))
    batches = np.random.default_rng(0).normal(3.0, 2.0, (40, 8)).astype(np.float32)
    batches[0, 0] = 100.0
    for batch in torch.from_numpy(batches):
        found = tuple(scale.update(batch, torch.zeros(8)).item() for scale in (bounded, free))
    weights = (1.0 - RETURN_RATE) ** np.arange(40)[::-1]
    mean, square = (np.average((batches.astype(float) ** power).mean(1), weights=weights) for power in (1, 2))
    assert found == pytest.approx((20.0, math.sqrt(square - mean**2)), rel=1e-6)


def test_without_any_reward_nothing_is_divided_by_zero():
    scale = ReturnScale(5.0, torch.device("cpu"))
    assert 0.0 < scale.update(torch.zeros(4), torch.zeros(4)).item() <= 1e-8


def test_a_reward_of_later_steps_stays_within_the_bound_while_all_running_returns_are_0():
    """With n_step a row has the running return of its first step, and the rewards of the next ones."""
    algorithm = make(SAC, VECTOR, TORQUE, return_bound=5.0, n_step=3)
    model = begin(algorithm)
    drawn = dataclasses.replace(with_returns(returns=(0.0, 0.0)), reward=torch.tensor([0.0, 1.0]))
    scaled, _ = algorithm.prepare(model, drawn)
    assert scaled.reward.tolist() == pytest.approx([0.0, 5.0])


def test_the_moments_go_on_from_a_checkpoint():
    before, after = (make(SAC, VECTOR, TORQUE, return_bound=5.0) for _ in range(2))
    model = begin(before)
    before.prepare(model, with_returns())
    saved = from_bytes(as_bytes(before.learning_state()))
    begin(after)
    after.begin(model, saved)
    expected, _ = before.prepare(model, with_returns(returns=(8.0, 9.0)))
    found, _ = after.prepare(model, with_returns(returns=(8.0, 9.0)))
    assert torch.equal(found.reward, expected.reward)


def test_a_run_learns_from_scaled_rewards_of_its_replay():
    trainer = penstock.SAC(
        "Pendulum-v1", backend="serial", num_workers=1, num_envs_per_worker=2, run_dir=None, eval_interval=0,
        learning_starts=64, batch_size=32, hidden_sizes=(8,), total_steps=400, return_bound=5.0, noise_hold=16,
        reset_interval=100, target_std=0.15,
    )  # fmt: skip
    with trainer:
        trainer.train()
        divisor = trainer.status.losses["reward_divisor"]
    # Rewards are between -16.3 and 0 with gamma 0.99: returns of -100 and less in the first 200 steps.
    assert 20.0 < divisor < 16.3 / 0.01 / 5.0


# --- resets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [SAC, TD3, CrossQ])
def test_a_reset_replaces_all_weights_and_optimisers_and_keeps_the_normalisation_of_observations(kind):
    algorithm = make(kind, VECTOR, TORQUE, hidden_sizes=(8,), reset_interval=3, normalize_observations=True)
    model = begin(algorithm)
    model.update_observation_statistics(torch.randn(50, 2) + 4.0)
    for number in (1, 2, 3):
        batch, _ = algorithm.prepare(model, random_transitions(TORQUE, number=number))
        algorithm.update(model, batch)
    before, trained = copied(model), {name for name, _ in model.named_parameters()}
    algorithm.prepare(model, random_transitions(TORQUE, number=4))
    parameters = {name for name in changed(model, before) if name in trained}
    assert parameters >= {name for name in trained if "head" in name or "hidden" in name}
    assert torch.equal(model.input.moments.mean, before["input.moments.mean"]) and model.input.moments.count == 50
    assert not any(optimizer.state for optimizer in algorithm.optimizers.values())
    if kind is not CrossQ:
        assert not changed(algorithm.target, copied(model))
    after = copied(model)
    algorithm.prepare(model, random_transitions(TORQUE, number=5))
    assert not changed(model, after)
    algorithm.update(model, random_transitions(TORQUE, number=5))


def test_two_resets_draw_different_weights_and_the_same_seed_draws_the_same():
    def after_two_resets():
        algorithm = make(SAC, VECTOR, TORQUE, hidden_sizes=(8,), reset_interval=1, seed=3)
        model = begin(algorithm)
        found = [copied(model)]
        for number in (2, 3):
            algorithm.prepare(model, random_transitions(TORQUE, number=number))
            found.append(copied(model))
        return model, found

    (model, first), (_, second) = after_two_resets(), after_two_resets()
    name = "actor_head.weight"
    assert len({tuple(each[name].flatten().tolist()) for each in first}) == 3
    assert not changed(model, second[-1])


# --- the target of the entropy ---------------------------------------------------------------------------------------


def test_a_standard_deviation_sets_the_entropy_of_a_normal_distribution_as_the_target():
    """Two dimensions, 0.15: log(2 pi e 0.0225) = 2.8378771 - 3.7942400 = -0.9563629."""
    action = ActionSpec((2,), "float32", low=(-1.0,) * 2, high=(1.0,) * 2)
    assert make(SAC, VECTOR, action, target_std=0.15).target_entropy == pytest.approx(-0.9563629)
    assert make(SAC, VECTOR, action, target_entropy=-3.0).target_entropy == -3.0
    assert make(SAC, VECTOR, action).target_entropy == -2.0


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (SAC, {"noise_hold": 0}, "noise_hold=0 is not legal"),
        (SAC, {"return_bound": 0.0}, "return_bound=0.0 is not legal"),
        (SAC, {"reset_interval": 0}, "reset_interval=0 is not legal"),
        (SAC, {"target_std": -1.0}, "target_std=-1.0 is not legal"),
        (SAC, {"target_std": 0.1, "target_entropy": -1.0}, "target_std=0.1 and target_entropy=-1 both"),
        (SAC, {"return_bound": 5.0, "hindsight": "future"}, "relabelled steps have no running return"),
        (SAC, {"return_bound": 5.0, "rewards": "rudder"}, "return_bound=5: running returns"),
        (ApeXDPG, {"return_bound": 5.0}, "return_bound=5.0 is not legal"),
    ],
)
def test_illegal_settings_are_named(kind, settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(kind, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
