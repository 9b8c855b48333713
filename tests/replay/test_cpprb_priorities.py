"""The drop-in's priorities, against what cpprb 11.0.0 answered to the same calls."""

import numpy as np
import pytest

from penstock.replay import NotReady, cpprb
from tests.replay.drop_in import filled, numbers

PRIORITIZED = [cpprb.PrioritizedReplayBuffer, cpprb.MPPrioritizedReplayBuffer]


@pytest.fixture(params=PRIORITIZED, ids=lambda kind: kind.__name__)
def prioritized(request):
    return request.param


def test_batches_have_weights_and_indexes(prioritized):
    buffer = filled(prioritized, 8, 5)
    batch = buffer.sample(3)
    assert list(batch) == ["a", "weights", "indexes"]
    assert (batch["weights"].dtype, batch["weights"].shape) == (np.float32, (3,))
    assert (batch["indexes"].dtype, batch["indexes"].shape) == (np.uint64, (3,))
    assert np.array_equal(batch["a"].ravel(), batch["indexes"])


@pytest.mark.parametrize(
    ("options", "beta", "expected"),
    [
        ({}, 1.0, [0.65979356, 0.34131285, 1.0, 0.20529176]),
        ({}, 0.7, [0.74745607, 0.47120175, 1.0, 0.33011112]),
        ({}, 0.0, [1.0, 1.0, 1.0, 1.0]),
        # ((p + eps) / (0.5 + eps)) ** -alpha with p = 1, 3, 0.5, 7
        ({"alpha": 1.0, "eps": 0.5}, 1.0, [1 / 1.5, 1 / 3.5, 1.0, 1 / 7.5]),
        ({"alpha": 0.0}, 1.0, [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_weights_are_those_of_cpprb(prioritized, options, beta, expected):
    buffer = numbers(prioritized, 4, **options)
    buffer.add(a=1)
    buffer.add(a=2, priorities=3.0)
    buffer.add(a=[3, 4], priorities=[0.5, 7])
    batch = buffer.sample(400, beta)
    rows = batch["indexes"].astype(int)
    assert set(rows) == {0, 1, 2, 3}
    np.testing.assert_allclose(batch["weights"], np.array(expected)[rows], rtol=1e-5)


def test_weights_are_relative_to_the_largest_of_the_whole_buffer(prioritized):
    buffer = numbers(prioritized, 2, alpha=1.0, eps=0.0)
    buffer.add(a=[1, 2], priorities=[1e-9, 1e3])
    batch = buffer.sample(16, beta=0.5)
    assert batch["indexes"].tolist() == [1] * 16
    np.testing.assert_allclose(batch["weights"], 1e-6, rtol=1e-5)


def test_beta_is_four_tenths_by_default(prioritized):
    buffer = numbers(prioritized, 2)
    buffer.add(a=[1, 2], priorities=[1, 7])
    weights = set(buffer.sample(50)["weights"].tolist())
    assert sorted(weights) == pytest.approx([(1.0001 / 7.0001) ** (0.6 * 0.4), 1.0], rel=1e-5)


def test_rows_are_drawn_in_proportion_to_their_priorities(prioritized):
    buffer = numbers(prioritized, 5, alpha=1.0, eps=0.0)
    buffer.add(a=np.arange(5), priorities=[1, 2, 3, 4, 0])
    counts = np.bincount(buffer.sample(10_000)["indexes"].astype(int), minlength=5)
    assert counts[4] == 0
    assert np.abs(counts[:4] - [1000, 2000, 3000, 4000]).max() < 250


def test_new_rows_get_the_largest_priority_given_so_far(prioritized):
    buffer = numbers(prioritized, 8)
    assert buffer.get_max_priority() == 1.0
    buffer.add(a=1, priorities=0.3)
    assert buffer.get_max_priority() == 1.0
    buffer.add(a=2)
    weights = buffer.sample(40, beta=1.0)["weights"]
    assert sorted(set(weights.tolist())) == pytest.approx([0.4856613576412201, 1.0], rel=1e-5)
    buffer.add(a=3, priorities=7.0)
    buffer.update_priorities([2], [0.5])
    assert buffer.get_max_priority() == 7.0
    buffer.clear()
    assert buffer.get_max_priority() == 1.0


@pytest.mark.parametrize("given", [[0.5, 7], [[0.5], [7]], np.array([0.5, 7], np.float32)])
def test_priorities_of_any_shape_come_with_rows(prioritized, given):
    buffer = numbers(prioritized, 4)
    assert buffer.add(a=[1, 2], priorities=given) == 0
    assert buffer.get_max_priority() == 7.0


def test_as_many_priorities_as_rows_are_needed(prioritized):
    buffer = numbers(prioritized, 4)
    with pytest.raises(ValueError, match="priorities"):
        buffer.add(a=[1, 2], priorities=[1, 2, 3])
    assert buffer.get_stored_size() == 0


@pytest.mark.parametrize(
    ("indexes", "priorities"),
    [
        ([0, 1], [9, 8]),
        ([[0], [1]], [[9.0], [8.0]]),
        (np.array([0, 1], np.uint64), np.array([9, 8], np.float32)),
        ([0.0, 1.0], [9.0, 8.0]),
    ],
)
def test_updates_of_any_shape_and_dtype_are_taken(prioritized, indexes, priorities):
    buffer = filled(prioritized, 4, 4)
    buffer.sample(4)
    assert buffer.update_priorities(indexes, priorities) is None
    assert buffer.get_max_priority() == 9.0
    batch = buffer.sample(400, beta=1.0)
    weights = dict(zip(batch["indexes"].tolist(), batch["weights"].tolist(), strict=True))
    assert weights[0] == pytest.approx((1.0001 / 9.0001) ** 0.6, rel=1e-5)
    assert weights[1] == pytest.approx((1.0001 / 8.0001) ** 0.6, rel=1e-5)
    assert weights[2] == weights[3] == 1.0


def test_one_update_may_be_a_number(prioritized):
    buffer = filled(prioritized, 4, 4)
    buffer.sample(4)
    buffer.update_priorities(1, 3.0)
    assert buffer.get_max_priority() == 3.0


@pytest.mark.parametrize(
    ("indexes", "priorities", "error"),
    [
        (None, [1], TypeError),
        ([1], None, TypeError),
        ([1, 2], [3.0], ValueError),
        ([1], [3.0, 4.0], ValueError),
        ([1], [-3.0], ValueError),
        ([1], [np.nan], ValueError),
        ([1], [np.inf], ValueError),
        ([7], [1.0], IndexError),
        ([-1], [1.0], IndexError),
    ],
)
def test_a_wrong_update_is_an_error_and_changes_nothing(prioritized, indexes, priorities, error):
    buffer = filled(prioritized, 4, 4)
    buffer.sample(4)
    with pytest.raises(error):
        buffer.update_priorities(indexes, priorities)
    assert buffer.get_max_priority() == 1.0
    assert set(buffer.sample(40, beta=1.0)["weights"].tolist()) == {1.0}


def test_rows_with_priority_zero_are_not_drawn_unless_eps_lets_them(prioritized):
    buffer = filled(prioritized, 4, 4)
    buffer.sample(4)
    buffer.update_priorities([0, 1, 2], [0, 0, 0])
    assert np.bincount(buffer.sample(1000)["indexes"].astype(int), minlength=4)[3] > 900
    without = filled(prioritized, 4, 4, eps=0.0)
    without.sample(4)
    without.update_priorities([0, 1, 2, 3], [0, 0, 0, 0])
    with pytest.raises(NotReady):
        without.sample(4)


CHECKED = [(cpprb.PrioritizedReplayBuffer, {"check_for_update": True}), (cpprb.MPPrioritizedReplayBuffer, {})]


@pytest.mark.parametrize(("kind", "options"), CHECKED, ids=["check_for_update", "multi-process"])
def test_updates_of_rows_overwritten_since_the_last_batch_are_ignored(kind, options):
    buffer = filled(kind, 4, 4, **options)
    buffer.sample(4)
    buffer.add(a=9, priorities=1)
    buffer.update_priorities([0, 1, 2, 3], [100, 2, 3, 4])
    assert buffer.get_max_priority() == 4.0
    buffer.sample(1)
    buffer.update_priorities([0], [6])
    assert buffer.get_max_priority() == 6.0


@pytest.mark.parametrize(("kind", "options"), CHECKED, ids=["check_for_update", "multi-process"])
def test_before_the_first_batch_every_update_is_ignored(kind, options):
    buffer = filled(kind, 4, 4, **options)
    buffer.update_priorities([0, 1, 2, 3], [5, 5, 5, 5])
    assert buffer.get_max_priority() == 1.0


def test_without_check_for_update_the_row_that_is_there_now_is_updated():
    buffer = filled(cpprb.PrioritizedReplayBuffer, 4, 4)
    buffer.sample(4)
    buffer.add(a=9, priorities=1)
    buffer.update_priorities([0], [100])
    assert buffer.get_max_priority() == 100.0


@pytest.mark.parametrize("option", ["alpha", "eps"])
@pytest.mark.parametrize("value", [-1.0, np.nan])
def test_wrong_exponents_are_refused(prioritized, option, value):
    with pytest.raises(ValueError, match=option):
        numbers(prioritized, 4, **{option: value})


def test_exponents_below_0_are_refused(prioritized):
    with pytest.raises(ValueError, match=r"alpha=-1.0\) is not legal"):
        prioritized(4, {"a": {}}, alpha=-1)
    buffer = prioritized(4, {"a": {}})
    buffer.add(a=1)
    with pytest.raises(ValueError, match=r"beta=-1.* is not legal"):
        buffer.sample(1, beta=-1)


@pytest.mark.parametrize("name", ["weights", "indexes", "priorities"])
def test_names_of_what_batches_have_are_refused(prioritized, name):
    with pytest.raises(ValueError, match=f"'{name}'.*: the name is used by the buffer itself"):
        prioritized(4, {name: {}})
