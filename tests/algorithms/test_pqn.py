"""PQN: targets by the weights that acted, half a squared error, and exploration that falls with the run's steps."""

import pytest
import torch
from torch import nn

from penstock.algorithms.arithmetic.optimizers import RAdam
from penstock.algorithms.arithmetic.returns import lambda_return
from penstock.algorithms.ppo import PPO
from penstock.algorithms.pqn import PQN
from penstock.config import ConfigError
from penstock.nn import ILLEGAL
from tests.algorithms.batches import MEMORIES, B, T, collect, gradients, make, make_model
from tests.algorithms.transitions import TORQUE, request
from tests.nn.composites import composite, pack
from tests.nn.plain import CHOICE

LEARNED = torch.tensor([[True] * B] * (T - 1) + [[False] * B])  # the last row of every segment is padding


def begun(memory="none", valid=None, **settings):
    """The algorithm, its network, and a batch as it would have collected it, with its targets."""
    algorithm = make(PQN, memory=memory, **settings)
    torch.manual_seed(0)
    model = algorithm.build_model()
    actor = make(PPO, memory=memory)
    batch = collect(actor, make_model(actor), valid=valid)
    algorithm.prepare(model, batch)
    return algorithm, model, batch


def all_values(model, batch):
    """Values of all actions at all T + 1 rows, ``[T + 1, B, A]``."""
    if model.memory is None:
        return torch.stack([model.q(row) for row in batch.obs])
    return model.unroll(batch.obs, batch.first, batch.memory)


@pytest.mark.parametrize("memory", MEMORIES)
def test_targets_are_lambda_returns_over_the_best_values_without_gradient(memory):
    _, model, batch = begun(memory, LEARNED, q_lambda=0.7, gamma=0.9)
    best = all_values(model, batch).max(-1).values
    expected = lambda_return(
        batch.reward, best, batch.terminated, batch.truncated, gamma=0.9, lambda_=0.7, valid=batch.valid
    )
    torch.testing.assert_close(batch.targets["return"], expected)
    assert not batch.targets["return"].requires_grad


def test_targets_of_one_step_are_those_of_q_learning():
    _, model, batch = begun(q_lambda=0.0)
    following = model.q(batch.obs[1:].flatten(0, 1)).max(-1).values.view(T, B)
    expected = batch.reward + 0.99 * ~batch.terminated * following
    torch.testing.assert_close(batch.targets["return"], expected.detach())


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_loss_is_half_the_mean_squared_error_of_the_values_of_actions_taken_over_steps(memory):
    algorithm, model, batch = begun(memory, LEARNED, batch_size=T * B)
    (minibatch,) = algorithm.shuffled_minibatches(batch, T * B, torch.Generator())
    loss, metrics = algorithm.evaluate(model, minibatch)
    taken = all_values(model, batch)[:-1].gather(2, batch.action.unsqueeze(2)).squeeze(2)
    error = (taken - batch.targets["return"])[:-1]
    torch.testing.assert_close(loss, 0.5 * error.square().mean())
    torch.testing.assert_close(metrics["q"], taken[:-1].mean())
    expected = gradients(0.5 * error.square().mean(), model)
    for name, gradient in gradients(loss, model).items():
        torch.testing.assert_close(gradient, expected[name], msg=name)


