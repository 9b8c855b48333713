"""RMSProp with epsilon inside the root or outside, and what makes it fit to be shared."""

import copy

import pytest
import torch
from torch import nn

from penstock.algorithms.arithmetic.rmsprop import RMSProp, RMSPropConfig, build_rmsprop
from penstock.config import ConfigError, make_config


def two_parameters():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(3, 2, generator=generator)), nn.Parameter(torch.randn(4, generator=generator))]


def set_gradients(parameters, seed):
    generator = torch.Generator().manual_seed(seed)
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator)


def an_optimizer(parameters, **settings):
    return RMSProp(parameters, 0.01, **{"decay": 0.9, "eps": 0.05, "eps_inside": True, **settings})


@pytest.mark.parametrize(("eps_inside", "step"), [(True, 0.301511), (False, 0.5)])
def test_the_first_step_is_the_gradient_over_the_root_with_epsilon_inside_or_outside(eps_inside, step):
    # s = 0.01: 0.1 / sqrt(0.01 + 0.1), or 0.1 / (0.1 + 0.1)
    parameter = nn.Parameter(torch.zeros(1))
    parameter.grad = torch.ones(1)
    optimizer = RMSProp([parameter], 0.1, decay=0.99, eps=0.1, eps_inside=eps_inside)
    optimizer.step()
    assert parameter.item() == pytest.approx(-step, rel=1e-5)
    assert optimizer.state[parameter]["square_average"].item() == pytest.approx(0.01)


def test_with_epsilon_outside_it_is_torchs():
    ours, theirs = two_parameters(), two_parameters()
    one = an_optimizer(ours, eps_inside=False)
    two = torch.optim.RMSprop(theirs, lr=0.01, alpha=0.9, eps=0.05)
    for seed in range(5):
        for parameters, optimizer in ((ours, one), (theirs, two)):
            set_gradients(parameters, seed)
            optimizer.step()
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their)


def test_with_epsilon_inside_it_is_the_equations_over_several_steps():
    (parameter,), (expected,) = two_parameters()[:1], [two_parameters()[0].detach()]
    optimizer, square = an_optimizer([parameter]), torch.zeros(3, 2)
    for seed in range(5):
        set_gradients([parameter], seed)
        square = 0.9 * square + 0.1 * parameter.grad**2
        expected = expected - 0.01 * parameter.grad / (square + 0.05).sqrt()
        optimizer.step()
    torch.testing.assert_close(parameter.detach(), expected)


def test_a_parameter_without_gradient_is_left_alone_and_so_are_its_statistics():
    parameters = two_parameters()
    optimizer = an_optimizer(parameters)
    set_gradients(parameters, 0)
    optimizer.step()
    moved, still = parameters
    before = [still.detach().clone(), optimizer.state[still]["square_average"].clone()]
    set_gradients([moved], 1)
    still.grad = None
    was = moved.detach().clone()
    optimizer.step()
    assert torch.equal(still, before[0]) and torch.equal(optimizer.state[still]["square_average"], before[1])
    assert not torch.equal(moved, was)
    moved.grad = None
    optimizer.step()  # nothing to do is no error


def test_its_statistics_are_there_before_the_first_step_and_stay_the_same_tensors():
    parameters = two_parameters()
    optimizer = an_optimizer(parameters)
    squares = [optimizer.state[parameter]["square_average"] for parameter in parameters]
    assert all(not square.any() and square.shape == p.shape for square, p in zip(squares, parameters, strict=True))
    set_gradients(parameters, 0)
    optimizer.step()
    for square, parameter in zip(squares, parameters, strict=True):
        assert optimizer.state[parameter]["square_average"] is square and square.all()


def test_it_goes_on_from_its_state_as_if_it_had_never_stopped():
    parameters, others = two_parameters(), two_parameters()
    optimizer = an_optimizer(parameters)
    for seed in range(3):
        set_gradients(parameters, seed)
        optimizer.step()
    again = an_optimizer(others)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for parameter, other in zip(parameters, others, strict=True):
        other.data.copy_(parameter)
    for each, step in ((parameters, optimizer.step), (others, again.step)):
        set_gradients(each, 3)
        step()
    assert all(torch.equal(parameter, other) for parameter, other in zip(parameters, others, strict=True))


def test_it_is_made_of_a_config_which_says_what_is_legal():
    settings = {"env": "x", "rmsprop_decay": 0.8, "rmsprop_eps": 0.3, "rmsprop_eps_inside": False}
    optimizer = build_rmsprop(make_config(RMSPropConfig, settings), two_parameters())
    assert optimizer.defaults == {"lr": 0.0, "decay": 0.8, "eps": 0.3, "eps_inside": False}
    for name, value in (("rmsprop_decay", 1.0), ("rmsprop_decay", -0.1), ("rmsprop_eps", 0.0)):
        with pytest.raises(ConfigError, match=f"{name}={value} is not legal"):
            make_config(RMSPropConfig, {"env": "x", name: value})
