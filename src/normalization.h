// Normalisation of the columns of a matrix by their moments, with scale and shift, and its gradient.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "functions.h"
#include "threads.h"

namespace penstock {

// A matrix of rows and columns, some of whose columns are worked on at a time: these stay in a core's own cache.
struct Columns {
  size_t rows, columns;

  // y = (x - mean) inverse scale + shift; of each column the mean, and inverse = 1 / sqrt(variance + epsilon).
  void normalize(const float* x, const float* scale, const float* shift, float epsilon, float* y, float* mean,
                 float* inverse, int threads) const {
    each_block(threads, [&](size_t begin, size_t count) {
      moments(x + begin, rows, columns, count, epsilon, mean + begin, inverse + begin);
      std::array<float, kBlock> slope, offset;
      for (size_t k = 0; k < count; ++k) {
        slope[k] = inverse[begin + k] * scale[begin + k];
        offset[k] = shift[begin + k] - mean[begin + k] * slope[k];
      }
      for (size_t row = 0; row < rows; ++row)
        move(x + row * columns + begin, slope.data(), offset.data(), y + row * columns + begin, count);
    });
  }

  // Gradients of x, scale and shift.
  void gradient(const float* d_y, const float* x, const float* scale, const float* mean, const float* inverse, float* d_x,
                float* d_scale, float* d_shift, int threads) const {
    each_block(threads, [&](size_t begin, size_t count) {
      std::array<float, kBlock> sum{}, product{};
      for (size_t row = 0; row < rows; ++row)
        add(d_y + row * columns + begin, x + row * columns + begin, mean + begin, sum.data(), product.data(), count);
      // d_x = slope (d_y - sum / n - (x - mean) inverse^2 product / n)
      std::array<float, kBlock> slope, of_x, offset;
      for (size_t k = 0; k < count; ++k) {
        const size_t column = begin + k;
        const float one = inverse[column], share = 1.0f / static_cast<float>(rows);
        d_scale[column] = product[k] * one;
        d_shift[column] = sum[k];
        slope[k] = scale[column] * one;
        of_x[k] = -slope[k] * product[k] * one * one * share;
        offset[k] = -slope[k] * sum[k] * share - of_x[k] * mean[column];
      }
      for (size_t row = 0; row < rows; ++row)
        combine(d_y + row * columns + begin, x + row * columns + begin, slope.data(), of_x.data(), offset.data(),
                d_x + row * columns + begin, count);
    });
  }

 private:
  static constexpr size_t kBlock = 64;  // columns

  template <class Work>
  void each_block(int threads, Work work) const {
    const size_t blocks = (columns + kBlock - 1) / kBlock;
    share_out(static_cast<int>(blocks), rows * columns < (1 << 14) ? 1 : threads, [&](int block) {
      const size_t begin = static_cast<size_t>(block) * kBlock;
      work(begin, std::min(kBlock, columns - begin));
    });
  }

  PENSTOCK_WIDE static void moments(const float* __restrict x, size_t rows, size_t stride, size_t count, float epsilon,
                                    float* __restrict mean, float* __restrict inverse) {
    const float share = 1.0f / static_cast<float>(rows);
    std::fill_n(mean, count, 0.0f);
    std::fill_n(inverse, count, 0.0f);
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < count; ++k) mean[k] += x[row * stride + k];
    for (size_t k = 0; k < count; ++k) mean[k] *= share;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t k = 0; k < count; ++k) {
        const float deviation = x[row * stride + k] - mean[k];
        inverse[k] += deviation * deviation;
      }
    }
    for (size_t k = 0; k < count; ++k) inverse[k] = 1.0f / std::sqrt(inverse[k] * share + epsilon);
  }

  PENSTOCK_WIDE static void move(const float* __restrict x, const float* __restrict slope, const float* __restrict offset,
                                 float* __restrict y, size_t count) {
    for (size_t k = 0; k < count; ++k) y[k] = x[k] * slope[k] + offset[k];
  }

  PENSTOCK_WIDE static void add(const float* __restrict d_y, const float* __restrict x, const float* __restrict mean,
                                float* __restrict sum, float* __restrict product, size_t count) {
    for (size_t k = 0; k < count; ++k) {
      sum[k] += d_y[k];
      product[k] += d_y[k] * (x[k] - mean[k]);
    }
  }

  PENSTOCK_WIDE static void combine(const float* __restrict d_y, const float* __restrict x, const float* __restrict slope,
                                    const float* __restrict of_x, const float* __restrict offset, float* __restrict d_x,
                                    size_t count) {
    for (size_t k = 0; k < count; ++k) d_x[k] = d_y[k] * slope[k] + x[k] * of_x[k] + offset[k];
  }
};

}  // namespace penstock
