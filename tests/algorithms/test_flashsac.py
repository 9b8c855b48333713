"""FlashSAC through its own update: distributions as targets, the delay of the policy, step sizes, fixed norms."""

import pytest
import torch

from penstock.algorithms.flashsac import FlashSAC, FlashSACConfig
from penstock.config import ConfigError, load_preset
from penstock.nn import TanhGaussian
from penstock.nn.norms import BatchNorm
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    make,
    random_transitions,
    steps_taken,
    transitions,
)


def small(**settings):
    algorithm = make(FlashSAC, VECTOR, TORQUE, **{"hidden_sizes": (8,), "critic_hidden_sizes": (8, 8), **settings})
    return algorithm, begin(algorithm)


def test_the_target_is_the_whole_distribution_of_the_critic_with_the_smaller_mean_moved_by_reward_and_entropy(
    monkeypatch,
):
    """Atoms -1, 0, 1; r = 0.25, d = 0.5, alpha 0.1, log pi -1: atoms move to 0.25 + 0.5 (z + 0.1) = -0.2, 0.3, 0.8.

    The means are -0.25 and 0.25, so that the first critic's probabilities 0.5, 0.25, 0.25 are projected:

        m(-1) = 0.5 * 0.2                          = 0.1
        m(0)  = 0.5 * 0.8 + 0.25 * 0.7 + 0.25 * 0.2 = 0.625
        m(1)  = 0.25 * 0.3 + 0.25 * 0.8             = 0.275

    With uniform predictions both critics have the divergence log 3 + sum m log m = 1.0986123 - 0.8790315.
    """
    algorithm, model = small(num_atoms=3, v_min=-1.0, v_max=1.0, alpha=0.1)
    probabilities = torch.tensor([[[0.5, 0.25, 0.25]], [[0.25, 0.25, 0.5]]])

    def ends(model, batch, next_action):
        return 0.0 * model.q(batch.obs, batch.action), probabilities.log()

    def draw(policy, noise):
        action = policy.mean.tanh()
        return action, 0.0 * action.sum(-1) - 1.0

    monkeypatch.setattr(algorithm, "both_ends", ends)
    monkeypatch.setattr(TanhGaussian, "sample_with_log_prob", draw)
    monkeypatch.setattr(BatchNorm, "update_moments", lambda norm, nonfinite: None)
    batch = transitions([[0.0, 0.0]], [[0.0]], [0.25], [0.5], [[0.0, 0.0]])
    divergence, metrics = algorithm.update(model, batch)
    torch.testing.assert_close(divergence, torch.full((2, 1), 0.2195808), rtol=0, atol=1e-6)
    assert metrics["critic_loss"].item() == pytest.approx(2 * 0.2195808, abs=1e-6)


def test_the_policy_and_the_temperature_move_at_every_second_update_and_the_target_at_every_one():
    algorithm, model = small()
    with algorithm.training_mode(model):
        for number in (1, 2, 3):
            moved, target = steps_taken(algorithm, model), copied(algorithm.target)
            algorithm.update(model, random_transitions(TORQUE, number=number))
            assert set(moved) == ({"critic", "actor", "alpha"} if number == 2 else {"critic"})
            name = "critics.head.weight"
            expected = target[name].lerp(model.state_dict()[name], 0.01)
            assert name in changed(algorithm.target, target)
            torch.testing.assert_close(algorithm.target.state_dict()[name], expected)


def test_after_an_update_weights_are_unit_vectors_and_scales_have_their_norm():
    algorithm, model = small()
    with algorithm.training_mode(model):
        for number in (1, 2):
            algorithm.update(model, random_transitions(TORQUE, number=number))
    weights = {name: tensor for name, tensor in model.named_parameters() if name.endswith("weight")}
    assert len(weights) == 2 + 2 * (1 + 2) + 2  # first layers, a block of the policy and two of the critics, heads
    for weight in weights.values():
        norms = weight.norm(dim=1)
        torch.testing.assert_close(norms, torch.ones_like(norms))
    scale, shift = model.critics.body[2].inner.norm.scale, model.critics.body[2].inner.norm.shift
    norms = torch.cat((scale, shift), -1).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 32**0.5))


def test_step_sizes_fall_linearly_to_half_and_the_policys_own_by_the_same_factor():
    algorithm, _ = small(actor_learning_rate=1e-3)
    for progress, *expected in ((0.0, 3e-4, 1e-3), (0.5, 2.25e-4, 7.5e-4), (1.0, 1.5e-4, 5e-4), (2.0, 1.5e-4, 5e-4)):
        algorithm.schedule_learning_rates(progress)
        rates = [algorithm.optimizers[name].param_groups[0]["lr"] for name in ("critic", "actor")]
        assert rates == pytest.approx(expected)


def test_the_published_sizes_are_in_a_preset():
    preset = load_preset("mujoco", FlashSACConfig)
    assert (preset["hidden_sizes"], preset["critic_hidden_sizes"]) == ([128, 128], [256, 256])
    assert preset["batch_size"] == 2048


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy_delay": 0}, "policy_delay=0 is not legal"),
        ({"learning_rate_decay": 0.0}, "learning_rate_decay=0.0 is not legal"),
        ({"hidden_sizes": (8, 16)}, "blocks have one width"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        small(**settings)
    assert message in str(refusal.value)
