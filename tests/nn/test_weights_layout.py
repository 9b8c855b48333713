"""Weights as bytes: everything arrives, in place, and a wrong network is refused by name."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from penstock.envs.spaces import ActionSpec, ObservationSpec
from penstock.nn import ActorCritic, NetworkConfig, WeightsLayout, WeightsMismatchError, flatten_

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


def as_it_is(module):
    return module


def flat(module):
    flatten_(module)
    return module


def with_channels_last_weights(module):
    module.conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    return module


FORMS = pytest.mark.parametrize("form", [as_it_is, flat])


@FORMS
@pytest.mark.parametrize("form_there", [as_it_is, flat])
@pytest.mark.parametrize("prepare", [as_it_is, with_channels_last_weights])
def test_packed_weights_arrive_in_another_module_in_place(form, form_there, prepare):
    source, target = (randomize(prepare(Mixed()), seed) for seed in (1, 2))
    source, target = form(source), form_there(target)
    layout = WeightsLayout(source)
    memory = {name: tensor.data_ptr() for name, tensor in tensors(target).items()}
    data = np.zeros(layout.nbytes, np.uint8)
    layout.pack(source, data)
    layout.unpack(data, target)
    assert_same(target, source)
    assert {name: tensor.data_ptr() for name, tensor in tensors(target).items()} == memory


@FORMS
def test_bytes_are_the_same_whether_the_module_is_flat_or_not(form):
    plain = Mixed()
    layout = WeightsLayout(plain)
    expected, found = np.zeros(layout.nbytes, np.uint8), np.zeros(layout.nbytes, np.uint8)
    layout.pack(plain, expected)
    layout.pack(form(plain), found)
    assert expected.any()
    assert (found == expected).all()


def test_every_tensor_has_an_aligned_place_of_its_own():
    module = Mixed()
    layout = WeightsLayout(module)
    assert [entry.name for entry in layout.entries] == list(tensors(module))
    end = 0
    for entry, tensor in zip(layout.entries, tensors(module).values(), strict=True):
        assert entry.offset % 64 == 0
        assert entry.offset >= end
        assert (entry.dtype, entry.shape) == (tensor.dtype, tuple(tensor.shape))
        end = entry.offset + entry.nbytes
    assert end <= layout.nbytes
    assert layout.nbytes % 64 == 0


def test_torch_tensors_hold_the_bytes_as_well_as_arrays():
    source, target = Mixed(), Mixed()
    layout = WeightsLayout(source)
    data = torch.zeros(layout.nbytes, dtype=torch.uint8)
    layout.pack(source, data)
    layout.unpack(data, target)
    assert_same(target, source)


def test_flattening_keeps_values_and_tensors_and_moves_all_into_one_memory():
    module = randomize(Mixed(), 3)
    before, values = tensors(module), copy.deepcopy(module)
    memory = flatten_(module)
    assert all(tensors(module)[name] is tensor for name, tensor in before.items())
    assert_same(module, values)
    storages = {tensor.untyped_storage().data_ptr() for tensor in before.values() if tensor.numel()}
    assert storages == {memory.untyped_storage().data_ptr()}


def test_a_flat_module_is_packed_in_one_copy():
    """What is written into the returned memory is what is packed, gaps between tensors included."""
    module = ActorCritic(OBSERVATION, ACTION, NetworkConfig(normalize_observations=True))
    memory = flatten_(module)
    memory.fill_(7)
    data = np.zeros(memory.shape[0], np.uint8)
    layout = WeightsLayout(module)
    layout.pack(module, data)
    last = layout.entries[-1]
    assert (data[: last.offset + last.nbytes] == 7).all()


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
    layout = WeightsLayout(module)
    assert [entry.name for entry in layout.entries] == ["0.weight", "0.bias", "1.bias"]
    flatten_(module)
    assert module[1].weight is module[0].weight


def test_a_module_that_left_its_flat_memory_is_still_packed_right():
    module = Mixed()
    flatten_(module)
    module.layer.weight.data = torch.full((5, 3), 9.0)
    layout, target = WeightsLayout(module), Mixed()
    data = np.zeros(layout.nbytes, np.uint8)
    layout.pack(module, data)
    layout.unpack(data, target)
    assert_same(target, module)


def transposed_in_place(module):
    """The last weight is read column by column, from the place that the table gives it."""
    flatten_(module)
    module[2].weight.data = module[2].weight.data.T


def swapped_places(module):
    """Two weights lie in one memory, each where the table wants the other."""
    flatten_(module)
    module[0].weight.data, module[2].weight.data = module[2].weight.data, module[0].weight.data


def neighbours_by_chance(module):
    """Two tensors lie as far apart as the table wants, but their memory was not allocated together."""
    memory = np.random.default_rng(0).random(32, dtype=np.float32)
    module[0].weight.data = torch.from_numpy(memory[:9]).view(3, 3)
    module[0].bias.data = torch.from_numpy(memory[16:19])


@pytest.mark.parametrize("disorder", [transposed_in_place, swapped_places, neighbours_by_chance])
def test_memory_that_is_not_laid_out_like_the_table_is_packed_right(disorder):
    source, target = (nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)) for _ in range(2))
    disorder(source)
    layout = WeightsLayout(target)
    data = np.zeros(layout.nbytes, np.uint8)
    layout.pack(source, data)
    layout.unpack(data, target)
    assert_same(target, source)


def test_layouts_are_equal_when_their_tables_are_and_travel_by_pickle():
    layout = WeightsLayout(Mixed())
    assert layout == WeightsLayout(Mixed())
    assert layout != WeightsLayout(Mixed(width=4))
    assert pickle.loads(pickle.dumps(layout)) == layout


def test_a_different_network_is_refused_naming_the_first_tensor_that_differs():
    layout, other = WeightsLayout(Mixed()), Mixed(width=4)
    data = np.zeros(layout.nbytes, np.uint8)
    message = r"expected layer.weight \(float32 \[5, 3\]\), found layer.weight \(float32 \[5, 4\]\)"
    for attempt in (
        lambda: layout.pack(other, data),
        lambda: layout.unpack(data, other),
        lambda: layout.require_same(WeightsLayout(other)),
    ):
        with pytest.raises(WeightsMismatchError, match=message):
            attempt()


def test_a_network_with_fewer_or_more_tensors_is_refused_naming_the_odd_one():
    small, large = WeightsLayout(nn.Linear(2, 2, bias=False)), WeightsLayout(nn.Linear(2, 2))
    with pytest.raises(WeightsMismatchError, match=r"bias \(float32 \[2\]\) is not expected"):
        small.require_same(large)
    with pytest.raises(WeightsMismatchError, match=r"bias \(float32 \[2\]\) is missing"):
        large.require_same(small)


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_what_cannot_hold_the_bytes_is_refused(dtype):
    layout, module = WeightsLayout(Mixed()), Mixed()
    with pytest.raises(ValueError, match=rf"contiguous uint8 \[{layout.nbytes}\]; found"):
        layout.pack(module, np.zeros(layout.nbytes, dtype))
    with pytest.raises(ValueError, match=rf"uint8 \[{layout.nbytes}\]; found uint8 \[3\]"):
        layout.unpack(np.zeros(3, np.uint8), module)
    with pytest.raises(ValueError, match="contiguous"):
        layout.pack(module, torch.zeros(2 * layout.nbytes, dtype=torch.uint8)[::2])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@FORMS
def test_weights_travel_between_devices(form):
    source, target = form(randomize(Mixed(), 1).cuda()), form(randomize(Mixed(), 2))
    layout = WeightsLayout(source)
    data = np.zeros(layout.nbytes, np.uint8)
    layout.pack(source, data)
    layout.unpack(data, target)
    assert_same(target, source.cpu())
