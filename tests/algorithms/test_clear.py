"""CLEAR: what cloning adds to V-trace, and to which steps."""

import pytest
import torch

from penstock.algorithms.clear import CLEAR
from penstock.algorithms.impala import IMPALA
from penstock.config import ConfigError
from penstock.nn.distributions import Categorical
from tests.algorithms.batches import MEMORIES, B, T, collect, gradients, make, make_model
from tests.nn.plain import CHOICE, TORQUE

SMALL = {"replay": ["queue:1/2", "reservoir:1/2,capacity=4"]}


def collected(algorithm, model, shift=0.0):
    """A batch as `model` would have recorded it, or one whose parameters are moved; the last two segments replayed."""
    batch = collect(algorithm, model)
    with torch.no_grad():
        policy, values = model.evaluate(batch.obs, batch.first, batch.memory)
    logits = policy[:-1].flat
    batch.records = {
        "logits": logits + shift * torch.linspace(1.0, 2.0, logits.shape[-1]),
        "value": model.denormalize_value(values[:-1]) + shift,
    }
    batch.replayed = torch.arange(B) >= B // 2
    return batch


@pytest.mark.parametrize("action", [CHOICE, TORQUE])
@pytest.mark.parametrize("memory", MEMORIES)
def test_what_the_network_recorded_itself_is_cloned_already(action, memory):
    algorithm, plain = (make(kind, action, memory=memory, **s) for kind, s in ((CLEAR, SMALL), (IMPALA, {})))
    model = make_model(algorithm)
    batch = collected(algorithm, model)
    _, metrics = algorithm.evaluate(model, batch)
    assert metrics["policy_cloning"].item() == pytest.approx(0.0, abs=1e-5)
    assert metrics["value_cloning"].item() == pytest.approx(0.0, abs=1e-5)
    found, expected = (gradients(algorithm.evaluate(model, batch)[0], model) for algorithm in (algorithm, plain))
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-4, msg=name)


def test_the_terms_have_the_published_weights_and_direction():
    """mu=(.9, .1), pi=(.5, .5), V - V_mu = 0.5: KL(mu || pi) 0.368064, together 0.00493064."""
    algorithm = make(CLEAR, **SMALL, value_coef=0.0, entropy_coef=0.0)
    batch = collect(algorithm, make_model(algorithm))
    batch.learn = torch.zeros(T, B)
    batch.learn[2, B - 1] = 1.0
    batch.replayed = torch.arange(B) >= B // 2
    batch.records = {"logits": torch.tensor([0.9, 0.1]).log().expand(T, B, 2), "value": torch.zeros(T, B)}
    batch.action = torch.zeros(T, B, dtype=torch.int64)
    zeros = torch.zeros(T, B)
    batch.targets = {"advantage": zeros, "return": zeros, "log_ratio": zeros, "expected": zeros}
    loss, metrics = algorithm.loss(batch, Categorical(torch.zeros(T, B, 2)), torch.full((T, B), 0.5))
    assert metrics["policy_cloning"].item() == pytest.approx(0.368064, abs=1e-6)
    assert loss.item() == pytest.approx(0.00493064, abs=1e-7)


def test_fresh_steps_are_not_cloned():
    algorithm = make(CLEAR, **SMALL)
    model = make_model(algorithm)
    batch = collected(algorithm, model, shift=1.0)
    loss, metrics = algorithm.evaluate(model, batch)
    assert metrics["value_cloning"].item() == pytest.approx(1.0, rel=1e-4)
    batch.records = {name: torch.cat((x[:, : B // 2] + 5.0, x[:, B // 2 :]), 1) for name, x in batch.records.items()}
    assert algorithm.evaluate(model, batch)[0].item() == pytest.approx(loss.item(), rel=1e-5)
    batch.replayed = torch.zeros(B, dtype=torch.bool)
    torch.testing.assert_close(algorithm.evaluate(model, batch)[0], make(IMPALA).evaluate(model, batch)[0])


def test_values_expected_then_are_returns_whatever_the_head_s_units_are_now():
    algorithm = make(CLEAR, **SMALL, normalize_returns=True)
    model = make_model(algorithm)
    batch = collected(algorithm, model)
    model.update_return_statistics(torch.randn(10_000) * 7.0 + 30.0)
    assert algorithm.evaluate(model, batch)[1]["value_cloning"].item() == pytest.approx(0.0, abs=1e-5)


def test_weights_that_are_no_weights_are_refused():
    with pytest.raises(ConfigError, match=r"policy_cloning_coef=-1\.0 is not legal"):
        make(CLEAR, **SMALL, policy_cloning_coef=-1.0)
