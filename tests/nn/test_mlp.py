"""Layers in one call: they compute what torch's do, forward and backward, and only what is asked for."""

import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.envs.spaces import ObservationSpec
from penstock.nn import mlp
from penstock.nn.continuous import Critics
from penstock.nn.mlp import MLP

pytestmark = pytest.mark.skipif(not mlp.is_available(), reason="torch's library of products is another one")


def parameters_of(num_networks, sizes, num_outputs, is_transposed):
    shapes = [*pairwise(sizes), *([(sizes[-1], num_outputs)] if num_outputs else [])]
    for inputs, outputs in shapes:
        weight = torch.randn(num_networks, inputs, outputs) / inputs**0.5
        yield weight.mT.contiguous() if is_transposed else weight
        yield torch.randn(num_networks, 1, outputs)


class Rounded(torch.autograd.Function):
    """To bfloat16 and back; the gradient goes through as it is."""

    @staticmethod
    def forward(ctx, x):
        return x.bfloat16().float()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class RoundedBack(Rounded):
    """The other way round."""

    forward, backward = Rounded.backward, Rounded.forward


def by_torch(x, parameters, num_hidden, count, is_transposed, activation, in_bf16=False):
    """The same, layer by layer; in bfloat16 factors of hidden layers' products are rounded, forward and backward."""
    x = x.expand(count, *x.shape)
    for number, (weight, bias) in enumerate(zip(parameters[::2], parameters[1::2], strict=True)):
        weight = (weight.mT if is_transposed else weight)[:count]
        if number == num_hidden:
            return x @ weight + bias[:count]
        product = RoundedBack.apply(Rounded.apply(x) @ Rounded.apply(weight)) if in_bf16 else x @ weight
        x = (product + bias[:count]).relu() if activation == "relu" else (product + bias[:count]).tanh()
    return x


