"""Stacks of frames that are taken apart and put together again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.experience.segment_store import FrameStacks


def stacks_of(rows, depth, begins, padding, random, shape=(3, 5)):
    """``[rows, depth, *shape]``: stacks of frames that are all different, padded where an episode begins."""
    found, stack = [], list(random.integers(1, 255, (depth, *shape), np.uint8))
    for row in range(rows):
        frame = random.integers(1, 255, shape, np.uint8)
        if row in begins:
            stack = [np.zeros(shape, np.uint8) if padding == "zero" else frame] * (depth - 1)
        else:
            stack = stack[1:]
        stack = [*stack, frame]
        found.append(np.stack(stack))
    return np.stack(found)


@given(
    st.integers(1, 12), st.integers(1, 5), st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=3),
    st.sampled_from(["zero", "reset"]), st.integers(0, 100), st.sampled_from([(3, 5), (4, 4), (8,)]),
)  # fmt: skip
def test_what_was_taken_apart_comes_together_and_takes_a_frame_for_each_row(rows, depth, begins, padding, seed, shape):
    random = np.random.default_rng(seed)
    obs = np.stack([stacks_of(rows, depth, one, padding, random, shape) for one in begins])
    stacks = FrameStacks(rows, depth)
    frames, places = stacks.pack(obs)
    assert frames.shape == (len(begins), rows + depth, *shape)
    assert np.array_equal(stacks.unpack(frames, places), obs)


def test_rows_that_are_no_stacks_are_refused():
    obs = np.random.default_rng(0).integers(0, 255, (1, 6, 4, 8), np.uint8)
    with pytest.raises(ValueError, match="6 rows have more than 10 distinct frames: they are not stacks of 4"):
        FrameStacks(6, 4).pack(obs)
