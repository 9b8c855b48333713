"""Encoders: inputs that they accept, their view of these, and refusals of others."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from penstock.envs.spaces import ObservationSpec
from penstock.nn import EncoderError, build_encoder
from penstock.nn.encoders import (
    ImageLayout,
    ImagesAndMore,
    ImpalaResNet,
    MaxPoolTo,
    NatureCNN,
    NatureCNNAndMLP,
    takes_bytes,
)  # fmt: skip
from penstock.nn.mlp import MLP
from penstock.nn.observations import ObservationInput, build_input, encoder_input_shape
from tests.nn.composites import ARM, CAMERA, ROOM, composite, random_rows
from tests.nn.composites import TINY as TINY_CAMERA
from tests.nn.plain import DISCRETE, VECTOR

ATARI = ObservationSpec((4, 84, 84), "uint8")
RGB = ObservationSpec((96, 80, 3), "uint8")
TINY = ObservationSpec((7, 7, 3), "uint8")


_OF_BYTES = (NatureCNN, NatureCNNAndMLP, ImpalaResNet)


def build(encoder, observation):
    return build_encoder(encoder, observation, (32, 16), "tanh")


def features_of(module, observation, rows=5):
    x = torch.rand(rows, *encoder_input_shape(observation))
    return module((256 * x).to(torch.uint8) if isinstance(module, _OF_BYTES) else x)


@pytest.mark.parametrize(
    ("encoder", "observation", "output_size"),
    [
        ("mlp", VECTOR, 16),
        ("mlp", DISCRETE, 16),
        ("mlp", ObservationSpec((), "float32"), 16),
        ("mlp", ObservationSpec((3, 4), "float32"), 16),
        ("mlp", TINY, 16),
        ("nature_cnn", ATARI, 512),
        ("nature_cnn", RGB, 512),
        ("nature_cnn", ObservationSpec((36, 36, 1), "uint8"), 512),
        ("nature_cnn", ObservationSpec((1, 37, 50), "float32"), 512),
        ("nature_cnn_mlp", RGB, 16),
        ("impala_resnet", ATARI, 256),
        ("impala_resnet", RGB, 256),
        ("impala_resnet", TINY, 256),
    ],
)
def test_every_encoder_turns_rows_into_feature_vectors(encoder, observation, output_size):
    module, size = build(encoder, observation)
    assert size == output_size
    assert features_of(module, observation).shape == (5, output_size)


@pytest.mark.parametrize(
    ("observation", "cls"),
    [(VECTOR, MLP), (DISCRETE, MLP), (ATARI, NatureCNN), (RGB, NatureCNN), (TINY, ImpalaResNet)],
)
def test_auto_chooses_by_observation(observation, cls):
    assert isinstance(build("auto", observation)[0], cls)


def test_the_impala_network_has_fifteen_convolutions():
    module, _ = build("impala_resnet", ATARI)
    assert sum(isinstance(layer, nn.Conv2d) for layer in module.modules()) == 15


@pytest.mark.parametrize(("height", "width", "side"), [(11, 11, 6), (5, 7, 6), (12, 9, 6), (3, 11, 2)])
def test_an_export_pools_by_slices_what_is_pooled_adaptively(monkeypatch, height, width, side):
    x, pool = torch.randn(2, 3, height, width), MaxPoolTo(side)
    expected = pool(x)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert torch.equal(pool(x), expected)


def test_the_nature_network_has_the_published_number_of_weights():
    """Conv 4x32x8x8, 32x64x4x4, 64x64x3x3, then 3136x512, each with biases."""
    module, _ = build("nature_cnn", ATARI)
    expected = (8192 + 32) + (32768 + 64) + (36864 + 64) + (3136 * 512 + 512)
    assert sum(parameter.numel() for parameter in module.parameters()) == expected


def test_without_hidden_layers_an_mlp_hands_its_input_on():
    module, size = build_encoder("mlp", VECTOR, (), "tanh")
    x = torch.randn(3, 4)
    assert size == 4
    assert torch.equal(module(x), x)


def test_hidden_layers_start_orthogonal_with_gain_root_two_and_no_bias():
    module, _ = build("mlp", VECTOR)
    first, second = (layer for layer in module if isinstance(layer, nn.Linear))
    torch.testing.assert_close(first.weight.T @ first.weight, 2.0 * torch.eye(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(second.weight @ second.weight.T, 2.0 * torch.eye(16), rtol=0, atol=1e-5)
    assert (first.bias == 0).all()


def test_the_residual_network_keeps_the_scale_of_its_input_at_the_start():
    torch.manual_seed(0)
    module, _ = build("impala_resnet", ATARI)
    assert 0.05 < features_of(module, ATARI, rows=8).std().item() < 20.0


# --- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "channels", "height", "width"),
    [((4, 84, 84), 4, 84, 84), ((84, 84, 4), 4, 84, 84), ((210, 160, 3), 3, 210, 160), ((3, 96, 64), 3, 96, 64)],
)
def test_the_channel_axis_is_the_shorter_of_the_first_and_the_last(shape, channels, height, width):
    layout = ImageLayout(ObservationSpec(shape, "uint8"))
    assert (layout.channels, layout.height, layout.width) == (channels, height, width)
    assert layout(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, channels, height, width)


@pytest.mark.parametrize("name", ["nature_cnn", "impala_resnet"])
def test_both_layouts_of_an_image_give_the_same_features(name):
    first, last = ObservationSpec((3, 40, 48), "uint8"), ObservationSpec((40, 48, 3), "uint8")
    channel_first, _ = build(name, first)
    channel_last, _ = build(name, last)
    channel_last.load_state_dict(channel_first.state_dict())
    image = torch.randint(0, 256, (2, 3, 40, 48), dtype=torch.uint8)
    torch.testing.assert_close(channel_first(image), channel_last(image.permute(0, 2, 3, 1)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["nature_cnn", "impala_resnet"])
@pytest.mark.parametrize("is_bfloat16", [False, True])
@pytest.mark.parametrize("brightest", [255, 1])
def test_bytes_give_the_features_of_pixels_from_0_to_1(name, is_bfloat16, brightest):
    of_bytes, _ = build(name, ObservationSpec((4, 84, 84), "uint8", low=(0,), high=(brightest,)))
    of_numbers, _ = build(name, ObservationSpec((4, 84, 84), "float32"))
    of_numbers.load_state_dict(of_bytes.state_dict())
    image = torch.randint(0, brightest + 1, (2, 4, 84, 84), dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_bfloat16):
        left, right = of_bytes(image).float(), of_numbers(image / brightest).float()
    torch.testing.assert_close(left, right, rtol=0.0, atol=(0.05 if is_bfloat16 else 1e-5) * right.abs().max().item())


def test_only_the_projects_own_image_encoders_are_shown_bytes():
    image, own = ObservationSpec((4, 84, 84), "uint8"), lambda observation: torch.nn.Flatten()
    assert takes_bytes("auto", image) and takes_bytes("nature_cnn", image)
    assert not takes_bytes("mlp", image) and not takes_bytes(own, image) and not takes_bytes("auto", VECTOR)


def test_an_image_whose_channels_have_ranges_of_their_own_is_shown_as_numbers():
    low, high = np.zeros((36, 36, 3), int), np.broadcast_to([255, 1, 9], (36, 36, 3))
    spec = ObservationSpec((36, 36, 3), "uint8", low=tuple(low.flat), high=tuple(high.flat))
    encoder, _ = build("nature_cnn", spec)
    image = torch.from_numpy(high.astype(np.uint8)).expand(2, 36, 36, 3)
    seen = build_input(spec, normalize=False, raw_images=takes_bytes("nature_cnn", spec))(image)
    assert seen.unique().tolist() == [1.0] and encoder(seen).shape == (2, 512)


def test_an_image_whose_layout_cannot_be_told_is_refused_with_what_is_needed():
    with pytest.raises(ValueError, match=r"\(64, 64, 64\).*equally long.*\(channels, height, width\)"):
        build("nature_cnn", ObservationSpec((64, 64, 64), "uint8"))
    with pytest.raises(ValueError, match=r"\(4,\).*three axes are needed.*encoder='mlp'"):
        build("impala_resnet", VECTOR)


def test_an_image_too_small_for_the_nature_network_is_refused_with_what_is_needed():
    with pytest.raises(ValueError, match=r"at least 36x36, found 35x36.*encoder='impala_resnet'"):
        build("nature_cnn", ObservationSpec((35, 36, 3), "uint8"))


# --- what encoders see -----------------------------------------------------------------------------------------------


def test_bytes_are_scaled_to_the_unit_interval():
    x = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    seen = ObservationInput(ObservationSpec((3,), "uint8"), normalize=False)(x)
    assert seen.dtype == torch.float32
    torch.testing.assert_close(seen, torch.tensor([[0.0, 0.2, 1.0]]))


def test_discrete_observations_become_one_hot():
    seen = ObservationInput(DISCRETE, normalize=False)(torch.tensor([0, 5, 2]))
    assert torch.equal(seen, torch.eye(6)[[0, 5, 2]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_numbers_are_seen_as_they_are_in_float32(dtype):
    x = torch.tensor([[1, -2, 3]], dtype=getattr(torch, dtype))
    seen = ObservationInput(ObservationSpec((3,), dtype), normalize=False)(x)
    assert seen.dtype == torch.float32
    assert seen.tolist() == [[1.0, -2.0, 3.0]]


@pytest.mark.parametrize("observation", [ATARI, DISCRETE, ObservationSpec((3,), "int32")])
def test_only_floats_are_normalised(observation):
    assert ObservationInput(observation, normalize=True).moments is None
    assert ObservationInput(VECTOR, normalize=True).moments is not None


# --- composite observations ------------------------------------------------------------------------------------------

VECTORS = composite({"arm": ARM, "room": ROOM}, num_masked=3)
STEREO = composite({"left": CAMERA, "arm": ARM, "right": TINY_CAMERA, "room": ROOM})


def features_of_rows(module, observation, rows=5):
    raw_images = not isinstance(module, MLP)
    return module(build_input(observation, False, raw_images)(random_rows(observation, rows)))


@pytest.mark.parametrize("encoder", ["auto", "mlp"])
def test_parts_that_are_no_images_are_seen_side_by_side_by_one_mlp(encoder):
    module, size = build(encoder, VECTORS)
    assert isinstance(module, MLP) and size == 16
    seen = build_input(VECTORS, normalize=False)(random_rows(VECTORS, 5))
    alone, _ = build("mlp", ObservationSpec((3 + 4,), "float32"))
    for of_alone, of_parts in zip(alone.parameters(), module.parameters(), strict=True):
        of_alone.data.copy_(of_parts)
    torch.testing.assert_close(module(seen), alone(torch.cat((seen["arm"], seen["room"]), 1)))


@pytest.mark.parametrize(
    ("encoder", "kinds"),
    [
        ("auto", [NatureCNN, ImpalaResNet]),
        ("impala_resnet", [ImpalaResNet, ImpalaResNet]),
    ],
)
def test_each_image_has_an_encoder_and_an_mlp_sees_their_features_and_all_other_parts(encoder, kinds):
    module, size = build(encoder, STEREO)
    assert isinstance(module, ImagesAndMore) and size == 16
    assert [type(image) for image in module.images] == kinds
    assert module.mlp[1].in_features == sum(image.output_size for image in module.images) + 3 + 4
    seen = build_input(STEREO, False, raw_images=True)(random_rows(STEREO, 5))
    left, right = (image(seen[path]) for image, path in zip(module.images, ("left", "right"), strict=True))
    side_by_side = torch.cat((left, seen["arm"], right, seen["room"]), 1)
    torch.testing.assert_close(module(seen), nn.Sequential(*list(module.mlp)[1:])(side_by_side))


def test_with_encoder_mlp_images_are_numbers_among_others():
    module, size = build("mlp", STEREO)
    assert isinstance(module, MLP) and size == 16
    assert module[1].in_features == 36 * 36 * 3 + 3 + 4 * 9 * 7 + 4


@pytest.mark.parametrize("path", ["", "camera"])
@pytest.mark.parametrize("encoder", ["auto", "nature_cnn", "impala_resnet", "mlp"])
def test_the_only_part_is_encoded_as_it_would_be_by_itself(encoder, path):
    observation = composite({path: CAMERA}, num_masked=3)
    module, size = build(encoder, observation)
    alone, size_alone = build(encoder, CAMERA)
    for of_alone, of_part in zip(alone.parameters(), module.parameters(), strict=True):
        of_alone.data.copy_(of_part)
    seen = build_input(observation, False, raw_images=encoder != "mlp")(random_rows(observation, 5))
    image = seen["camera"] if path else seen
    assert size == size_alone
    torch.testing.assert_close(module(seen), alone(image))


def test_an_encoder_of_images_is_refused_where_no_part_is_one():
    with pytest.raises(ValueError, match=r"encoder='nature_cnn' needs an image.*'arm' \(float32 \(3,\)\), 'room'"):
        build("nature_cnn", VECTORS)


def test_what_is_made_of_one_part_can_depend_on_another():
    """A goal beside a position: whether their signs agree is no sum of something of each alone."""
    torch.manual_seed(0)
    observation = composite({"position": ObservationSpec((1,), "float32"), "goal": ObservationSpec((1,), "float32")})
    module, size = build("auto", observation)
    head = nn.Linear(size, 1)
    optimizer = torch.optim.Adam([*module.parameters(), *head.parameters()], lr=1e-2)
    for seed in range(200):
        seen = build_input(observation, False, raw_images=True)(random_rows(observation, 128, seed=2 * seed))
        agree = (seen["position"] * seen["goal"]).sign()
        loss = nn.functional.soft_margin_loss(head(module(seen)), agree)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert ((head(module(seen)) > 0) == (agree > 0)).float().mean() > 0.9


# --- the user's own --------------------------------------------------------------------------------------------------


class OwnEncoder(nn.Module):
    """Ten lines a user would write; its output size is found by running it."""

    def __init__(self, observation):
        super().__init__()
        self.layer = nn.Linear(math.prod(observation.shape), 7)
        self.norm = nn.BatchNorm1d(7)

    def forward(self, x):
        return self.norm(self.layer(x.flatten(1))).relu()


def test_a_module_class_is_an_encoder_and_its_output_size_is_found():
    module, size = build(OwnEncoder, RGB)
    assert size == 7
    assert module.training
    assert module.norm.num_batches_tracked == 0
    assert features_of(module, RGB).shape == (5, 7)


def test_a_function_may_say_its_output_size():
    def own(observation):
        module = nn.Linear(observation.shape[0], 9)
        module.output_size = 9
        return module

    assert build(own, VECTOR)[1] == 9


def test_an_output_size_that_is_not_that_of_the_features_is_refused_with_both():
    def own(observation):
        module = nn.Linear(observation.shape[0], 9)
        module.output_size = 16
        return module

    with pytest.raises(EncoderError, match="own has output_size=16, but returned 9 features"):
        build(own, VECTOR)


class OwnCompositeEncoder(nn.Module):
    """Of a composite observation a user's encoder is given the spec, and a dict of tensors by path."""

    def __init__(self, observation):
        super().__init__()
        self.paths = [part.path for part in observation.parts]
        self.layer = nn.Linear(3 + 4, 7)

    def forward(self, parts):
        assert list(parts) == self.paths
        return self.layer(torch.cat((parts["arm"], parts["room"]), 1))


