"""Action values of normalised returns: outputs preserved by model and target network, and one loss at every scale."""

import dataclasses

import pytest
import torch

from penstock.algorithms.dqn import DQN
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.algorithms.r2d2 import R2D2
from penstock.nn.observations import RETURN_PRIOR_ROWS, RunningMoments
from penstock.nn.q_network import RETURN_ROWS
from tests.algorithms import batches
from tests.algorithms.episodes import episode, recurrent
from tests.algorithms.transitions import CHAIN, STATE, VECTOR, begin, descend_plainly, make, random_transitions
from tests.nn.plain import CHOICE

HEADS = {
    "plain": {}, "dueling": {"dueling": True}, "noisy": {"noisy": True}, "both": {"dueling": True, "noisy": True},
    "quantile": {"distributional": "quantile"}, "iqn": {"distributional": "iqn", "dueling": True},
}  # fmt: skip
SCALE = 4096.0  # a power of two: products with it are exact


def set_deviation(network, deviation):
    """Let returns be in units of this deviation, around 0, for good."""
    network.return_moments.std.fill_(deviation)
    network.return_moments.var.fill_(deviation**2)


@pytest.mark.parametrize("head", HEADS)
def test_values_of_model_and_target_stay_what_they_were_when_the_moments_move(head):
    algorithm = make(DQN, VECTOR, CHOICE, hidden_sizes=(8,), normalize_returns=True, **HEADS[head])
    model = begin(algorithm)
    with torch.no_grad():
        for parameter in algorithm.target.parameters():
            parameter.add_(0.1)
    x = torch.randn(5, 2)
    noise = torch.randn(model.noise_size) if model.noise_size else None
    with torch.no_grad():
        before = [network.q(x, noise) for network in (model, algorithm.target)]
        for scale in (1e-3, 1e4):
            model.update_return_statistics(scale * (3.0 + torch.randn(3000)), copies=[algorithm.target])
        after = [network.q(x, noise) for network in (model, algorithm.target)]
    assert model.return_moments is algorithm.target.return_moments and model.return_moments.std > 1e3
    torch.testing.assert_close(after, before, rtol=1e-4, atol=0.02)  # differences of ten thousands


@pytest.mark.parametrize("kind", ["dqn", "double", "quantile", "r2d2"])
def test_of_rewards_and_a_deviation_larger_by_a_factor_loss_and_gradient_are_the_same(kind):
    """Values of the head are then those of the small rewards; errors, and so priorities, are larger by the factor."""
    settings = {"double": {"double": True}, "quantile": {"distributional": "quantile"}}.get(kind, {})
    found = []
    for scale in (1.0, SCALE):
        if kind == "r2d2":
            algorithm, model = recurrent(R2D2, rescale_values=False, normalize_returns=True)
            batch = episode(0.9)
            batch = dataclasses.replace(batch, memory=torch.zeros(3, model.state_size))
        else:
            algorithm = make(DQN, VECTOR, CHOICE, hidden_sizes=(8,), normalize_returns=True, **settings)
            model, batch = begin(algorithm), random_transitions(CHOICE)
        set_deviation(model, scale)
        descend_plainly(algorithm)
        error, metrics = algorithm.update(model, dataclasses.replace(batch, reward=scale * batch.reward))
        found.append((metrics["loss"], metrics["grad_norm"], error if kind == "quantile" else error / scale))
    torch.testing.assert_close(*found)


def test_pqn_learns_towards_normalised_returns():
    found = []
    for scale in (1.0, SCALE):
        algorithm = batches.make(PQN, normalize_returns=True, batch_size=batches.T * batches.B)
        torch.manual_seed(0)
        model, actor = algorithm.build_model(), batches.make(PPO)
        batch = batches.collect(actor, batches.make_model(actor))
        batch.reward = scale * batch.reward
        set_deviation(model, scale)
        algorithm.prepare(model, batch)
        (minibatch,) = algorithm.shuffled_minibatches(batch, batches.T * batches.B, torch.Generator())
        found.append(algorithm.evaluate(model, minibatch)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_a_chain_is_learned_to_its_known_values_whatever_the_scale_of_its_rewards(scale):
    """The values of `CHAIN`, times the scale, by the same number of updates."""
    algorithm = make(DQN, STATE, CHOICE, learning_rate=0.02, target_period=10, normalize_returns=True)
    model = begin(algorithm)
    with torch.no_grad():
        model.head.weight[2] = model.head.bias[2] = -9.0
    rows = {name: torch.cat([getattr(CHAIN, name)] * 64) for name in ("obs", "next_obs", "action", "discount")}
    more = {"reward": torch.cat([CHAIN.reward] * 64) * scale, "weights": torch.ones(256)}
    for number in range(1, 1001):
        algorithm.schedule_learning_rates(number / 1000)
        algorithm.update(model, dataclasses.replace(CHAIN, **rows, **more, number=number))
    learned = model.q(torch.tensor([0, 1]))[:, :2] / scale
    torch.testing.assert_close(learned, torch.tensor([[1.0, 2.0]] * 2), rtol=0, atol=0.03)


class OwnLoss(DQN):
    """DQN with a loss of its own, which names no targets."""

    repeatable_updates = True

    def evaluate(self, model, batch):
        error = model.q(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1) - batch.reward
        return error, error.square().mean(), {}


def test_a_loss_of_a_subclass_that_names_no_targets_is_learned_without_normalisation():
    algorithm = make(OwnLoss, VECTOR, CHOICE)
    model, before = begin(algorithm), begin(algorithm).return_moments.state_dict()
    algorithm.update(model, random_transitions(CHOICE))
    torch.testing.assert_close(model.return_moments.state_dict(), before)


def test_padding_has_no_part_in_the_moments_of_returns():
    algorithm, model = recurrent(R2D2, normalize_returns=True)
    batch = dataclasses.replace(episode(0.9), memory=torch.zeros(3, model.state_size))
    batch.valid[7:, 1], batch.valid[5:, 2] = False, False
    algorithm.update(model, batch)
    target, counted = algorithm._other_loss.targets
    expected = RunningMoments((), RETURN_PRIOR_ROWS, RETURN_ROWS)
    expected.update(target[counted.bool()])
    assert counted.sum() == batch.valid.sum() < counted.numel()
    torch.testing.assert_close(model.return_moments.state_dict(), expected.state_dict())


def test_the_fixed_returns_of_c51_are_not_normalised():
    assert begin(make(DQN, VECTOR, CHOICE, normalize_returns=True, distributional="c51")).return_moments is None


@pytest.mark.parametrize(("size", "advice"), [(5e-4, "reward_scale=2000"), (5e3, "reward_scale=0.0002"), (1.0, None)])
def test_rewards_of_unusual_size_are_named_once_with_the_scale_that_mends_them(size, advice):
    """Half of the rewards are 0; the root mean square of the others is the size, and 1 / size the scale."""
    algorithm = make(DQN, VECTOR, CHOICE, normalize_returns=False)
    model, batch = begin(algorithm), random_transitions(CHOICE, size=4)
    batch = dataclasses.replace(batch, reward=torch.tensor([size, 0.0, -size, 0.0]))
    for number in range(1, 301):
        algorithm.update(model, dataclasses.replace(batch, number=number))
    expected = [] if advice is None else [
        f"nonzero rewards, as learned from, have a root mean square of {size:g}, but settings are for 0.01 to "
        f"100: values may not be learned; use {advice} in a new run; or normalize_returns=True"
    ]  # fmt: skip
    assert algorithm.remarks == expected
