// Operations between the products of layers: biases, activations, their gradients, and heads of one output.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "functions.h"
#include "scratch.h"

namespace penstock {

PENSTOCK_WIDE inline void to_bf16(const float* __restrict from, Bf16* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = nearest_bf16(from[i]);
}

// Factors of a product: floats as they are, or rounded to bfloat16 in a buffer.
template <class Number, auto Use>
const Number* as_factor(const float* values, size_t count) {
  if constexpr (std::is_same_v<Number, float>) {
    return values;
  } else {
    Number* rounded = scratch<Number, Use>(count);
    to_bf16(values, rounded, count);
    return rounded;
  }
}

PENSTOCK_WIDE inline void round_to_bf16(float* numbers, size_t count) {
  for (size_t i = 0; i < count; ++i) numbers[i] = as_float(nearest_bf16(numbers[i]));
}

PENSTOCK_WIDE inline void add_bias(float* __restrict y, const float* __restrict bias, size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n)
    for (size_t o = 0; o < width; ++o) y[n * width + o] += bias[o];
}

PENSTOCK_WIDE inline void rectify(float* numbers, size_t count) {
  for (size_t i = 0; i < count; ++i) numbers[i] = numbers[i] < 0.0f ? 0.0f : numbers[i];
}

PENSTOCK_WIDE inline void add_bias_rectify(float* __restrict y, const float* __restrict bias, size_t rows,
                                           size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    float* __restrict row = y + n * width;
    for (size_t o = 0; o < width; ++o) {
      const float value = row[o] + bias[o];
      row[o] = value < 0.0f ? 0.0f : value;
    }
  }
}

PENSTOCK_WIDE inline void add_bias_tangent(float* __restrict y, const float* __restrict bias, size_t rows,
                                           size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    float* __restrict row = y + n * width;
    for (size_t o = 0; o < width; ++o) row[o] = tangent(row[o] + bias[o]);
  }
}

// The same as the rectifiers above, with a rounded copy.
PENSTOCK_WIDE inline void add_bias_rectify(float* __restrict y, const float* __restrict bias, Bf16* __restrict rounded,
                                           size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    float* __restrict row = y + n * width;
    Bf16* __restrict to = rounded + n * width;
    for (size_t o = 0; o < width; ++o) {
      const float value = row[o] + bias[o];
      row[o] = value < 0.0f ? 0.0f : value;
      to[o] = nearest_bf16(row[o]);
    }
  }
}

// The gradient of the inputs of rectifiers with outputs h, in place or rounded; its sum over rows is added to `sum`.
PENSTOCK_WIDE inline void rectifier_gradient(float* __restrict gradient, const float* __restrict h,
                                             float* __restrict sum, size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    float* __restrict row = gradient + n * width;
    const float* __restrict of = h + n * width;
    for (size_t o = 0; o < width; ++o) {
      row[o] = of[o] <= 0.0f ? 0.0f : row[o];
      sum[o] += row[o];
    }
  }
}

PENSTOCK_WIDE inline void rectifier_gradient(const float* __restrict gradient, const Bf16* __restrict h,
                                             float* __restrict sum, Bf16* __restrict rounded,
                                             size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    const float* __restrict row = gradient + n * width;
    const Bf16* __restrict of = h + n * width;
    Bf16* __restrict to = rounded + n * width;
    for (size_t o = 0; o < width; ++o) {
      const float value = of[o] == 0 ? 0.0f : row[o];
      sum[o] += value;
      to[o] = nearest_bf16(value);
    }
  }
}

PENSTOCK_WIDE inline void tangent_gradient(float* __restrict gradient, const float* __restrict h, float* __restrict sum,
                                           size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    float* __restrict row = gradient + n * width;
    const float* __restrict of = h + n * width;
    for (size_t o = 0; o < width; ++o) {
      row[o] *= 1.0f - of[o] * of[o];
      sum[o] += row[o];
    }
  }
}

// The same for rounded outputs.
PENSTOCK_WIDE inline void tangent_gradient(const float* __restrict gradient, const Bf16* __restrict h,
                                           float* __restrict sum, Bf16* __restrict rounded, size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    const float* __restrict row = gradient + n * width;
    const Bf16* __restrict of = h + n * width;
    Bf16* __restrict to = rounded + n * width;
    for (size_t o = 0; o < width; ++o) {
      const float value = as_float(of[o]);
      const float d = row[o] * (1.0f - value * value);
      sum[o] += d;
      to[o] = nearest_bf16(d);
    }
  }
}

PENSTOCK_WIDE inline void add_to(float* __restrict sum, const float* __restrict y, size_t count) {
  for (size_t i = 0; i < count; ++i) sum[i] += y[i];
}

PENSTOCK_WIDE inline void sum_rows(const float* __restrict y, float* __restrict sum, size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n)
    for (size_t o = 0; o < width; ++o) sum[o] += y[n * width + o];
}

// Dot products of rows with one vector; below, the sum of rows, each times its weight.
PENSTOCK_WIDE inline void dot_rows(const float* __restrict h, const float* __restrict w, float bias,
                                   float* __restrict out, size_t rows, size_t width) {
  constexpr size_t kLanes = 16;
  for (size_t n = 0; n < rows; ++n) {
    const float* row = h + n * width;
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= width; i += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += row[i + lane] * w[i + lane];
    float sum = 0.0f;
    for (; i < width; ++i) sum += row[i] * w[i];
    for (const float part : sums) sum += part;
    out[n] = sum + bias;
  }
}

PENSTOCK_WIDE inline void weigh_rows(const float* __restrict h, const float* __restrict g, float* __restrict sum,
                                     size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n)
    for (size_t i = 0; i < width; ++i) sum[i] += g[n] * h[n * width + i];
}

PENSTOCK_WIDE inline void outer(const float* __restrict g, const float* __restrict w, float* __restrict out,
                                size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n)
    for (size_t i = 0; i < width; ++i) out[n * width + i] = g[n] * w[i];
}

}  // namespace penstock
