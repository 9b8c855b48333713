"""TQC through its own update: targets without their largest atoms, and a policy that climbs all of them."""

import pytest
import torch

from penstock.algorithms.arithmetic.td import largest_error
from penstock.algorithms.tqc import TQC
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

TWO_BY_TWO = {"num_critics": 2, "num_quantiles": 2, "dropped_quantiles": 1, "alpha": 0.0}


def set_atoms(network, slopes, constants):
    """Let atom ``m`` of critic ``c`` be ``slopes[c][m] * action + constants[c][m]``."""
    with torch.no_grad():
        network.critics.head.weight.zero_()
        network.critics.head.weight[:, 2] = torch.tensor(slopes)
        network.critics.head.bias[:, 0] = torch.tensor(constants)


def linear(**settings):
    """Online critics that give 0; those of the target (1, 4) and (2, 9)."""
    algorithm = make(TQC, VECTOR, TORQUE, **{**TWO_BY_TWO, **settings})
    model = begin(algorithm)
    set_atoms(model, [[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2)
    set_atoms(algorithm.target, [[0.0, 0.0]] * 2, [[4.0, 1.0], [2.0, 9.0]])
    descend_plainly(algorithm)
    return algorithm, model


ONE = transitions([[0.0, 0.0]], [[0.0]], [1.0], [0.5], [[0.0, 0.0]])


def test_targets_are_the_mixture_less_the_largest_atom_for_each_critic():
    """Atoms 1, 2, 4, 9 without two: y = 1 + 0.5 * (1, 2) = (1.5, 2), of mean 1.75.

    A quantile of 0 is 1.0 and 1.5 away by Huber: 1/4 and 3/4 of these, mean 0.625 for each of the two critics.
    """
    algorithm, model = linear()
    error, metrics = algorithm.update(model, ONE)
    assert largest_error(error).item() == pytest.approx(1.75)
    assert metrics["critic_loss"].item() == pytest.approx(2 * 0.625) and metrics["q"].mean().item() == 0.0


def test_without_dropped_atoms_the_target_is_the_mean_of_all():
    """y = 1 + 0.5 * (1, 2, 4, 9), of mean 3."""
    algorithm, model = linear(dropped_quantiles=0)
    assert largest_error(algorithm.update(model, ONE)[0]).item() == pytest.approx(3.0)


def test_atoms_are_of_soft_values():
    """A temperature of 2 and log pi = -1: 1 + 0.5 * (1 + 2, 2 + 2), of mean 2.75."""
    algorithm, model = linear(alpha=2.0)
    algorithm.sample = lambda policy: (policy.mean.tanh(), 0.0 * policy.mean.sum(-1) - 1.0)
    assert largest_error(algorithm.update(model, ONE)[0]).item() == pytest.approx(2.75)


def test_the_policy_climbs_the_mean_of_all_atoms():
    algorithm, model = linear()
    set_atoms(model, [[1.0, 3.0], [5.0, 7.0]], [[0.0, 0.0]] * 2)
    value = algorithm.value(model, torch.zeros(3, 2), torch.tensor([[1.0], [-0.5], [0.0]]))
    torch.testing.assert_close(value, torch.tensor([4.0, -2.0, 0.0]))


def test_each_loss_moves_its_own_weights_and_the_target_follows():
    algorithm = make(TQC, VECTOR, TORQUE, hidden_sizes=(8,), tau=0.25)
    model = begin(algorithm)
    moved, before = steps_taken(algorithm, model), copied(algorithm.target)
    algorithm.update(model, random_transitions(TORQUE))
    assert moved["critic"] == {name for name in model.state_dict() if name.startswith("critics.")}
    assert moved["actor"] == {name for name in model.state_dict() if name.startswith(("encoder.", "actor_head."))}
    assert moved["alpha"] == {"log_alpha"}
    for name in changed(algorithm.target, before):
        expected = torch.lerp(before[name], model.state_dict()[name], 0.25)
        assert torch.equal(algorithm.target.state_dict()[name], expected), name


def test_it_has_the_papers_five_critics_of_25_quantiles_less_two_each():
    algorithm = make(TQC, VECTOR, TORQUE)
    model = begin(algorithm)
    assert model.q(torch.zeros(4, 2), torch.zeros(4, 1)).shape == (5, 4, 25)
    assert algorithm.config.dropped_quantiles == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_critics": 0}, "num_critics=0 is not legal"),
        ({"num_quantiles": 1}, "num_quantiles=1 is not legal"),
        ({"dropped_quantiles": -1}, "dropped_quantiles=-1 is not legal"),
        ({"num_quantiles": 5, "dropped_quantiles": 5}, "leaves no quantile of num_quantiles=5 per critic: use"),
    ],
)
def test_illegal_settings_are_named(settings, message):
    with pytest.raises(ConfigError) as refusal:
        make(TQC, VECTOR, TORQUE, **settings)
    assert message in str(refusal.value)
