"""Sum tree: rows are drawn in proportion to their leaves, exactly where sums are exact, and nothing ever drifts."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._native import Arena, SumTree

# One block, one row more or less than whole blocks, and two to five levels.
CAPACITIES = [1, 2, 15, 16, 17, 255, 256, 257, 4097]

LEAVES = 64  # offset of the leaves in the memory of a tree


def empty_tree(capacity: int) -> tuple[Arena, SumTree]:
    arena = Arena.create(SumTree.nbytes(capacity))
    return arena, SumTree.create(arena, 0, capacity)


def tree_of(leaves: np.ndarray) -> SumTree:
    _, tree = empty_tree(len(leaves))
    tree.update(np.arange(len(leaves)), leaves.astype(np.float64))
    return tree


def stratified(rng: np.random.Generator, total: float, count: int) -> np.ndarray:
    return total * ((np.arange(count) + rng.random(count)) / count)


def test_four_leaves_cover_their_total_end_to_end() -> None:
    tree = tree_of(np.array([1.0, 2.0, 3.0, 4.0]))
    assert (tree.capacity, tree.total, tree.least) == (4, 10.0, 1.0)
    masses = np.array([0.0, 0.999, 1.0, 2.999, 3.0, 5.999, 6.0, 9.999])
    assert tree.draw(masses).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert tree.leaf(np.array([3, 0, 3])).tolist() == [4.0, 1.0, 4.0]


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_the_ends_of_the_total_belong_to_the_first_and_the_last_leaf_above_zero(capacity: int) -> None:
    _, tree = empty_tree(capacity)
    rng = np.random.default_rng(capacity)
    for first, last in np.sort(rng.integers(0, capacity, (20, 2)), axis=1):
        leaves = np.zeros(capacity)
        leaves[first : last + 1] = rng.random(last + 1 - first) * rng.integers(0, 2, last + 1 - first)
        leaves[[first, last]] = 0.1
        tree.update(np.arange(capacity), leaves)
        masses = np.array([0.0, np.nextafter(tree.total, 0.0), tree.total])
        assert tree.draw(masses).tolist() == [first, last, last]


@st.composite
def whole_leaves(draw: st.DrawFn) -> np.ndarray:
    """Leaves of small whole numbers, of which every sum is exact; often most are zero, never all."""
    capacity = draw(st.sampled_from(CAPACITIES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    leaves = rng.integers(0, 4, capacity) * (rng.random(capacity) < draw(st.sampled_from([0.01, 0.2, 1.0])))
    leaves[draw(st.integers(0, capacity - 1))] = draw(st.integers(1, 4))
    return leaves.astype(np.float64)


@settings(max_examples=200)
@given(whole_leaves(), st.integers(0, 2**32))
def test_draws_are_those_of_a_cumulative_sum(leaves: np.ndarray, seed: int) -> None:
    tree = tree_of(leaves)
    masses = np.random.default_rng(seed).permutation(np.arange(0.0, leaves.sum(), 0.5))
    np.testing.assert_array_equal(tree.draw(masses), np.searchsorted(np.cumsum(leaves), masses, side="right"))
    assert tree.total == leaves.sum()
    assert tree.least == leaves[leaves > 0].min()


@settings(max_examples=200)
@given(st.sampled_from(CAPACITIES), st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 300.0]))
def test_where_sums_are_rounded_draws_are_off_by_no_more_than_the_rounding(
    capacity: int, seed: int, decades: float
) -> None:
    rng = np.random.default_rng(seed)
    leaves = 10.0 ** rng.uniform(-decades, decades, capacity) * rng.random(capacity) * rng.integers(0, 2, capacity)
    leaves[rng.integers(capacity)] = 1.0
    tree = tree_of(leaves)
    ends = np.cumsum(leaves)
    slack = 1e-14 * tree.total
    # The sums themselves and their neighbours: where rounding decides between two rows.
    masses = np.clip(np.concatenate([ends, np.nextafter(ends, 0.0), stratified(rng, tree.total, 300)]), 0.0, tree.total)
    rows = tree.draw(masses)
    assert (leaves[rows] > 0.0).all()
    assert (masses <= ends[rows] + slack).all()
    assert (masses >= ends[rows] - leaves[rows] - slack).all()


@pytest.mark.parametrize("spread", [1, 16, 300])
def test_rows_are_drawn_in_proportion_and_zero_leaves_never(spread: int) -> None:
    leaves = np.zeros(4 * spread)
    rows = np.array([0, 1, 2, 3]) * spread  # in one block, one block each, many blocks apart
    leaves[rows] = [1.0, 2.0, 3.0, 4.0]
    tree = tree_of(leaves)
    drawn = tree.draw(np.random.default_rng(0).random(100_000) * tree.total)
    counts = np.bincount(drawn, minlength=leaves.size)
    assert counts.sum() == counts[rows].sum()
    expected = 100_000 * leaves[rows] / 10.0
    chi_square = ((counts[rows] - expected) ** 2 / expected).sum()
    assert chi_square < 16.27  # 3 degrees of freedom, p = 0.001


def test_a_stratified_draw_takes_every_row_as_often_as_its_share() -> None:
    leaves = np.random.default_rng(0).integers(0, 5, 1000).astype(np.float64)
    tree = tree_of(leaves)
    drawn = tree.draw(stratified(np.random.default_rng(1), tree.total, int(leaves.sum())))
    # Strata of mass 1 lie inside the leaves, all of whose ends are whole numbers.
    np.testing.assert_array_equal(np.bincount(drawn, minlength=1000), leaves)


def test_the_total_does_not_drift_in_a_million_updates() -> None:
    capacity = 5000
    _, tree = empty_tree(capacity)
    rng = np.random.default_rng(0)
    for magnitude in rng.uniform(-6, 6, 100):
        tree.update(rng.integers(0, capacity, 10_000), rng.random(10_000) * 10.0**magnitude)
    leaves = tree.leaf(np.arange(capacity))
    assert tree.total == pytest.approx(math.fsum(leaves), rel=1e-9)
    assert tree.least == leaves[leaves > 0].min()


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_after_any_updates_the_tree_is_that_of_its_leaves_to_the_last_bit(capacity: int) -> None:
    arena, tree = empty_tree(capacity)
    rng = np.random.default_rng(capacity)
    for size in [1, 2, 255, 256, 257, 700]:  # in one or several batches, with equal rows, in any order
        tree.update(rng.integers(0, capacity, size), rng.random(size) * rng.integers(0, 2, size))
    changed = bytes(arena)
    tree.rebuild()
    assert bytes(arena) == changed


def test_of_equal_rows_the_last_value_stays() -> None:
    _, tree = empty_tree(300)
    tree.update(np.array([7, 299, 7, 7]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert tree.leaf(np.array([7])).tolist() == [4.0]
    assert (tree.total, tree.least) == (6.0, 2.0)


def test_huge_leaves_bury_tiny_ones_but_harm_nothing() -> None:
    leaves = np.resize([0.0, 1e-300, 1e300, 1.0, 0.0], 4097)
    tree = tree_of(leaves)
    huge = np.flatnonzero(leaves == 1e300)
    assert tree.total == pytest.approx(1e300 * huge.size)
    assert tree.least == 1e-300
    strata = (np.arange(huge.size) + 0.5) / huge.size
    np.testing.assert_array_equal(tree.draw(strata * tree.total), huge)
    assert tree.draw(np.array([0.0, 1e-300, 0.5, 1.0])).tolist() == [1, 2, 2, 2]
    tree.update(huge, np.zeros(huge.size))
    assert tree.total == pytest.approx(np.count_nonzero(leaves == 1.0))


@pytest.mark.parametrize("tiny", [2.0**-1000, 5e-324])
def test_tiny_leaves_are_drawn_like_any_others(tiny: float) -> None:
    tree = tree_of(np.full(257, tiny))
    assert tree.least == tiny
    np.testing.assert_array_equal(tree.draw(np.arange(257.0) * tiny), np.arange(257))


def test_leaves_of_the_largest_value_have_a_finite_total() -> None:
    _, tree = empty_tree(257)
    tree.update(np.arange(257), np.full(257, tree.largest_leaf))
    assert math.isfinite(tree.total)
    assert np.unique(tree.draw(stratified(np.random.default_rng(0), tree.total, 257))).size > 250


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_rebuild_follows_leaves_that_changed_alone(capacity: int) -> None:
    arena, tree = empty_tree(capacity)
    tree.update(np.arange(capacity), np.arange(1.0, capacity + 1.0))
    total = tree.total
    arena.array(LEAVES, capacity, "f8")[:] *= 2.0  # as if its process had died before the levels above
    tree.rebuild()
    assert (tree.total, tree.least) == (2.0 * total, 2.0)


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_a_tree_without_leaves_above_zero_has_no_total_and_draws_nothing(capacity: int) -> None:
    arena = Arena.create(SumTree.nbytes(capacity))
    arena.array(0, arena.nbytes, "u1")[:] = 0xFF  # memory that was something else before
    tree = SumTree.create(arena, 0, capacity)
    rows = np.arange(capacity)
    for _ in range(2):
        assert (tree.total, tree.least) == (0.0, math.inf)
        assert not tree.leaf(rows).any()
        with pytest.raises(ValueError, match="all leaves are 0, so no row can be drawn"):
            tree.draw(np.array([0.0]))
        tree.update(rows, np.ones(capacity))
        assert (tree.total, tree.least) == (capacity, 1.0)
        tree.update(rows, np.zeros(capacity))


def test_every_attachment_sees_the_same_tree() -> None:
    arena = Arena.create(4096 + SumTree.nbytes(100))
    tree = SumTree.create(arena, 4096, 100)
    elsewhere = SumTree.attach(Arena.attach(os.dup(arena.fd)), 4096)
    tree.update(np.array([99]), np.array([2.0]))
    elsewhere.update(np.array([0]), np.array([1.0]))
    assert elsewhere.capacity == 100
    assert elsewhere.total == tree.total == 3.0
    assert elsewhere.draw(np.array([0.5, 1.5])).tolist() == tree.draw(np.array([0.5, 1.5])).tolist() == [0, 99]


def test_nothing_to_do_is_done() -> None:
    tree = tree_of(np.array([1.0, 2.0]))
    tree.update(np.array([], np.int64), np.array([]))
    assert tree.total == 3.0
    assert tree.draw(np.array([])).tolist() == []
    assert tree.leaf(np.array([], np.int64)).tolist() == []


def test_a_tree_fills_whole_cache_lines_of_its_arena() -> None:
    assert all(SumTree.nbytes(capacity) % 64 == 0 for capacity in CAPACITIES)
    # Leaves, and both numbers of 62500 + 3907 + 245 + 16 + 1 nodes, each level in blocks of 16.
    assert SumTree.nbytes(1_000_000) == 64 + 8 * (1_000_000 + 2 * (62_512 + 3_920 + 256 + 16 + 16))
    with pytest.raises(ValueError, match=r"needs .* bytes from offset 64, but the arena ends at"):
        SumTree.create(Arena.create(SumTree.nbytes(100)), 64, 100)
    with pytest.raises(ValueError, match=r"capacity must be from 1 to .*, found 0"):
        SumTree.nbytes(0)
    with pytest.raises(ValueError, match="there is no SumTree at offset 0"):
        SumTree.attach(Arena.create(4096), 0)


@pytest.mark.parametrize("row", [-1, 20, 2**62])
def test_a_row_outside_the_tree_is_named_and_nothing_is_changed(row: int) -> None:
    tree = tree_of(np.ones(20))
    rows = np.array([0, row])
    message = rf"row {row} \(entry 1 of rows\) is outside the tree: rows are 0 to 19"
    with pytest.raises(IndexError, match=message):
        tree.update(rows, np.array([5.0, 5.0]))
    with pytest.raises(IndexError, match=message):
        tree.leaf(rows)
    assert (tree.total, tree.leaf(np.array([0]))[0]) == (20.0, 1.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1e-300, 1e308])
def test_a_value_that_is_no_share_is_named_and_nothing_is_changed(value: float) -> None:
    tree = tree_of(np.ones(20))
    with pytest.raises(ValueError, match=r"value .* \(entry 2 of values\) is not from 0 to 4\.49.*e\+306, the largest"):
        tree.update(np.array([0, 1, 2]), np.array([5.0, 5.0, value]))
    assert (tree.total, tree.leaf(np.array([0]))[0]) == (20.0, 1.0)


@pytest.mark.parametrize("mass", [math.nan, -1e-300, np.nextafter(20.0, 21.0), math.inf])
def test_a_mass_outside_the_total_is_named(mass: float) -> None:
    with pytest.raises(ValueError, match=r"mass .* \(entry 1 of masses\) is not from 0 to total, which is 20\.0"):
        tree_of(np.ones(20)).draw(np.array([0.0, mass]))


def test_arrays_that_do_not_fit_are_refused() -> None:
    tree = tree_of(np.ones(20))
    with pytest.raises(ValueError, match=r"values must have one entry for each .* float64\[3\] for rows int64\[2\]"):
        tree.update(np.array([0, 1]), np.ones(3))
    with pytest.raises(ValueError, match=r"rows must be an int64 array, found int32\[2\]"):
        tree.update(np.array([0, 1], np.int32), np.ones(2))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"values must be a float64 array, found float32\[2\]"):
        tree.update(np.array([0, 1]), np.ones(2, np.float32))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"masses must be a float64 array, found int64\[1\]"):
        tree.draw(np.array([0]))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="masses must be a NumPy array, found list"):
        tree.draw([0.0])  # type: ignore[arg-type]
