"""Burn-in: the first steps of a segment bring the memory state up to date, and are not learned from."""

import dataclasses

import pytest
import torch

from penstock.algorithms.a2c import A2C
from penstock.algorithms.a3c import A3C
from penstock.algorithms.appo import APPO
from penstock.algorithms.impala import IMPALA
from penstock.algorithms.ppo import PPO
from penstock.experience.batch import PER_SEGMENT
from tests.algorithms.batches import collect, gradients, make, make_model
from tests.engine.collecting import a_run

BURN_IN = 2
ALGORITHMS = [
    pytest.param(PPO, {}, id="ppo"),
    pytest.param(APPO, {}, id="appo"),
    pytest.param(APPO, {"advantage_estimator": "vtrace"}, id="appo-vtrace"),
    pytest.param(A2C, {}, id="a2c"),
    pytest.param(A3C, {}, id="a3c"),
    pytest.param(IMPALA, {}, id="impala"),
]


def loss_and_gradients(algorithm, model, batch):
    algorithm.prepare(model, batch)
    loss, _ = algorithm.evaluate(model, batch)
    return loss, gradients(loss, model)


def without_its_beginning(batch, memory):
    """The batch from row `BURN_IN` on, begun with this memory state."""
    rest = {
        field.name: value[BURN_IN:]
        for field in dataclasses.fields(batch)
        if isinstance(value := getattr(batch, field.name), torch.Tensor) and field.name not in PER_SEGMENT
    }
    return dataclasses.replace(batch, **rest, memory=memory)


@pytest.mark.parametrize("memory", ["gru", "lstm"])
@pytest.mark.parametrize(("algorithm", "settings"), ALGORITHMS)
def test_a_segment_is_learned_from_as_if_it_began_after_its_burn_in_with_the_memory_of_todays_weights(
    algorithm, settings, memory
):
    burning, plain = (make(algorithm, memory=memory, burn_in=steps, **settings) for steps in (BURN_IN, 0))
    model, same_model = make_model(burning), make_model(plain)
    batch = collect(plain, make_model(plain, seed=1), seed=1)  # by other weights
    batch.first[0] = False
    assert not batch.first[: BURN_IN + 1].any(0).all(), "some lane's episode goes on through the burn-in"
    batch.learn[:BURN_IN] = 0.0
    with torch.no_grad():
        features = model.encoder(model.input(batch.obs[:BURN_IN]))
        _, state = model.memory.unroll(features, batch.first[:BURN_IN], batch.memory)
    assert (state - batch.memory).abs().max() > 0.1, "there is something to bring up to date"

    loss, gradient = loss_and_gradients(burning, model, batch)
    expected, expected_gradient = loss_and_gradients(plain, same_model, without_its_beginning(batch, state))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, expected_gradient)


def test_steps_of_burn_in_are_not_learned_from_and_counted_as_such():
    run, learner = a_run(APPO, memory="gru", burn_in=3)
    report = run.learn_once(learner)
    segments = 32 // 8
    assert (report.steps, report.experience["masked_steps"]) == (segments * 5, segments * 3)
    run.close()
