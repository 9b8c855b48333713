"""XQC through its own update: classified returns of scaled rewards, a delayed policy, weights of norm 1."""

import copy
import math

import pytest
import torch

from penstock.algorithms.bases.algorithm import NonFiniteUpdate
from penstock.algorithms.xqc import XQC
from penstock.nn.bodies import UnitHead, UnitLinear
from penstock.nn.norms import BatchNorm
from tests.algorithms.projecting import projected_plainly
from tests.algorithms.transitions import (
    TORQUE,
    VECTOR,
    begin,
    changed,
    copied,
    descend_plainly,
    make,
    random_transitions,
    request,
    steps_taken,
    transitions,
)


def begun(**settings):
    settings = {"hidden_sizes": (8, 8), "critic_hidden_sizes": (8,), "return_bound": None, **settings}
    algorithm = make(XQC, VECTOR, TORQUE, **settings)
    return algorithm, begin(algorithm)


def test_logits_of_a_critic_step_towards_the_target_critic_with_the_smaller_mean():
    """Critics of constant logits whose targets differ from them; with lr 1 a bias moves by m - p.

    Atoms -1, 0 and 1. The second target critic puts 1/2 on -1 and on 0, mean -1/2; the first is even, mean 0. Without
    entropy y = 0.3 + 0.5 z: half at -0.2, half at 0.3, so m = (0.1, 0.75, 0.15).
    """
    algorithm, model = begun(num_atoms=3, v_min=-1.0, v_max=1.0, alpha=0.0)
    logits = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    with torch.no_grad():
        model.critics.head.weight.zero_()
        algorithm.target.critics.head.weight.zero_()
        model.critics.head.bias.copy_(logits.unsqueeze(1))
        algorithm.target.critics.head.bias.copy_(torch.tensor([[[0.0, 0.0, 0.0]], [[0.0, 0.0, -100.0]]]))
    descend_plainly(algorithm)
    batch = transitions([[0.0, 0.0], [1.0, 0.0]], [[0.0], [0.5]], [0.3] * 2, [0.5] * 2, [[0.0, 1.0], [2.0, 0.0]])
    with algorithm.training_mode(model):
        _, metrics = algorithm.update(model, batch)
    m = torch.tensor([0.1, 0.75, 0.15])
    assert projected_plainly([-0.2, 0.3], [0.5, 0.5], [-1.0, 0.0, 1.0]) == pytest.approx(m.tolist())
    p = logits.softmax(-1)
    torch.testing.assert_close(model.critics.head.bias.squeeze(1), logits + m - p, atol=1e-5, rtol=1e-5)
    kl = (m * (m.log() - p.log())).sum()
    assert metrics["critic_loss"].item() == pytest.approx(kl.item(), abs=1e-5)


def test_policy_and_temperature_move_at_every_third_update_and_all_units_keep_their_norm():
    algorithm, model = begun()
    moved, delayed = steps_taken(algorithm, model), []
    for number in range(1, 7):
        moved.clear()
        with algorithm.training_mode(model):
            algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
        assert ("actor" in moved) == ("alpha" in moved)
        delayed += [number] if "actor" in moved else []
        for layer in model.modules():
            if isinstance(layer, UnitLinear | UnitHead):
                norm = layer.weight.norm(dim=1)
                torch.testing.assert_close(norm, torch.ones_like(norm))
    assert delayed == [3, 6]


def test_an_update_that_is_not_finite_leaves_weights_and_moments_alone():
    algorithm, model = begun()
    before, bad = copied(model), random_transitions(TORQUE, number=3)
    bad.reward[0] = torch.nan
    with algorithm.training_mode(model), pytest.raises(NonFiniteUpdate, match="critic loss"):
        algorithm.update(model, bad)
    assert not changed(model, before)


def test_lanes_act_by_the_running_moments_one_row_as_many():
    algorithm, model = begun()
    with algorithm.training_mode(model):
        for number in range(1, 7):
            algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
    noise, obs = torch.randn(5, 1), torch.randn(5, 2)
    actions = algorithm.act(model, request(noise, obs=obs))[0]["action"]
    for row in range(5):
        alone = algorithm.act(model, request(noise[row : row + 1], obs=obs[row : row + 1]))[0]["action"]
        torch.testing.assert_close(alone[0], actions[row])


def test_a_saved_learner_goes_on_as_the_one_that_was_saved():
    algorithm, model = begun()
    twin, other = begun()
    for number in range(1, 5):
        algorithm.update(model, random_transitions(TORQUE, seed=number, number=number))
    other.load_state_dict(model.state_dict())
    twin.begin(other, copy.deepcopy(algorithm.learning_state()))
    for number in range(5, 8):
        for learns, network in ((algorithm, model), (twin, other)):
            with learns.training_mode(network):
                learns.update(network, random_transitions(TORQUE, seed=number, number=number))
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in model.state_dict().items())


def test_a_scale_of_weights_has_no_effect_on_a_normalised_layer():
    """The reason for weights of norm 1: the layer's output stays, and the gradient shrinks by the scale."""
    _, model = begun()
    layer, x = model.critics.body[1], torch.randn(2, 16, 3)
    assert isinstance(layer.norm, BatchNorm)
    outputs, gradients = [], []
    for scale in (1.0, 10.0):
        layer.linear.weight.data.div_(layer.linear.weight.norm(dim=1, keepdim=True)).mul_(scale)
        layer.linear.weight.grad = None
        outputs.append(layer(x))
        (outputs[-1] * x[..., :1]).sum().backward()
        gradients.append(layer.linear.weight.grad)
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(gradients[1] * 10.0, gradients[0], atol=1e-2, rtol=1e-2)
    assert math.isclose(layer.linear.weight.norm(dim=1).mean().item(), 10.0, rel_tol=1e-5)
