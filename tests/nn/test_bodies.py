"""Hidden layers made of parts: beside plain modules of torch, with unit weights, by the batch's moments."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.functional import relu

from penstock.envs.spaces import ActionSpec
from penstock.nn import (
    BodyActorCritic,
    BodyConfig,
    CategoricalReturns,
    NetworkConfig,
    share_rows_,
    sharing,
    update_moments,
)
from penstock.nn.bodies import BodyCritics, HiddenLayer, UnitHead, UnitLinear
from penstock.nn.norms import EPSILON, MOMENTUM, BatchNorm, LayerNorm, Norm, RMSNorm
from tests.nn.plain import IMAGE, VECTOR, observations
from tests.nn.together import in_threads

N, INPUTS, C, D = 16, 5, 2, 2
TORQUE = ActionSpec((D,), "float32", low=(-2.0,) * D, high=(2.0,) * D)
FLASH = BodyConfig("residual", "batch", unit_weights=True)


def rows(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def actions(seed=0):
    return rows(N, D, seed=seed).tanh()


def critics(config, sizes=(6, 6), outputs=3, has_unit_head=False):
    torch.manual_seed(0)
    made = BodyCritics(INPUTS, sizes, "relu", C, outputs, config=config, has_unit_head=has_unit_head)
    for norm in made.modules():
        if isinstance(norm, Norm):  # not the identity that they begin as
            norm.scale.data.uniform_(0.5, 1.5)
            if norm.shift is not None:
                norm.shift.data.normal_()
    return made


def network(observation=VECTOR, body=FLASH, returns=None, **config):
    torch.manual_seed(0)
    settings = NetworkConfig(**{"hidden_sizes": (8, 8), "activation": "relu", **config})
    return BodyActorCritic(observation, TORQUE, settings, num_critics=2, body=body, returns=returns)


def plainly(norm, x, c):
    """A normalisation of one network by torch's own function."""
    scale, shift = norm.scale[c, 0], None if norm.shift is None else norm.shift[c, 0]
    if isinstance(norm, BatchNorm):
        return nn.functional.batch_norm(x, None, None, scale, shift, training=True, eps=EPSILON)
    if isinstance(norm, LayerNorm):
        return nn.functional.layer_norm(x, x.shape[-1:], scale, shift, eps=EPSILON)
    assert isinstance(norm, RMSNorm)
    return nn.functional.rms_norm(x, x.shape[-1:], scale, eps=EPSILON)


def run_plainly(part, x, c):
    """A part of one network with plain functions of torch."""
    if isinstance(part, Norm):
        return plainly(part, x, c)
    if isinstance(part, HiddenLayer):
        x = run_plainly(part.linear, x, c)
        return relu(x if isinstance(part.norm, nn.Identity) else plainly(part.norm, x, c))
    if hasattr(part, "inner"):
        return x + run_plainly(part.outer, run_plainly(part.inner, x, c), c)
    y = x @ part.weight[c]
    return y if part.bias is None else y + part.bias[c]


@pytest.mark.parametrize("kind", ["mlp", "residual"])
@pytest.mark.parametrize("normalization", [None, "batch", "layer", "rms"])
@pytest.mark.parametrize("unit_weights", [False, True])
def test_critics_are_plain_networks_side_by_side(kind, normalization, unit_weights):
    made, x = critics(BodyConfig(kind, normalization, unit_weights)), rows(N, INPUTS)
    q = made(x)
    assert q.shape == (C, N, 3)
    for c in range(C):
        h = x
        for part in (*made.body, made.head):
            h = run_plainly(part, h, c)
        torch.testing.assert_close(q[c], h, atol=1e-5, rtol=1e-5)
    assert torch.equal(made.first(x), made(x)[0])


def test_a_body_has_a_layer_before_blocks_of_four_times_their_width_and_ends_normalised():
    made = critics(BodyConfig("residual", "batch", unit_weights=True))
    shapes = [tuple(layer.weight.shape) for layer in made.modules() if isinstance(layer, UnitLinear)]
    assert shapes == [(C, INPUTS, 6), *[(C, 6, 24), (C, 24, 6)] * 2]
    last = made.body[-1]
    last.scale.data.fill_(1.0)
    features = made.body(rows(N, INPUTS).expand(C, N, INPUTS))
    torch.testing.assert_close(features.square().mean(-1), torch.ones(C, N), atol=1e-3, rtol=0)


def test_running_moments_follow_when_told_to_and_normalise_outside_learning():
    norm, x = BatchNorm((C, 1, INPUTS)), 3.0 + 2.0 * rows(C, N, INPUTS)
    before = copy.deepcopy(norm.state_dict())
    norm(x)
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())
    update_moments(norm)
    var, mean = torch.var_mean(x, 1, correction=0, keepdim=True)
    torch.testing.assert_close(norm.mean, (1.0 - MOMENTUM) * mean)
    torch.testing.assert_close(norm.var, MOMENTUM + (1.0 - MOMENTUM) * var)
    norm.eval()
    torch.testing.assert_close(norm(x), (x - norm.mean) / (norm.var + EPSILON).sqrt())
    torch.testing.assert_close(norm(x[:, :1]), norm(x)[:, :1])


def test_gradients_pass_through_the_moments_of_the_batch():
    norm, x = BatchNorm((C, 1, INPUTS)), rows(C, N, INPUTS).requires_grad_()
    norm(x).square().sum().backward()
    assert x.grad.abs().max() < 1e-3, "the mean square is that of a normalised batch, whatever the input"
    norm.eval()(x).square().sum().backward()
    assert x.grad.abs().max() > 0.1


