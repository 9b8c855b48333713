"""A network as one stretch of bytes: its tensors stay what they are, and copying the bytes copies all of it."""

import copy

import pytest
import torch
from torch import nn

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import ActorCritic, NetworkConfig, WeightsLayout, flatten_, joined, stretch_of

OBSERVATION, ACTION = ObservationSpec((4,), "float32"), ActionSpec((), "int64", num_actions=3)


class Mixed(nn.Module):
    """Parameters and buffers of many dtypes and shapes: scalars, an empty one, one that is not saved."""

    def __init__(self, width=3):
        super().__init__()
        self.layer = nn.Linear(width, 5)
        self.norm = nn.BatchNorm1d(5)
        self.coarse = nn.Parameter(torch.randn(7).half())
        self.register_buffer("steps", torch.tensor(2**40 + 1))
        self.register_buffer("mask", torch.tensor([True, False, True]))
        self.register_buffer("count", torch.tensor(1 / 3, dtype=torch.float64))
        self.register_buffer("empty", torch.zeros(0, 4))
        self.register_buffer("scratch", torch.randn(2, 2), persistent=False)


def randomize(module, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in tensors(module).values():
            tensor.copy_(torch.randint(0, 100, tensor.shape, generator=generator))
    return module


def tensors(module):
    return dict(module.named_parameters()) | dict(module.named_buffers())


def assert_same(one, other):
    for (name, tensor), expected in zip(tensors(one).items(), tensors(other).values(), strict=True):
        assert torch.equal(tensor, expected), name


def with_channels_last_weights(module):
    module.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    return module


@pytest.mark.parametrize("prepare", [lambda module: module, with_channels_last_weights])
def test_copying_the_bytes_of_a_flat_network_copies_all_of_its_tensors_in_place(prepare):
    source, target = (randomize(prepare(Mixed()), seed) for seed in (1, 2))
    bytes_of_source, bytes_of_target = flatten_(source), flatten_(target)
    places = {name: tensor.data_ptr() for name, tensor in tensors(target).items()}
    bytes_of_target.copy_(bytes_of_source)
    assert_same(target, source)
    assert {name: tensor.data_ptr() for name, tensor in tensors(target).items()} == places


def test_every_tensor_has_an_aligned_place_of_its_own():
    module = Mixed()
    layout = WeightsLayout(module)
    end = 0
    for offset, tensor in zip(layout.offsets, tensors(module).values(), strict=True):
        assert offset % 64 == 0
        assert offset >= end
        end = offset + tensor.nbytes
    assert end <= layout.nbytes
    assert layout.nbytes % 64 == 0


def test_a_flat_network_lies_where_its_layout_says():
    module = Mixed()
    layout = WeightsLayout(module)
    memory = flatten_(module)
    assert memory.dtype == torch.uint8 and memory.shape == (layout.nbytes,)
    for offset, (name, tensor) in zip(layout.offsets, tensors(module).items(), strict=True):
        assert tensor.numel() == 0 or tensor.data_ptr() - memory.data_ptr() == offset, name


def test_flattening_keeps_values_and_tensors_and_moves_all_into_one_memory():
    module = randomize(Mixed(), 3)
    before, values = tensors(module), copy.deepcopy(module)
    memory = flatten_(module)
    assert all(tensors(module)[name] is tensor for name, tensor in before.items())
    assert_same(module, values)
    storages = {tensor.untyped_storage().data_ptr() for tensor in before.values() if tensor.numel()}
    assert storages == {memory.untyped_storage().data_ptr()}


def test_a_flat_network_trains_like_any_other():
    torch.manual_seed(0)
    plain = ActorCritic(OBSERVATION, ACTION, NetworkConfig(normalize_observations=True))
    flattened = copy.deepcopy(plain)
    flatten_(flattened)
    x = torch.randn(32, 4)
    for network in (plain, flattened):
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
        for _ in range(3):
            network.update_observation_statistics(x)
            distribution, value = network.evaluate(x)
            optimizer.zero_grad()
            (value.square().mean() - distribution.entropy().mean()).backward()
            optimizer.step()
    assert_same(flattened, plain)


def test_a_flat_module_copied_deeply_is_independent_of_it():
    module = randomize(Mixed(), 4)
    flatten_(module)
    twin = copy.deepcopy(module)
    randomize(module, 5)
    assert_same(twin, randomize(Mixed(), 4))


def test_tied_weights_are_listed_once_and_stay_tied():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    assert WeightsLayout(module).offsets == (0, 64, 128)
    flatten_(module)
    assert module[1].weight is module[0].weight


def layers() -> nn.Sequential:
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 1))
    flatten_(network)
    return network


@pytest.mark.parametrize("optimizer_class", [torch.optim.Adam, torch.optim.RMSprop])
def test_neighbours_joined_into_one_parameter_train_as_they_would_by_themselves(optimizer_class):
    plain, network = layers(), layers()
    parameters = list(network.parameters())[2:]  # all but the first layer, which stays as it is
    whole = joined(parameters)
    one, many = optimizer_class([whole], 1e-2), optimizer_class(list(plain.parameters())[2:], 1e-2)
    x = torch.randn(16, 3)
    for _ in range(5):
        many.zero_grad()
        plain(x).square().mean().backward()
        many.step()
        whole.grad.zero_()
        network(x).square().mean().backward(inputs=parameters)
        norms = [torch.linalg.vector_norm(p.grad) for p in list(plain.parameters())[2:]]
        torch.testing.assert_close(torch.linalg.vector_norm(whole.grad), torch.stack(norms).norm())
        one.step()
    for found, expected in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(found, expected)
    assert not torch.equal(network[2].weight, layers()[2].weight)


def test_a_stretch_is_the_memory_of_its_tensors_and_nothing_else():
    network = layers()
    network[0].bias.data.fill_(7.0)
    stretch = stretch_of(list(network.parameters())[2:4])
    stretch.fill_(0.5)
    assert network[2].weight.eq(0.5).all() and network[2].bias.eq(0.5).all()
    assert network[0].bias.eq(7.0).all() and not network[4].weight.eq(0.5).any()


@pytest.mark.parametrize("which", [[0, 2], [1, 0], [0, 1, 3]])
def test_parameters_that_are_no_neighbours_cannot_be_joined(which):
    parameters = list(layers().parameters())
    with pytest.raises(ValueError, match="are not adjacent in memory: flatten_ their module first"):
        joined([parameters[i] for i in which])
    with pytest.raises(ValueError, match="flatten_"):
        joined(list(nn.Linear(2, 2).parameters()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bytes_travel_between_devices():
    source, target = randomize(Mixed(), 1).cuda(), randomize(Mixed(), 2)
    bytes_of_source = flatten_(source)
    flatten_(target).copy_(bytes_of_source)
    assert_same(target, source.cpu())
