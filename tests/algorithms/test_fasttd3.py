"""FastTD3 through its own update and choice of actions: distributions as targets, noise by the episode of a lane."""

import dataclasses

import pytest
import torch

from penstock.algorithms.fasttd3 import FastTD3
from penstock.config import ConfigError
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    distance_from_uniform,
    make,
    random_transitions,
    request,
    steps_taken,
    transitions,
)


def small(**settings):
    algorithm = make(FastTD3, VECTOR, TORQUE, **{"hidden_sizes": (8,), "normalize_observations": False, **settings})
    return algorithm, begin(algorithm)


# --- updates ---------------------------------------------------------------------------------------------------------


def test_both_critics_learn_the_whole_distribution_of_the_one_with_the_smaller_mean_moved_by_the_reward(monkeypatch):
    """Atoms -1, 0, 1, r = 0.25, d = 0.5: the atoms move to -0.25, 0.25, 0.75; probabilities are 0.5, 0.25, 0.25.

        m(-1) = 0.5 * 0.25                              = 0.125
        m(0)  = 0.5 * 0.75 + 0.25 * 0.75 + 0.25 * 0.25  = 0.625
        m(1)  = 0.25 * 0.25 + 0.25 * 0.75               = 0.25

    With uniform predictions both critics have the divergence log 3 + sum m log m = 1.0986123 - 0.9002561.
    """
    algorithm, model = small(num_atoms=3, v_min=-1.0, v_max=1.0)
    probabilities, q = torch.tensor([[[0.5, 0.25, 0.25]], [[0.25, 0.25, 0.5]]]), model.q
    monkeypatch.setattr(algorithm.target, "q", lambda obs, action: probabilities.log())
    monkeypatch.setattr(model, "q", lambda obs, action: 0.0 * q(obs, action))
    divergence, metrics = algorithm.update(
        model, transitions([[0.0, 0.0]], [[0.0]], [0.25], [0.5], [[0.0, 0.0]])
    )
    torch.testing.assert_close(divergence, torch.full((2, 1), 0.1983562), rtol=0, atol=1e-6)
    assert metrics["critic_loss"].item() == pytest.approx(2 * 0.1983562, abs=1e-6)


def test_the_next_action_is_that_of_the_policy_that_learns_with_clipped_noise(monkeypatch):
    algorithm, model = small(target_noise=0.3, target_noise_clip=0.2, seed=7)
    with torch.no_grad():
        algorithm.target.actor_head.bias.fill_(5.0)
    seen, q = [], algorithm.target.q
    monkeypatch.setattr(algorithm.target, "q", lambda obs, action: seen.append(action) or q(obs, action))
    batch = random_transitions(TORQUE, size=64)
    with torch.no_grad():
        noise = 0.3 * torch.randn(64, 1, generator=torch.Generator().manual_seed(7))
        expected = (model.policy(batch.next_obs) + noise.clamp(-0.2, 0.2)).clamp(-1.0, 1.0)
    algorithm.update(model, batch)
    torch.testing.assert_close(seen[0], expected)


def test_the_policy_follows_the_smaller_value_at_each_observation(monkeypatch):
    """The second critic gives the first one's value and the observation's first number, which has either sign."""
    algorithm, model = small()
    batch = random_transitions(TORQUE, number=2)
    with torch.no_grad():
        action = model.policy(batch.obs).squeeze(1)
    monkeypatch.setattr(model, "values", lambda obs, action: torch.stack((action[:, 0], action[:, 0] + obs[:, 0])))
    _, metrics = algorithm.update(model, batch)
    torch.testing.assert_close(metrics["actor_loss"], -(action + batch.obs[:, 0].clamp(max=0.0)).mean())


def test_the_policy_moves_at_every_second_update_and_the_target_at_every_one():
    algorithm, model = small()
    for number in (1, 2, 3):
        moved, target = steps_taken(algorithm, model), copied(algorithm.target)
        algorithm.update(model, random_transitions(TORQUE, number=number))
        assert set(moved) == ({"critic", "actor"} if number == 2 else {"critic"})
        name = "critics.head.weight"
        assert name in changed(algorithm.target, target)
        expected = target[name].lerp(model.state_dict()[name], 0.1)
        torch.testing.assert_close(algorithm.target.state_dict()[name], expected)


# --- exploration -----------------------------------------------------------------------------------------------------


def asked(noise, first, memory, steps=10**9):
    return dataclasses.replace(
        request(noise, steps), first=torch.full((len(noise),), first), memory=torch.full((len(noise), 1), memory)
    )


def test_an_episode_begins_without_noise_and_draws_its_width_uniformly():
    algorithm, model = small(exploration_noise=0.1, exploration_noise_high=0.3)
    noise = torch.randn(4_000, 1, generator=torch.Generator().manual_seed(0))
    columns, std = algorithm.act(model, asked(noise, first=True, memory=9.0))
    assert std.shape == (4_000, 1) and std.min() >= 0.1 and std.max() <= 0.3
    assert distance_from_uniform((std.squeeze(1) - 0.2) / 0.1) < 1.63
    torch.testing.assert_close(columns["action"], model.policy(torch.zeros(4_000, 2)))


def test_within_an_episode_the_width_stays_and_scales_the_noise():
    algorithm, model = small()
    noise = torch.tensor([[1.0], [-2.0], [100.0]])
    columns, std = algorithm.act(model, asked(noise, first=False, memory=0.05))
    torch.testing.assert_close(std, torch.full((3, 1), 0.05))
    mean = model.policy(torch.zeros(3, 2))
    torch.testing.assert_close(columns["action"], (mean + 0.05 * noise).clamp(-1.0, 1.0))


def test_until_learning_starts_actions_are_uniform_and_widths_are_drawn_all_the_same():
    algorithm, model = small()
    noise = torch.randn(4_000, 1, generator=torch.Generator().manual_seed(1))
    columns, std = algorithm.act(model, asked(noise, first=True, memory=0.0, steps=9))
    assert distance_from_uniform(columns["action"].squeeze(1)) < 1.63
    assert std.std() > 0.1


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"exploration_noise_high": 0.0005}, "exploration_noise_high must be exploration_noise=0.001 or more"),
        ({"critic_hidden_sizes": (0,)}, "critic_hidden_sizes=(0,) is not legal"),
        ({"num_atoms": 1}, "num_atoms=1 is not legal"),
        ({"v_min": 5.0}, "v_min=5 must be less than v_max=5"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        small(**settings)
    assert message in str(refusal.value)
