// Moments of the columns of matrices, normalisation by them, with scale and shift, and its gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "functions.h"
#include "threads.h"

namespace penstock {

// Matrices one after the other. Each is processed in blocks of columns, which stay in a core's own cache.
struct Columns {
  size_t matrices, rows, columns;

  // Population variance and mean of each column.
  void moments(const float* x, float* var, float* mean, int threads) const {
    each_block(threads, [&](size_t first, size_t column, size_t count) {
      moments(x + first, rows, columns, count, mean + column, var + column);
    });
  }

  // y = (x - mean) inverse scale + shift, or the larger of this and 0 (rectifies); also the mean of each column, and
  // inverse = 1 / sqrt(variance + epsilon).
  void normalize(const float* x, const float* scale, const float* shift, float epsilon, float* y, float* mean,
                 float* inverse, bool rectifies, int threads) const {
    each_block(threads, [&](size_t first, size_t column, size_t count) {
      moments(x + first, rows, columns, count, mean + column, inverse + column);
      std::array<float, kBlock> slope;
      for (size_t k = 0; k < count; ++k) {
        float& one = inverse[column + k];
        one = 1.0f / std::sqrt(one + epsilon);
        slope[k] = one * scale[column + k];
      }
      const float least = rectifies ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      for (size_t row = 0; row < rows; ++row)
        move(x + first + row * columns, mean + column, slope.data(), shift + column, least, y + first + row * columns,
             count);
    });
  }

  // Gradients of x, scale and shift; if x is rectified (rectifies), the gradient before the rectifier.
  void gradient(const float* d_y, const float* x, const float* scale, const float* mean, const float* inverse, float* d_x,
                float* d_scale, float* d_shift, bool rectifies, int threads) const {
    each_block(threads, [&](size_t first, size_t column, size_t count) {
      std::array<float, kBlock> sum{}, product{};
      add(d_y + first, x + first, mean + column, rows, columns, count, sum.data(), product.data());
      // d_x = slope (d_y - sum / n - (x - mean) inverse^2 product / n)
      std::array<float, kBlock> slope, of_x;
      for (size_t k = 0; k < count; ++k) {
        const float one = inverse[column + k], share = 1.0f / static_cast<float>(rows);
        d_scale[column + k] = product[k] * one;
        d_shift[column + k] = sum[k];
        slope[k] = scale[column + k] * one;
        of_x[k] = -slope[k] * product[k] * one * one * share;
        sum[k] *= share;
      }
      const float least = rectifies ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      for (size_t row = 0; row < rows; ++row) {
        const size_t at = first + row * columns;
        combine(d_y + at, x + at, sum.data(), mean + column, slope.data(), of_x.data(), least, d_x + at, count);
      }
    });
  }

 private:
  static constexpr size_t kBlock = 64;  // columns

  // Calls work(offset of a block's first number, index of its first column among those of all matrices, columns).
  template <class Work>
  void each_block(int threads, Work work) const {
    const size_t blocks = (columns + kBlock - 1) / kBlock;
    const int all = static_cast<int>(matrices * blocks);
    share_out(all, matrices * rows * columns < (1 << 14) ? 1 : threads, [&](int number) {
      const size_t matrix = number / blocks, begin = number % blocks * kBlock;
      work(matrix * rows * columns + begin, matrix * columns + begin, std::min(kBlock, columns - begin));
    });
  }

  PENSTOCK_WIDE static void moments(const float* __restrict x, size_t rows, size_t stride, size_t count,
                                    float* __restrict mean, float* __restrict var) {
    const float share = 1.0f / static_cast<float>(rows);
    std::fill_n(mean, count, 0.0f);
    std::fill_n(var, count, 0.0f);
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < count; ++k) mean[k] += x[row * stride + k];
    // Sums of large numbers are rounded; the sum of deviations shows by how much.
    std::array<float, kBlock> rest{};
    for (size_t k = 0; k < count; ++k) mean[k] *= share;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t k = 0; k < count; ++k) {
        const float deviation = x[row * stride + k] - mean[k];
        rest[k] += deviation;
        var[k] += deviation * deviation;
      }
    }
    for (size_t k = 0; k < count; ++k) {
      rest[k] *= share;
      mean[k] += rest[k];
      const float found = var[k] * share - rest[k] * rest[k];
      var[k] = found < 0.0f ? 0.0f : found;
    }
  }

  PENSTOCK_WIDE static void move(const float* __restrict x, const float* __restrict mean, const float* __restrict slope,
                                 const float* __restrict shift, float least, float* __restrict y, size_t count) {
    for (size_t k = 0; k < count; ++k) {
      const float found = (x[k] - mean[k]) * slope[k] + shift[k];
      y[k] = found < least ? least : found;
    }
  }

  PENSTOCK_WIDE static void add(const float* __restrict d_y, const float* __restrict x, const float* __restrict mean,
                                size_t rows, size_t stride, size_t count, float* __restrict sum,
                                float* __restrict product) {
    for (size_t row = 0; row < rows; ++row) {
      for (size_t k = 0; k < count; ++k) {
        const float d = d_y[row * stride + k];
        sum[k] += d;
        product[k] += d * (x[row * stride + k] - mean[k]);
      }
    }
  }

  PENSTOCK_WIDE static void combine(const float* __restrict d_y, const float* __restrict x, const float* __restrict of_all,
                                    const float* __restrict mean, const float* __restrict slope,
                                    const float* __restrict of_x, float least, float* __restrict d_x, size_t count) {
    for (size_t k = 0; k < count; ++k) {
      const float found = (d_y[k] - of_all[k]) * slope[k] + (x[k] - mean[k]) * of_x[k];
      d_x[k] = x[k] <= least ? 0.0f : found;
    }
  }
};

}  // namespace penstock
