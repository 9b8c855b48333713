// Copying rows between a column, which stores experience, and a dense batch, which computations use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace penstock {

// Position of the first row number outside [0, num_rows), or `count` if there is none.
inline size_t first_outside(const int64_t* rows, size_t count, size_t num_rows) {
  for (size_t i = 0; i < count; ++i) {
    // A negative number is a huge unsigned one.
    if (static_cast<uint64_t>(rows[i]) >= num_rows) return i;
  }
  return count;
}

// A row size known when compiling turns each copy into a move or two, where memcpy would be a call.
template <class Copy>
void with_row_size(size_t row_nbytes, Copy copy) {
  switch (row_nbytes) {
    case 1: return copy(std::integral_constant<size_t, 1>{});
    case 2: return copy(std::integral_constant<size_t, 2>{});
    case 4: return copy(std::integral_constant<size_t, 4>{});
    case 8: return copy(std::integral_constant<size_t, 8>{});
    case 16: return copy(std::integral_constant<size_t, 16>{});
    case 32: return copy(std::integral_constant<size_t, 32>{});
    default: return copy(row_nbytes);
  }
}

// batch[i] = column[rows[i]]
inline void gather_rows(std::byte* batch, const std::byte* column, const int64_t* rows, size_t count, size_t nbytes) {
  with_row_size(nbytes, [&](auto size) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(batch + i * size, column + static_cast<size_t>(rows[i]) * size, size);
    }
  });
}

// column[rows[i]] = batch[i]; of equal rows the last one stays.
inline void scatter_rows(std::byte* column, const std::byte* batch, const int64_t* rows, size_t count, size_t nbytes) {
  with_row_size(nbytes, [&](auto size) {
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(column + static_cast<size_t>(rows[i]) * size, batch + i * size, size);
    }
  });
}

// Position in `rows` of the first row with a NaN or an infinity, or -1. Bits is the unsigned integer as wide as the
// floating-point number, `exponent` its exponent bits: they are all ones in exactly those numbers.
template <class Bits>
int64_t first_not_finite(const std::byte* column, const int64_t* rows, size_t count, size_t row_length, Bits exponent) {
  for (size_t i = 0; i < count; ++i) {
    const auto* row = reinterpret_cast<const Bits*>(column) + static_cast<size_t>(rows[i]) * row_length;
    Bits found = 0;
    for (size_t k = 0; k < row_length; ++k) found |= static_cast<Bits>((row[k] & exponent) == exponent);
    if (found != 0) return static_cast<int64_t>(i);
  }
  return -1;
}

}  // namespace penstock