def test_constrained_parts_return_to_their_norms_and_free_ones_stay():
    made = critics(FLASH, has_unit_head=True)
    for parameter in made.parameters():
        parameter.data.mul_(3.0).add_(0.1)
    bias = made.head.bias.clone()
    for module in made.modules():
        if hasattr(module, "constrain_"):
            module.constrain_()
    for module in made.modules():
        if isinstance(module, UnitLinear):
            torch.testing.assert_close(module.weight.norm(dim=1), torch.ones_like(module.weight[:, 0]))
        if isinstance(module, Norm):
            squares = sum(part.square().sum(-1) for part in (module.scale, module.shift) if part is not None)
            torch.testing.assert_close(squares, torch.full_like(squares, module.scale.shape[-1]))
    assert torch.equal(made.head.bias, bias)
    free = BatchNorm((1, INPUTS))
    free.scale.data.fill_(7.0)
    free.constrain_()
    assert (free.scale == 7.0).all()


def test_unit_weights_begin_as_such_and_values_have_a_head_of_any_scale():
    made = network(returns=CategoricalReturns(11, -5.0, 5.0))
    assert isinstance(made.critics.head, UnitLinear) and isinstance(made.actor_head, UnitHead)
    torch.testing.assert_close(made.actor_head.weight.norm(dim=1), torch.ones(2 * D))
    for module in made.modules():
        if isinstance(module, UnitLinear):
            torch.testing.assert_close(module.weight.norm(dim=1), torch.ones_like(module.weight[:, 0]))
    assert not isinstance(network().critics.head, UnitLinear)


def test_values_are_the_means_of_distributions():
    made, x = network(returns=CategoricalReturns(11, -5.0, 5.0)).eval(), observations(VECTOR, N)
    logits = made.q(x, actions())
    assert logits.shape == (2, N, 11)
    torch.testing.assert_close(made.values(x, actions()), logits.softmax(-1) @ torch.linspace(-5.0, 5.0, 11))
    plain = network().eval()
    assert torch.equal(plain.values(x, actions()), plain.q(x, actions()))


def test_both_ends_of_transitions_pass_in_one_batch_and_logits_are_split_by_rows():
    made = network(returns=CategoricalReturns(11, -5.0, 5.0))
    first, last = observations(VECTOR, N), observations(VECTOR, N, seed=1)
    q, next_q = made.joint_q(first, actions(), last, actions(1))
    together = made.q(torch.cat((first, last)), torch.cat((actions(), actions(1))))
    torch.testing.assert_close(torch.cat((q, next_q), 1), together)
    for end, expected in enumerate((q, next_q)):  # of one end alone, with the moments of both
        (alone,) = made.joint_q(first, actions(), last, actions(1), end)
        torch.testing.assert_close(alone, expected)
    assert not torch.allclose(made.q(first, actions()), q, atol=1e-2)


def test_images_keep_their_encoders_and_critics_behind_them_have_a_body():
    made = network(IMAGE)
    x = observations(IMAGE, 4)
    assert made.q(x, actions()[:4]).shape == (2, 4)
    assert made.policy(x).mean.shape == (4, D)
    assert isinstance(made.actor_head, nn.Linear) and not isinstance(made.actor_head, UnitHead)
    assert isinstance(made.critics, BodyCritics)


@pytest.mark.parametrize("normalization", ["batch", "layer", "rms"])
def test_under_autocast_layers_multiply_in_bfloat16_and_normalise_in_float32(normalization):
    made, x = network(body=BodyConfig("residual", normalization, True)), observations(VECTOR, N)
    seen = {}
    for name, module in made.named_modules():
        if isinstance(module, UnitLinear | Norm):
            module.register_forward_hook(lambda _module, _inputs, output, name=name: seen.update({name: output.dtype}))
    exact = made.q(x, actions()), made.policy(x).mean
    with torch.autocast("cpu", torch.bfloat16):
        found = made.q(x, actions()), made.policy(x).mean
    for name, dtype in seen.items():
        is_layer = isinstance(made.get_submodule(name), UnitLinear)
        assert dtype == (torch.bfloat16 if is_layer else torch.float32), name
    for one, other in zip(found, exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.2, atol=0.2)


@pytest.mark.parametrize("normalization", ["batch", "layer"])
def test_a_group_of_learners_normalises_by_the_moments_of_all_their_rows(normalization):
    alone = network(body=BodyConfig("residual", normalization, True))
    x = observations(VECTOR, N)
    expected = alone.q(x, actions())
    expected.square().sum().backward()

    twins = [copy.deepcopy(alone) for _ in range(2)]

    def work(group):
        mine = share_rows_(twins[group.rank])
        mine.zero_grad()
        with sharing(group):
            q = mine.q(x, actions())
            q.square().sum().backward()
        return q.detach(), mine.critics.body[1].weight.grad if normalization == "batch" else None

    found = in_threads(2, work)
    for q, _ in found:
        torch.testing.assert_close(q, expected.detach(), atol=1e-4, rtol=1e-4)
    if normalization == "batch":  # the mean of all learners' gradients is that of the whole batch
        mean = sum(gradient for _, gradient in found) / 2
        torch.testing.assert_close(mean, alone.critics.body[1].weight.grad, atol=1e-3, rtol=1e-3)


def test_blocks_of_different_widths_are_refused():
    with pytest.raises(ValueError, match=r"blocks of one width.*\(8, 16\)"):
        network(hidden_sizes=(8, 16))


def test_a_block_begins_with_features_of_the_size_of_a_normalised_input():
    """An orthogonal layer of unit rows keeps a normalised input's mean square within a factor of its shape."""
    made = network(hidden_sizes=(64, 64))
    features = made.encoder(10.0 * observations(VECTOR, 256))
    assert math.isclose(features.square().mean().item(), 1.0, abs_tol=1e-3)
