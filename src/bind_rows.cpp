// Python face of row copies: all checks first, then the copy, so that an error leaves nothing half done.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "array_view.h"
#include "bindings.h"
#include "rows.h"

namespace penstock {
namespace {

// Formats are compared first because it costs nothing; two of them can still mean the same dtype, such as 'l' and 'q'.
bool same_dtype(const ArrayView& column, const ArrayView& dense) {
  return std::string_view(dense.format()) == column.format() || dense.dtype().equal(column.dtype());
}

// Copying a Python object's address would not count the new reference to it.
bool holds_objects(const ArrayView& array) {
  const bool plain = array.letter() != '\0' && array.letter() != 'O';
  return !plain && nb::cast<bool>(array.dtype().attr("hasobject"));
}

// Rows of a column by number: the numbers, and the length of a row in elements.
struct Rows {
  Rows(const ArrayView& column, const ArrayView& row_numbers) : numbers(row_numbers.int64s()) {
    if (column.shape().empty()) throw nb::value_error("column must have at least one dimension, its rows");
    for (Py_ssize_t extent : column.shape().subspan(1)) row_length *= static_cast<size_t>(extent);
    const auto num_rows = static_cast<size_t>(column.shape()[0]);
    const size_t bad = first_outside(numbers.data(), numbers.size(), num_rows);
    if (bad != numbers.size()) {
      const std::string message = "row " + std::to_string(numbers[bad]) + " (entry " + std::to_string(bad) +
                                  " of rows) is outside " + column.description() + ": rows are 0 to " +
                                  std::to_string(static_cast<int64_t>(num_rows) - 1);
      throw nb::index_error(message.c_str());
    }
  }

  std::span<const int64_t> numbers;
  size_t row_length = 1;
};

// The dense side must have the column's dtype, and the shape of `rows` followed by that of a row.
void check_dense(const ArrayView& column, const ArrayView& rows, const ArrayView& dense) {
  if (holds_objects(column)) throw nb::value_error("column must hold plain numbers, found Python objects");
  if (!same_dtype(column, dense)) {
    const std::string message = std::string(dense.name()) + " must have the dtype of column: found " +
                                dense.description() + " for " + column.description();
    throw nb::value_error(message.c_str());
  }
  const auto row_shape = column.shape().subspan(1);
  const auto batch_shape = rows.shape();
  if (dense.shape().size() != batch_shape.size() + row_shape.size() ||
      !std::ranges::equal(dense.shape().first(batch_shape.size()), batch_shape) ||
      !std::ranges::equal(dense.shape().subspan(batch_shape.size()), row_shape)) {
    const std::string message = std::string(dense.name()) + " must have the shape of rows followed by that of a row: " +
                                "found " + dense.description() + " for rows " + rows.description() + " of column " +
                                column.description();
    throw nb::value_error(message.c_str());
  }
}

void gather(nb::handle column_array, nb::handle rows_array, nb::handle out_array) {
  const ArrayView column(column_array, "column");
  const ArrayView row_numbers(rows_array, "rows");
  const ArrayView out(out_array, "out", Access::kWrite);
  const Rows rows(column, row_numbers);
  check_dense(column, row_numbers, out);
  copying(out.nbytes(), [&] {
    gather_rows(out.bytes(), column.bytes(), rows.numbers.data(), rows.numbers.size(),
                rows.row_length * column.itemsize());
  });
}

void scatter(nb::handle column_array, nb::handle rows_array, nb::handle values_array) {
  const ArrayView column(column_array, "column", Access::kWrite);
  const ArrayView row_numbers(rows_array, "rows");
  const ArrayView values(values_array, "values");
  const Rows rows(column, row_numbers);
  check_dense(column, row_numbers, values);
  copying(values.nbytes(), [&] {
    scatter_rows(column.bytes(), values.bytes(), rows.numbers.data(), rows.numbers.size(),
                 rows.row_length * column.itemsize());
  });
}

template <class Bits>
int64_t find_not_finite(const ArrayView& column, const Rows& rows, Bits exponent) {
  return copying(rows.numbers.size() * rows.row_length * sizeof(Bits), [&] {
    return first_not_finite(column.bytes(), rows.numbers.data(), rows.numbers.size(), rows.row_length, exponent);
  });
}

int64_t all_finite(nb::handle column_array, nb::handle rows_array) {
  const ArrayView column(column_array, "column");
  const ArrayView row_numbers(rows_array, "rows");
  const Rows rows(column, row_numbers);
  switch (column.letter()) {
    case 'e': return find_not_finite(column, rows, uint16_t{0x7C00});
    case 'f': return find_not_finite(column, rows, uint32_t{0x7F80'0000});
    case 'd': return find_not_finite(column, rows, uint64_t{0x7FF0'0000'0000'0000});
  }
  const std::string message = "column must be float16, float32 or float64, found " + column.description();
  throw nb::value_error(message.c_str());
}

}  // namespace

void bind_rows(nb::module_& module) {
  module.def("gather", &gather, nb::arg("column"), nb::arg("rows"), nb::arg("out"),
             nb::sig("def gather(column: numpy.ndarray, rows: numpy.ndarray, out: numpy.ndarray) -> None"),
             R"(Copy rows of a column to a dense batch: ``out[i] = column[rows[i]]``.

Parameters
----------
column : array ``[R, ...]`` of any dtype that is plain numbers
rows : int64 array of any shape
    Row numbers from 0 to R - 1.
out : array ``[*rows.shape, ...]``
    The column's dtype and row shape; written.

All three are C-contiguous.

Raises
------
IndexError
    If a row is outside the column.
ValueError
    If dtypes, shapes or contiguity do not fit. Nothing is copied when an error is raised.)");
  module.def("scatter", &scatter, nb::arg("column"), nb::arg("rows"), nb::arg("values"),
             nb::sig("def scatter(column: numpy.ndarray, rows: numpy.ndarray, values: numpy.ndarray) -> None"),
             R"(Copy a dense batch to rows of a column: ``column[rows[i]] = values[i]``.

The same arrays and errors as ``gather``; ``column`` is written. Of equal rows the last value stays.)");
  module.def("all_finite", &all_finite, nb::arg("column"), nb::arg("rows"),
             nb::sig("def all_finite(column: numpy.ndarray, rows: numpy.ndarray) -> int"),
             R"(Find a row with a NaN or an infinity.

Parameters
----------
column : float16, float32 or float64 array ``[R, ...]``
rows : int64 array

Returns
-------
int
    Position in ``rows`` (flattened) of the first such row, or -1 if all are finite.

Raises
------
IndexError
    If a row is outside the column.
ValueError
    If the column is not of a floating-point dtype.)");
}

}  // namespace penstock