def test_an_encoder_of_ones_own_gets_the_parts_of_a_composite_observation_by_their_paths():
    module, size = build(OwnCompositeEncoder, VECTORS)
    assert size == 7 and module.paths == ["arm", "room"]
    assert features_of_rows(module, VECTORS).shape == (5, 7)


def test_an_encoder_of_ones_own_gets_a_plain_observation_although_there_is_a_mask_beside_it():
    specs = []

    def own(observation):
        specs.append(observation)
        return nn.Linear(3, 9)

    observation = composite({"": ARM}, num_masked=4)
    module, size = build(own, observation)
    assert specs == [ARM] and size == 9
    assert features_of_rows(module, observation).shape == (5, 9)


def test_an_encoder_that_is_not_one_is_refused():
    with pytest.raises(EncoderError, match=r"instance of Linear.*give the class"):
        build(nn.Linear(4, 2), VECTOR)
    with pytest.raises(EncoderError, match=r"returned list; it must return a torch.nn.Module"):
        build(lambda observation: [], VECTOR)
    with pytest.raises(EncoderError, match=r"\(2, 4, 84, 84\) into shape \(2, 4, 84, 3\).*\(2, F\)"):
        build(lambda observation: nn.Linear(84, 3), ATARI)
    with pytest.raises(EncoderError, match=r"\{'arm': \(2, 3\), 'room': \(2, 4\)\} into dict.*\(2, F\)"):
        build(lambda observation: Whole(), VECTORS)


class Whole(nn.Module):
    """What returns what it is given."""

    def forward(self, x):
        return x
