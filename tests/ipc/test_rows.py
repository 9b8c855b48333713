"""Row copies: the same as NumPy's indexing, and nothing half done when the arrays do not fit."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.ipc import all_finite, gather, scatter

DTYPES = ["?", "i1", "u1", "f2", "i4", "f4", "i8", "u8", "f8", "c16", "f4,u1"]


@st.composite
def columns_and_rows(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A column of distinct bytes, and row numbers of any shape for it."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    row_shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, max_side=5))
    num_rows = draw(st.integers(1, 9))
    nbytes = num_rows * int(np.prod(row_shape)) * dtype.itemsize
    column = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, nbytes, dtype=np.uint8)
    rows = draw(
        hnp.arrays(
            np.int64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.integers(0, num_rows - 1)
        )
    )
    return column.view(dtype).reshape((num_rows, *row_shape)), rows


@settings(max_examples=200)
@given(columns_and_rows())
def test_gather_is_indexing(case: tuple[np.ndarray, np.ndarray]) -> None:
    column, rows = case
    out = np.zeros((*rows.shape, *column.shape[1:]), column.dtype)
    gather(column, rows, out)
    assert out.tobytes() == np.take(column, rows, axis=0).tobytes()


@settings(max_examples=200)
@given(columns_and_rows())
def test_scatter_is_indexed_assignment_in_order(case: tuple[np.ndarray, np.ndarray]) -> None:
    column, rows = case
    values = np.resize(np.array([1, 0, 0, 1, 1, 0, 1], np.uint8), rows.size * column[0].nbytes)
    values = values.view(column.dtype).reshape((*rows.shape, *column.shape[1:]))
    expected = column.copy()
    for index in np.ndindex(rows.shape):  # one by one: of equal rows the last stays
        expected[rows[index]] = values[index]
    scatter(column, rows, values)
    assert column.tobytes() == expected.tobytes()


@pytest.mark.parametrize("row_nbytes", [0, 1, 2, 3, 4, 8, 15, 16, 17, 32, 33, 7056, 70560])
def test_rows_of_every_size_arrive_whole(row_nbytes: int) -> None:
    column = np.random.default_rng(0).integers(0, 256, (20, row_nbytes), dtype=np.uint8)
    rows = np.array([19, 0, 7, 7, 3])
    batch = np.zeros((5, row_nbytes), np.uint8)
    gather(column, rows, batch)
    np.testing.assert_array_equal(batch, column[rows])
    target = np.zeros_like(column)
    scatter(target, rows, batch)
    np.testing.assert_array_equal(target[[0, 3, 7, 19]], column[[0, 3, 7, 19]])
    assert not np.delete(target, rows, axis=0).any()


def test_a_time_major_batch_is_gathered_at_once() -> None:
    column = np.arange(60, dtype=np.float32).reshape(12, 5)
    rows = np.array([[0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11]])
    batch = np.empty((4, 3, 5), np.float32)
    gather(column, rows, batch)
    np.testing.assert_array_equal(batch, column[rows])


def test_both_names_of_int64_are_one_dtype() -> None:
    rows = np.array([1, 0], np.longlong)
    out = np.zeros(2, np.longlong)
    gather(np.array([10, 20], np.int64), rows, out)
    assert out.tolist() == [20, 10]


@pytest.mark.parametrize("row", [-1, 3, 2**62])
def test_a_row_outside_the_column_is_named_and_nothing_is_copied(row: int) -> None:
    column, batch = np.zeros((3, 2), np.float32), np.ones((2, 2), np.float32)
    rows = np.array([0, row])
    message = rf"row {row} \(entry 1 of rows\) is outside float32\[3, 2\]: rows are 0 to 2"
    with pytest.raises(IndexError, match=message):
        scatter(column, rows, batch)
    with pytest.raises(IndexError, match=message):
        gather(column, rows, batch)
    with pytest.raises(IndexError, match=message):
        all_finite(column, rows)
    assert not column.any() and batch.all()


COLUMN, ROWS, BATCH = np.zeros((3, 2), np.float32), np.array([0, 1]), np.zeros((2, 2), np.float32)
READ_ONLY = BATCH.copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("column", "rows", "out", "message"),
    [
        (COLUMN, ROWS, BATCH.astype("f8"), r"out must have the dtype .* found float64\[2, 2\] for float32\[3, 2\]"),
        (COLUMN, ROWS, BATCH.astype(">f4"), r"out must have the dtype"),
        (COLUMN, ROWS, np.zeros((2, 3), "f4"), r"found float32\[2, 3\] for rows int64\[2\] of column float32\[3, 2\]"),
        (COLUMN, ROWS, np.zeros((3, 2), "f4"), r"out must have the shape of rows followed by that of a row"),
        (COLUMN, ROWS, np.zeros((2, 2, 1), "f4"), r"out must have the shape"),
        (COLUMN, ROWS, READ_ONLY, r"out must be a writable C-contiguous array .* found float32\[2, 2\]: .*read-only"),
        (COLUMN, ROWS, np.zeros((2, 4), "f4")[:, ::2], r"out must be a writable C-contiguous array"),
        (COLUMN.T, ROWS, BATCH, r"column must be a C-contiguous array of plain numbers, found float32\[2, 3\]"),
        (COLUMN, ROWS.astype("i4"), BATCH, r"rows must be an int64 array, found int32\[2\]"),
        (COLUMN, np.arange(4)[::2], BATCH, r"rows must be a C-contiguous array"),
        (np.zeros(3, "datetime64[s]"), ROWS, np.zeros(2, "datetime64[s]"), r"column must be .* of plain numbers"),
        (np.zeros(3, object), ROWS, np.zeros(2, object), r"column must hold plain numbers, found Python objects"),
        (np.zeros(3, "O,i8"), ROWS, np.zeros(2, "O,i8"), r"column must hold plain numbers, found Python objects"),
        (np.float32(1.0).reshape(()), ROWS, BATCH, r"column must have at least one dimension"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    column: np.ndarray, rows: np.ndarray, out: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gather(column, rows, out)


def test_scatter_writes_only_to_writable_columns_of_the_same_dtype() -> None:
    with pytest.raises(ValueError, match="column must be a writable C-contiguous array"):
        scatter(READ_ONLY, ROWS, BATCH)
    with pytest.raises(ValueError, match=r"values must have the dtype of column: found float64\[2, 2\]"):
        scatter(COLUMN, ROWS, BATCH.astype("f8"))


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match="rows must be a NumPy array, found list"):
        gather(COLUMN, [0, 1], BATCH)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_row_that_is_not_finite_is_found(dtype: str, bad: float) -> None:
    column = np.zeros((6, 3), dtype)
    column[4, 2] = bad
    column[5, 0] = bad
    assert all_finite(column, np.array([0, 5, 4])) == 1
    assert all_finite(column, np.array([[0, 1], [2, 4]])) == 3
    assert all_finite(column, np.array([0, 1, 2, 3])) == -1


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_extreme_numbers_are_finite(dtype: str) -> None:
    info = np.finfo(dtype)
    column = np.array([info.max, info.min, info.tiny, info.smallest_subnormal, -0.0], dtype)
    assert all_finite(column, np.arange(5)) == -1
    assert all_finite(column, np.array([], np.int64)) == -1


def test_asking_whether_integers_are_finite_is_refused() -> None:
    with pytest.raises(ValueError, match=r"column must be float16, float32 or float64, found uint8\[3\]"):
        all_finite(np.zeros(3, np.uint8), np.array([0]))


def test_concurrent_large_copies_do_not_mix() -> None:
    # Large copies release the GIL; the arrays must stay in place meanwhile although their names are gone.
    def copy(seed: int) -> None:
        column = np.random.default_rng(seed).integers(0, 256, (64, 4096), dtype=np.uint8)
        rows = np.random.default_rng(seed).permutation(64)
        for _ in range(50):
            out = np.empty_like(column)
            gather(column, rows, out)
            intact.append(bool((out == column[rows]).all()))

    intact: list[bool] = []
    threads = [threading.Thread(target=copy, args=(seed,)) for seed in range(2 * (os.cpu_count() or 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(intact) == 50 * len(threads) and all(intact)
