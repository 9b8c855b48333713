"""CrossQ through its own update: no target network, both ends of a transition in one batch, moments that follow."""

import pytest
import torch

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.crossq import CrossQ
from penstock.config import ConfigError
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    descend_plainly,
    make,
    random_transitions,
    steps_taken,
    transitions,
)

MOMENTS = ("mean", "var", "batches")


def begun(**settings):
    algorithm = make(CrossQ, VECTOR, TORQUE, **{"hidden_sizes": (8,), "critic_hidden_sizes": (8,), **settings})
    return algorithm, begin(algorithm)


def moments_of(model, part):
    return {name for name in model.state_dict() if name.startswith(part) and name.endswith(MOMENTS)}


def test_targets_come_of_the_critics_themselves_and_no_gradient_flows_through_them():
    """Critics that give 5 and 4: y = 1 + 0.99 * 4 = 4.96. The constants move by twice the errors -0.04 and 0.96."""
    algorithm, model = begun(critic_hidden_sizes=(), alpha=0.0)
    with torch.no_grad():
        model.critics.head.weight.zero_()
        model.critics.head.bias.copy_(torch.tensor([[[5.0]], [[4.0]]]))
    descend_plainly(algorithm)
    batch = transitions([[0.0, 0.0], [1.0, 0.0]], [[0.0], [0.5]], [1.0] * 2, [0.99] * 2, [[0.0, 1.0], [2.0, 0.0]])
    error, metrics = algorithm.update(model, batch)
    assert error.flatten().tolist() == pytest.approx([0.04, 0.04, -0.96, -0.96], abs=1e-5)
    assert metrics["critic_loss"].item() == pytest.approx(0.04**2 + 0.96**2, abs=1e-5)
    assert model.critics.head.bias.flatten().tolist() == pytest.approx([5.0 - 0.08, 4.0 + 1.92], abs=1e-5)


def test_there_is_no_target_network():
    algorithm, model = begun()
    assert algorithm.target is model
    assert set(algorithm.learning_state()) == {"optimizers", "generator"}


def test_policy_and_temperature_are_updated_after_every_policy_delay_updates_of_the_critics():
    algorithm, model = begun()
    moved, delayed = steps_taken(algorithm, model), []
    critic_moments, actor_moments = moments_of(model, "critics."), moments_of(model, "encoder.")
    for number in range(1, 8):
        moved.clear()
        before = copied(model)
        _, metrics = algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        found = changed(model, before)
        assert moved["critic"] <= {name for name in model.state_dict() if name.startswith("critics.")}
        assert critic_moments <= found, "their moments follow every update"
        assert ("actor" in moved) == ("alpha" in moved) == ("actor_loss" in metrics) == (actor_moments <= found)
        assert ("actor" in moved) or not actor_moments & found
        if "actor" in moved:
            delayed.append(number)
    assert delayed == [3, 6]


def test_an_update_that_is_not_finite_leaves_weights_and_moments_alone():
    algorithm, model = begun()
    before, bad = copied(model), random_transitions(TORQUE, number=3)
    bad.reward[0] = torch.inf
    with pytest.raises(NonFiniteUpdate, match="critic loss"):
        algorithm.update(model, bad)
    assert not changed(model, before)


def test_its_optimisers_have_little_momentum_and_its_critics_widths_of_their_own():
    algorithm, model = begun(critic_hidden_sizes=(6, 5))
    assert [optimizer.param_groups[0]["betas"] for optimizer in algorithm.optimizers.values()] == [(0.5, 0.999)] * 3
    assert [layer.weight.shape[2] for layer in model.critics.hidden] == [6, 5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 0.005}, 'tau=0.005 is not legal: tau must be 1: CrossQ has no target network; with one it is "sac"'),
        ({"policy_delay": 0}, "policy_delay=0 is not legal"),
        ({"adam_beta1": 1.0}, "adam_beta1=1.0 is not legal"),
        ({"critic_hidden_sizes": (0,)}, "critic_hidden_sizes=(0,) is not legal"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        begun(**settings)
    assert message in str(refusal.value)