def test_steps_of_the_burn_in_have_no_loss_and_bring_the_memory_up_to_date():
    algorithm, model, batch = begun("gru", burn_in=2, batch_size=T * B)
    batch.learn[:2] = 0.0
    loss, _ = algorithm.evaluate(model, batch)
    taken = all_values(model, batch)[:-1].gather(2, batch.action.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(loss, 0.5 * (taken - batch.targets["return"])[2:].square().mean())


def pairs(batch):
    """Each step's reward and target."""
    return {*zip(batch.reward.flatten().tolist(), batch.targets["return"].flatten().tolist(), strict=True)}


def test_a_batch_is_learned_from_num_epochs_times_in_minibatches_towards_the_same_targets():
    algorithm, _, batch = begun(num_epochs=3, batch_size=12)
    minibatches = list(algorithm.minibatches(batch, torch.Generator().manual_seed(0)))
    assert [len(each.reward) for each in minibatches] == [12] * 6
    for first, second in zip(minibatches[::2], minibatches[1::2], strict=True):
        rewards = torch.cat((first.reward, second.reward)).sort().values
        assert torch.equal(rewards, batch.reward.flatten().sort().values)
        assert pairs(first) | pairs(second) == pairs(batch)


@pytest.mark.parametrize(
    ("scale", "advice"), [(1e-3, "reward_scale=1000 in"), (1.0, None), (1e4, "reward_scale=0.0001 in")]
)
def test_rewards_of_unusual_size_are_named_once_with_the_scale_that_mends_them(scale, advice):
    algorithm, model, batch = begun()
    algorithm.begin(model)
    batch.reward = batch.reward.sign() * scale
    for _ in range(3):
        algorithm.prepare(model, batch)
    assert len(algorithm.remarks) == (advice is not None)
    assert all("nonzero rewards" in remark and advice in remark for remark in algorithm.remarks)
    assert not any("normalize_returns" in remark for remark in algorithm.remarks)


@pytest.mark.parametrize(("steps", "epsilon"), [(0, 0.8), (25, 0.5), (50, 0.2), (1_000, 0.2)])
def test_exploration_falls_over_exploration_steps(steps, epsilon):
    """Noise just below epsilon explores, and means the last action; just above it the best, the first, is taken."""
    algorithm = make(PQN, exploration=0.8, exploration_final=0.2, exploration_steps=50)
    model = algorithm.build_model()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
    for factor, action in ((0.999, 2), (1.001, 0)):
        columns, _ = algorithm.act(model, request(torch.full((1, 1), epsilon * factor), steps, torch.zeros(1, 3)))
        assert columns["action"].tolist() == [action]
    assert model.epsilon == 0.2


def test_illegal_actions_are_neither_chosen_nor_bootstrapped_from():
    observation = composite({"": make(PQN).observation}, num_masked=3)
    algorithm = PQN(make(PQN).config, observation, CHOICE)
    model = algorithm.build_model()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([1.0, 3.0, 2.0]))
    rows = pack(observation, {"": torch.zeros(2, 3).numpy()}, torch.tensor([[1, 0, 1], [1, 0, 0]]).bool().numpy())
    columns, _ = algorithm.act(model, request(torch.full((2, 1), 0.99), obs=rows))
    assert columns["action"].tolist() == [2, 0]
    assert model.q(rows).max(-1).values.tolist() == [2.0, 1.0] and model.q(rows)[0, 1] == ILLEGAL


def test_it_has_normalised_layers_rectified_adam_and_rollout_workers_that_wait():
    algorithm = make(PQN)
    model = algorithm.build_model()
    assert any(isinstance(module, nn.LayerNorm) for module in model.encoder)
    assert not any(isinstance(module, nn.LayerNorm) for module in make(PQN, layer_norm=False).build_model().encoder)
    assert isinstance(algorithm.build_optimizer(model), RAdam)
    assert PQN.synchronous and algorithm.data_path == "segments"


def test_continuous_actions_are_refused():
    with pytest.raises(ConfigError, match="pqn chooses discrete actions"):
        make(PQN, TORQUE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q_lambda": 1.5}, "q_lambda=1.5 is not legal"),
        ({"exploration": -0.1}, "exploration=-0.1 is not legal"),
        ({"exploration_steps": 0}, "exploration_steps=0 is not legal"),
        ({"num_epochs": 0}, "num_epochs=0 is not legal"),
        ({"batch_size": 18}, "batch_size=18 does not divide the 24 steps that 4 lanes"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(PQN, **settings)
    assert message in str(refusal.value)