def leaves(tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


NETWORKS = {
    "num_networks": st.integers(1, 3), "sizes": st.lists(st.sampled_from([1, 3, 16, 33]), min_size=2, max_size=4),
    "num_outputs": st.sampled_from([0, 1, 5]), "is_transposed": st.booleans(), "rows": st.sampled_from([0, 1, 7, 300]),
}  # fmt: skip


@settings(max_examples=100)
@given(
    **NETWORKS, runs_all=st.booleans(), activation=st.sampled_from(mlp.FUSED_ACTIVATIONS), in_bf16=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_values_and_gradients_are_those_of_torch(
    num_networks, sizes, num_outputs, is_transposed, rows, runs_all, activation, in_bf16, seed
):
    torch.manual_seed(seed)
    given = [torch.randn(rows, sizes[0]), *parameters_of(num_networks, sizes, num_outputs, is_transposed)]
    count = num_networks if runs_all else 1
    (x, *mine), (y, *theirs) = leaves(given), leaves(given)
    with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
        found = mlp.fused_layers(
            x, mine, tuple(sizes), num_networks=num_networks, count=count, num_outputs=num_outputs,
            is_transposed=is_transposed, activation=activation,
        )  # fmt: skip
    expected = by_torch(y, theirs, len(sizes) - 1, count, is_transposed, activation, in_bf16)
    expected = expected.squeeze(-1) if num_outputs == 1 else expected
    # What is nearly half-way between two bfloat16 may be rounded either way, and sums of rows may be small differences.
    near = 0.1 if in_bf16 else 1e-4
    assert found.dtype == torch.float32 and is_near(found, expected, near)
    gradient = torch.randn_like(expected)
    found.backward(gradient)
    expected.backward(gradient)
    for one, other in zip([x, *mine], [y, *theirs], strict=True):
        assert is_near(one.grad, other.grad, near)


def is_near(one, other, share):
    return bool((one - other).norm() <= share * (1.0 + other.norm()))


def test_in_bfloat16_only_factors_are_rounded():
    torch.manual_seed(1)
    x, parameters = torch.randn(4, 64), [torch.randn(1, 64, 8), torch.randn(1, 1, 8)]
    with torch.autocast("cpu", torch.bfloat16):
        found = mlp.fused_layers(x, parameters, (64, 8))
    weight, bias = parameters
    assert torch.allclose(found, (x.bfloat16().double() @ weight.bfloat16().double() + bias).relu().float(), atol=1e-5)
    assert not torch.allclose(found, (x @ weight + bias).relu(), atol=1e-3)


def critics_and_input(num_critics=2, activation="relu"):
    torch.manual_seed(0)
    return Critics(5, (16, 16), activation, num_critics), torch.randn(9, 5, requires_grad=True)


@pytest.mark.parametrize("activation", mlp.FUSED_ACTIVATIONS)
def test_critics_and_layers_of_an_mlp_give_what_they_give_without(activation, monkeypatch):
    critics, x = critics_and_input(activation=activation)
    network = MLP(ObservationSpec((5,), "float32"), (16, 8), activation)
    found = critics(x), critics.first(x), network(x), network(x.unsqueeze(1).expand(9, 3, 5))
    monkeypatch.setattr(mlp, "is_available", lambda: False)
    expected = critics(x), critics.first(x), network(x), network(x.unsqueeze(1).expand(9, 3, 5))
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and torch.allclose(one, other, atol=1e-6)
        assert "_Pass" in str(one.grad_fn.next_functions) + str(one.grad_fn) and "_Pass" not in str(other.grad_fn)


def test_only_what_is_asked_for_is_computed(monkeypatch):
    critics, x = critics_and_input()
    asked = []
    monkeypatch.setattr(mlp, "_is_needed", lambda node, ask=mlp._is_needed: (asked.append(ask(node)), asked[-1])[1])
    critics(x).sum().backward(inputs=[x])
    assert [is_needed for is_needed, _ in asked] == [True] + [False] * 6
    assert all(each.grad is None for each in critics.parameters())
    asked.clear()
    critics(x.detach()).sum().backward()
    assert [is_needed for is_needed, _ in asked] == [False] + [True] * 6


def test_gradients_that_lie_in_a_row_are_added_to_where_they_are():
    critics, x = critics_and_input()
    whole = torch.ones(sum(each.numel() for each in critics.parameters()))
    begin = 0
    for each in critics.parameters():
        each.grad = whole[begin : begin + each.numel()].view_as(each)
        begin += each.numel()
    critics(x).square().sum().backward()
    found = whole - 1.0
    by_grad = torch.autograd.grad(critics(x).square().sum(), list(critics.parameters()))
    assert torch.allclose(found, torch.cat([each.flatten() for each in by_grad]), atol=1e-4)
    assert torch.equal(whole, torch.cat([each.grad.flatten() for each in critics.parameters()]))


def test_a_first_critic_that_runs_alone_leaves_the_others_without_a_gradient():
    critics, x = critics_and_input(num_critics=3)
    critics.first(x).sum().backward()
    for each in critics.parameters():
        assert each.grad[0].abs().sum() > 0.0 and not each.grad[1:].any()


def test_nan_goes_through_rectifiers_and_bfloat16():
    critics, x = critics_and_input()
    x = x.detach().index_fill(0, torch.tensor([2]), torch.nan)
    for in_bf16 in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16), torch.no_grad():
            assert critics(x).isnan().all(0).tolist() == [row == 2 for row in range(9)]


def test_tangents_are_true_to_2e_7():
    x = torch.cat([torch.linspace(-12.0, 12.0, 100_001), torch.tensor([0.0, -0.0, 1e-8, 3e38, torch.inf, -torch.inf])])
    parameters = [torch.ones(1, 1, 1), torch.zeros(1, 1)]
    found = mlp.fused_layers(x.unsqueeze(1), parameters, (1, 1), activation="tanh").flatten()
    assert (found - x.double().tanh()).abs().max() < 2e-7
    assert found.abs().max() == 1.0


def test_inputs_of_other_kinds_are_left_to_torch():
    x = torch.zeros(4, 5)
    assert mlp.fits(x) and mlp.fits(x.mT)
    for other in (x.double(), x.bfloat16(), x.to("meta")):
        assert not mlp.fits(other)


def test_a_gradient_of_a_gradient_is_refused():
    critics, x = critics_and_input()
    (gradient,) = torch.autograd.grad(critics(x).square().sum(), [x], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


ON_THREADS = """
import torch
from penstock.nn import mlp

assert mlp.is_available()

def passed(rows, num_networks, count, in_bf16, num_threads):
    torch.manual_seed(0)
    torch.set_num_threads(num_threads)
    shapes = [(7, 33), (33, 16), (16, 1)]
    given = [torch.randn(num_networks, *shape) for pair in shapes for shape in (pair, (1, pair[1]))]
    x, parameters = torch.randn(rows, 7, requires_grad=True), [each.requires_grad_() for each in given]
    with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
        out = mlp.fused_layers(x, parameters, (7, 33, 16), num_networks=num_networks, count=count, num_outputs=1)
    out.backward(torch.randn_like(out))
    return [out.detach(), x.grad, *(each.grad for each in parameters)]

for rows in (63, 64, 300, 1000):
    for num_networks, count in ((1, 1), (2, 1), (2, 2), (5, 5)):
        for in_bf16 in (False, True):
            alone = passed(rows, num_networks, count, in_bf16, 1)
            for num_threads in (2, 3, 8):
                once, again = (passed(rows, num_networks, count, in_bf16, num_threads) for _ in range(2))
                for one, other, same in zip(alone, once, again, strict=True):
                    assert torch.equal(other, same), "who is faster decides"
                    assert (one - other).norm() <= (2e-2 if in_bf16 else 1e-5) * (1.0 + one.norm())
print("all the same")
"""


@pytest.mark.long
def test_on_several_threads_the_same_is_computed():
    """In a process of its own: threads that wait for work would be missed where a test forks."""
    done = subprocess.run([sys.executable, "-c", ON_THREADS], capture_output=True, text=True, timeout=300)
    assert done.stdout == "all the same\n", done.stderr
