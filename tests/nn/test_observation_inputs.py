"""What networks see of composite observations: each part of a row of bytes as it would be by itself."""

import numpy as np
import pytest
import torch

from penstock.nn.observations import ObservationInput, build_input, encoder_input_shape, encoder_input_size, leaf
from tests.nn.composites import (
    ARM,
    CAMERA,
    CARDS,
    LAMPS,
    MATRIX,
    ROOM,
    SPEED,
    composite,
    pack,
    random_mask,
    random_rows,
    random_values,
)

N = 5
PARTS = {"arm": ARM, "eye/left": CAMERA, "lamps": LAMPS, "speed": SPEED, "room": ROOM, "cards": CARDS, "0": MATRIX}
EVERYTHING = composite(PARTS, num_masked=7)


def values(*leading, seed=0):
    return {path: random_values(spec, *leading, seed=seed) for path, spec in PARTS.items()}


def test_every_part_is_seen_as_it_would_be_by_itself():
    parts = values(N)
    seen = build_input(EVERYTHING, normalize=False)(pack(EVERYTHING, parts, random_mask(7, N)))
    assert list(seen) == list(PARTS), "and the mask is not seen"
    for path, spec in PARTS.items():
        alone = ObservationInput(spec, normalize=False)(torch.from_numpy(parts[path]))
        assert seen[path].dtype == torch.float32 and seen[path].shape == (N, *encoder_input_shape(spec))
        assert torch.equal(seen[path], alone), path


def test_multi_discrete_observations_become_one_hot_vectors_side_by_side():
    """Of 2, 3 and 4 values; the values 1, 0 and 3 are numbers 1, 2 + 0 and 2 + 3 + 3."""
    seen = ObservationInput(CARDS, normalize=False)(torch.tensor([[1, 0, 3], [0, 2, 0]]))
    assert seen.tolist() == [[0, 1, 1, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 1, 1, 0, 0, 0]]


def test_the_size_of_what_is_seen_is_that_of_all_parts():
    assert encoder_input_size(EVERYTHING) == 3 + 36 * 36 * 3 + 5 + 1 + 4 + (2 + 3 + 4) + 6
    assert encoder_input_size(MATRIX) == 6


def test_parts_are_read_in_the_rows_own_memory():
    rows = random_rows(EVERYTHING, 3, N)
    for part in EVERYTHING.parts:
        view = leaf(rows, part)
        assert view.shape == (3, N, *part.spec.shape)
        assert view.untyped_storage().data_ptr() == rows.untyped_storage().data_ptr()


def test_a_plain_observation_with_a_mask_beside_it_is_seen_as_the_plain_one():
    observation, x = composite({"": ARM}, num_masked=4), random_values(ARM, N)
    seen = build_input(observation, normalize=False)(pack(observation, {"": x}, random_mask(4, N)))
    assert torch.equal(seen, torch.from_numpy(x))


def test_the_only_part_of_a_dict_keeps_its_key():
    observation, x = composite({"arm": ARM}), random_values(ARM, N)
    assert list(build_input(observation, normalize=False)(pack(observation, {"arm": x}))) == ["arm"]


# --- masks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leading", [(N,), (3, N)])
def test_the_mask_is_read_from_the_row(leading):
    mask = random_mask(7, *leading)
    rows = pack(EVERYTHING, values(*leading), mask)
    np.testing.assert_array_equal(build_input(EVERYTHING, normalize=False).mask(rows), mask)


@pytest.mark.parametrize("observation", [ARM, composite({"arm": ARM, "room": ROOM})], ids=["plain", "composite"])
def test_without_a_mask_there_is_none(observation):
    rows = torch.from_numpy(random_values(ARM, N)) if observation is ARM else random_rows(observation, N)
    assert build_input(observation, normalize=True).mask(rows) is None


# --- normalisation ---------------------------------------------------------------------------------------------------


def test_each_part_that_is_floating_point_is_normalised_by_its_own_moments():
    stage = build_input(EVERYTHING, normalize=True)
    parts, mask = values(40, N), np.random.default_rng(1).random((40, N)) < 0.7
    parts["arm"] = 3.0 + 2.0 * parts["arm"]
    parts["speed"] = 1e3 * parts["speed"] - 5e3
    stage.update_moments(pack(EVERYTHING, parts, random_mask(7, 40, N)), torch.from_numpy(mask))
    rows = {path: value.reshape(40 * N, *PARTS[path].shape) for path, value in parts.items()}
    seen = stage(pack(EVERYTHING, rows, random_mask(7, 40 * N)))
    for path in ("arm", "speed", "0"):
        counted = parts[path][mask]
        expected = ((rows[path] - counted.mean(0)) / counted.std(0)).clip(-10, 10).reshape(seen[path].shape)
        np.testing.assert_allclose(seen[path], expected, rtol=1e-3, atol=1e-3)
    raw = build_input(EVERYTHING, normalize=False)(pack(EVERYTHING, rows, random_mask(7, 40 * N)))
    assert all(torch.equal(seen[path], raw[path]) for path in ("eye/left", "lamps", "room", "cards"))
    assert {name.split(".")[1] for name, _ in stage.named_buffers()} == {"0", "3", "6"}


def test_a_plain_observation_with_a_mask_keeps_moments_too():
    observation = composite({"": ARM}, num_masked=4)
    stage, x = build_input(observation, normalize=True), 3.0 + random_values(ARM, 500)
    rows = pack(observation, {"": x}, random_mask(4, 500))
    stage.update_moments(rows)
    assert stage(rows).mean(0).abs().max() < 1e-3
