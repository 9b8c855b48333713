"""LASER: the implied policy's distance, traces that end at irrelevant states, and what counts in the loss."""

import pytest
import torch

from penstock.algorithms.arithmetic.returns import vtrace
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.laser import LASER, implied_divergence
from penstock.config import ConfigError
from tests.algorithms.batches import B, T, collect, gradients, make, make_model, settings_alone
from tests.nn.plain import TORQUE

SMALL = {"replay": ["queue:1/2", "uniform:1/2,capacity=4"]}


def log(*probabilities):
    return torch.tensor(probabilities).log()


def collected(algorithm, model, shift=0.0):
    """A batch whose behaviour policy had logits shifted by up to `shift`, with the last two segments replayed."""
    batch = collect(algorithm, model)
    with torch.no_grad():
        policy, _ = model.evaluate(batch.obs, batch.first, batch.memory)
    moved = shift * torch.rand(T, B, 1, generator=torch.Generator().manual_seed(0))
    batch.records = {"logits": policy[:-1].flat + moved * torch.tensor([1.0, 0.0, -1.0])}
    batch.log_prob = torch.log_softmax(batch.records["logits"], -1).gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)
    batch.replayed = torch.arange(B) >= B // 2
    return batch


def test_the_divergence_is_that_from_the_implied_policy_and_not_from_the_one_that_acted():
    pi, mu = log(0.5, 0.5), log(0.9, 0.1)
    assert implied_divergence(pi, mu, 1.0).item() == pytest.approx(0.293893, abs=1e-6)
    assert (pi.exp() * (pi - mu)).sum().item() == pytest.approx(0.510826, abs=1e-6), "with 0.3 this would refuse"
    assert implied_divergence(pi, pi, 1.0).item() == pytest.approx(0.0, abs=1e-7)
    assert implied_divergence(pi, mu, 1e6).item() == pytest.approx(0.0, abs=1e-6), "uncut, V-trace learns pi's values"


def test_values_of_irrelevant_states_end_traces():
    """Row (h) of the golden data: r=[1, 2, 3], V=[0.5, 1, 1.5] and 2 behind, state 1 irrelevant."""
    never, relevant = torch.zeros(3, 1, dtype=torch.bool), torch.tensor([[True], [False], [True]])
    arguments = (
        torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[0.5], [1.0], [1.5], [2.0]]), never, never,
        torch.zeros(3, 1),
    )  # fmt: skip
    target, advantage = vtrace(*arguments, gamma=0.9, relevant=relevant)
    assert target[[0, 2], 0].tolist() == pytest.approx([1.9, 4.8])
    assert advantage[[0, 2], 0].tolist() == pytest.approx([1.4, 3.3])
    everywhere = vtrace(*arguments, gamma=0.9, relevant=~never)
    assert all(torch.equal(one, other) for one, other in zip(everywhere, vtrace(*arguments, gamma=0.9), strict=True))


def test_where_everything_is_relevant_and_fresh_it_is_impala():
    laser, impala = make(LASER, **SMALL), make(IMPALA)
    model = make_model(laser)
    batch = collected(laser, model, shift=0.1)
    batch.replayed = torch.zeros(B, dtype=torch.bool)
    found = gradients(laser.evaluate(model, batch)[0], model)
    for name, expected in gradients(impala.evaluate(model, batch)[0], model).items():
        torch.testing.assert_close(found[name], expected, msg=name)


def test_irrelevant_states_count_nowhere_but_in_the_entropy_of_fresh_steps():
    algorithm = make(LASER, **SMALL, **settings_alone(value_coef=1.0))
    model = make_model(algorithm)
    batch = collected(algorithm, model, shift=4.0)
    _, metrics = algorithm.evaluate(model, batch)
    relevant = batch.targets["relevant"]
    assert 0.1 < relevant.mean() < 0.9
    assert metrics["irrelevant"].item() == pytest.approx(1.0 - relevant.mean().item())
    before = gradients(algorithm.evaluate(model, batch)[0], model)
    for name in ("advantage", "return"):
        batch.targets[name] = torch.where(relevant.bool(), batch.targets[name], 1e3)
    policy, values = model.evaluate(batch.obs)
    after = gradients(algorithm.loss(batch, policy[:-1], values[:-1])[0], model)
    for name in before:
        torch.testing.assert_close(after[name], before[name], msg=name)


def test_the_entropy_bonus_is_of_fresh_steps():
    algorithm = make(LASER, **SMALL, value_coef=0.0, entropy_coef=1.0)
    model = make_model(algorithm)
    batch = collected(algorithm, model)
    batch.reward = torch.zeros_like(batch.reward)
    policy, values = model.evaluate(batch.obs)
    batch.targets = {
        "advantage": torch.zeros(T, B), "return": values[:-1].detach(), "log_ratio": torch.zeros(T, B),
        "relevant": torch.ones(T, B),
    }  # fmt: skip
    loss, _ = algorithm.loss(batch, policy[:-1], values[:-1])
    assert loss.item() == pytest.approx(-policy[:-1].entropy()[:, : B // 2].sum().item(), rel=1e-5)


def test_other_than_one_discrete_action_is_refused():
    told = r"laser chooses discrete actions.*use appo.*implied policy needs a sum.*CLEAR replay without"
    with pytest.raises(ConfigError, match=told):
        make(LASER, TORQUE, **SMALL)
    with pytest.raises(ConfigError, match=r"trust_region=0\.0 is not legal"):
        make(LASER, **SMALL, trust_region=0.0)
