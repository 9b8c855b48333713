"""The tangent that is computed by another function is the tangent."""

import pytest
import torch

from penstock.nn.layers import Tanh


def test_it_is_within_2e_7_of_the_true_value_everywhere():
    for x in (torch.linspace(-30.0, 30.0, 100_001), torch.linspace(-1e-3, 1e-3, 10_001), torch.tensor([-3e38, 3e38])):
        error = (Tanh()(x.clone()) - x.double().tanh()).abs().max()
        assert error < 2e-7


def test_its_gradient_is_one_less_the_square_of_the_tangent():
    x = torch.linspace(-4.0, 4.0, 101, requires_grad=True)
    by_sigmoid = torch.autograd.grad(Tanh()(x * 1.0).square().sum(), x)[0]
    expected = torch.autograd.grad(x.tanh().square().sum(), x)[0]
    torch.testing.assert_close(by_sigmoid, expected, rtol=1e-5, atol=1e-6)


def test_with_and_without_a_gradient_it_gives_the_same_in_the_memory_of_its_input():
    x = torch.randn(1000, requires_grad=True)
    given = x.detach().clone()
    quick = Tanh()(given)
    with_gradient = x * 1.0
    assert torch.equal(Tanh()(with_gradient), quick)
    assert torch.equal(given, quick) and torch.equal(with_gradient, quick)


def test_a_gradient_through_an_input_that_was_overwritten_is_refused():
    x = torch.randn(10, requires_grad=True)
    exponential = x.exp()  # its derivative is itself
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        Tanh()(exponential).sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_in_another_precision_it_is_torchs_own(dtype):
    x = torch.linspace(-2.0, 2.0, 101, dtype=dtype)
    assert torch.equal(Tanh()(x), x.tanh())


def test_what_is_not_a_number_stays_so():
    assert Tanh()(torch.tensor([torch.nan])).isnan().all()
