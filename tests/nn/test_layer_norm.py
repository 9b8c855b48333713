"""Layer normalisation stands between the layers of an encoder and their activations."""

import pytest
import torch
from torch import nn

from penstock.nn import NetworkConfig, QNetwork
from penstock.nn.layers import normalize_layers_
from penstock.nn.mlp import MLP
from tests.nn.composites import ARM, CAMERA, composite
from tests.nn.plain import CHOICE, IMAGE, VECTOR, observations


def q_network(observation=VECTOR, **config):
    torch.manual_seed(0)
    settings = NetworkConfig(**{"hidden_sizes": (16, 8), "activation": "relu", "layer_norm": True, **config})
    return QNetwork(observation, CHOICE, settings, dueling=False, epsilon=0.0)


@pytest.mark.parametrize("activation", ["relu", "tanh", "elu", "silu"])
def test_each_layer_of_an_mlp_is_normalised_before_its_activation(activation):
    network, x = q_network(activation=activation), observations(VECTOR, 5)
    h = network.input(x)
    for layer in (m for m in network.encoder if isinstance(m, nn.Linear)):
        h = network.encoder[-1](nn.functional.layer_norm(layer(h), (layer.out_features,)))
    torch.testing.assert_close(network.q(x), network.head(h))


def test_values_do_not_grow_with_the_scale_of_a_hidden_layer():
    network, x = q_network(), observations(VECTOR, 5)
    before = network.q(x)
    with torch.no_grad():
        network.encoder[0].weight.mul_(1_000.0)
        network.encoder[0].bias.mul_(1_000.0)
    torch.testing.assert_close(network.q(x), before, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("encoder", ["nature_cnn", "impala_resnet"])
def test_in_images_each_row_is_normalised_over_channels_and_pixels(encoder):
    network, plain = q_network(IMAGE, encoder=encoder), q_network(IMAGE, encoder=encoder, layer_norm=False)
    norms = [m for m in network.encoder.modules() if isinstance(m, nn.GroupNorm)]
    assert norms and all(norm.num_groups == 1 for norm in norms)
    assert sum(isinstance(m, nn.LayerNorm) for m in network.encoder.modules()) == 1, "the last layer's"
    assert not any(isinstance(m, nn.GroupNorm | nn.LayerNorm) for m in plain.modules())
    x = observations(IMAGE, 3)
    torch.testing.assert_close(torch.cat([network.q(row) for row in x.split(1)]), network.q(x), atol=1e-5, rtol=1e-4)


def test_every_part_of_a_composite_encoder_is_normalised():
    network = q_network(composite({"eye": CAMERA, "arm": ARM}))
    kinds = [type(module) for module in network.encoder.modules()]
    assert kinds.count(nn.LayerNorm) == kinds.count(nn.Linear) == 3, "the image's features, and the two of hidden_sizes"
    assert nn.GroupNorm in kinds


def test_layers_without_an_activation_behind_them_stay_as_they_are():
    block = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
    normalize_layers_(block)
    assert [type(module) for module in block] == [nn.Linear, nn.LayerNorm, nn.ReLU, nn.Linear]


def test_an_encoder_of_ones_own_is_left_as_it_is():
    network = q_network(encoder=lambda spec: nn.Sequential(nn.Linear(spec.shape[0], 4), nn.ReLU()))
    assert not isinstance(network.encoder, MLP)
    assert not any(isinstance(module, nn.LayerNorm) for module in network.modules())
