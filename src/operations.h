// Elementwise operations and sums over numbers of tensors of up to three dimensions.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "functions.h"

namespace penstock {

// Operations of a step on tensors a, b, c and numbers x, y. Truth values are 0 and 1, indices are floats.
enum class Operation : int {
  kConstant, kCopy, kAdd, kMul, kDiv, kExp, kLog, kSqrt, kPower, kClamp, kMinimum, kMaximum, kWhere, kGreater,
  kGreaterEqual, kEqual, kAnd, kOr, kNot, kTanh, kTanhBackward, kSigmoid, kFloor, kCosine, kRound,
  kRectifierGradient,
  kSum, kGather, kScatterAdd, kLogSoftmax, kLogSoftmaxBackward, kProduct, kTurn, kSlice, kPut, kLargest,
  kPlaceOfLargest, kSwap, kSort, kProductInBf16, kCall, kCount
};

// Whether each number of a result depends only on those at its place.
inline bool is_elementwise(Operation operation) { return operation <= Operation::kRectifierGradient; }

inline size_t num_operands(Operation operation) {
  switch (operation) {
    case Operation::kConstant: case Operation::kCall: return 0;
    case Operation::kCopy: case Operation::kExp: case Operation::kLog: case Operation::kSqrt: case Operation::kPower:
    case Operation::kClamp: case Operation::kNot: case Operation::kTanh: case Operation::kSigmoid: case Operation::kSum:
    case Operation::kLogSoftmax: case Operation::kTurn: case Operation::kSlice: case Operation::kLargest:
    case Operation::kPlaceOfLargest: case Operation::kSwap: case Operation::kFloor: case Operation::kCosine:
    case Operation::kSort: case Operation::kRound: return 1;
    case Operation::kWhere: case Operation::kScatterAdd: return 3;
    default: return 2;
  }
}

inline constexpr size_t kDims = 3;
using Shape = std::array<size_t, kDims>;  // sizes, with ones in front

inline size_t numbers_of(const Shape& shape) { return shape[0] * shape[1] * shape[2]; }

// Numbers from one place to the next along each dimension; 0 along those of size 1, which are repeated.
inline Shape strides_of(const Shape& shape) {
  return {shape[0] == 1 ? 0 : shape[1] * shape[2], shape[1] == 1 ? 0 : shape[2], size_t(shape[2] != 1)};
}

// e^x; 0 below -80, and infinite above 88.3.
PENSTOCK_INLINE float exponential(float x) {
  const float near = x > 88.3f ? 88.3f : (x < -80.0f ? -80.0f : x);
  const float found = power_of_e(near);
  return x > 88.3f ? std::numeric_limits<float>::infinity() : (x < -80.0f ? 0.0f : (x == x ? found : x));
}

// Elementwise operations; add and its relatives compute a + x b.
PENSTOCK_WIDE inline void compute(Operation operation, float* __restrict out, const float* __restrict a,
                                  const float* __restrict b, const float* __restrict c, float x, float y, size_t n) {
  switch (operation) {
    case Operation::kConstant: for (size_t i = 0; i < n; ++i) out[i] = x; break;
    case Operation::kCopy: for (size_t i = 0; i < n; ++i) out[i] = a[i]; break;
    case Operation::kAdd: for (size_t i = 0; i < n; ++i) out[i] = a[i] + x * b[i]; break;
    case Operation::kMul: for (size_t i = 0; i < n; ++i) out[i] = a[i] * b[i]; break;
    case Operation::kDiv: for (size_t i = 0; i < n; ++i) out[i] = a[i] / b[i]; break;
    case Operation::kExp: for (size_t i = 0; i < n; ++i) out[i] = exponential(a[i]); break;
    case Operation::kLog: for (size_t i = 0; i < n; ++i) out[i] = std::log(a[i]); break;
    case Operation::kSqrt: for (size_t i = 0; i < n; ++i) out[i] = std::sqrt(a[i]); break;
    case Operation::kPower: for (size_t i = 0; i < n; ++i) out[i] = std::pow(a[i], x); break;
    case Operation::kClamp:
      for (size_t i = 0; i < n; ++i) {
        const float low = a[i] < x ? x : a[i];
        out[i] = low > y ? y : low;
      }
      break;
    case Operation::kMinimum: for (size_t i = 0; i < n; ++i) out[i] = b[i] < a[i] || b[i] != b[i] ? b[i] : a[i]; break;
    case Operation::kMaximum: for (size_t i = 0; i < n; ++i) out[i] = b[i] > a[i] || b[i] != b[i] ? b[i] : a[i]; break;
    case Operation::kWhere: for (size_t i = 0; i < n; ++i) out[i] = a[i] != 0.0f ? b[i] : c[i]; break;
    case Operation::kGreater: for (size_t i = 0; i < n; ++i) out[i] = a[i] > b[i] ? 1.0f : 0.0f; break;
    case Operation::kGreaterEqual: for (size_t i = 0; i < n; ++i) out[i] = a[i] >= b[i] ? 1.0f : 0.0f; break;
    case Operation::kEqual: for (size_t i = 0; i < n; ++i) out[i] = a[i] == b[i] ? 1.0f : 0.0f; break;
    case Operation::kAnd: for (size_t i = 0; i < n; ++i) out[i] = a[i] != 0.0f && b[i] != 0.0f ? 1.0f : 0.0f; break;
    case Operation::kOr: for (size_t i = 0; i < n; ++i) out[i] = a[i] != 0.0f || b[i] != 0.0f ? 1.0f : 0.0f; break;
    case Operation::kNot: for (size_t i = 0; i < n; ++i) out[i] = a[i] == 0.0f ? 1.0f : 0.0f; break;
    case Operation::kTanh: for (size_t i = 0; i < n; ++i) out[i] = tangent(a[i]); break;
    case Operation::kTanhBackward: for (size_t i = 0; i < n; ++i) out[i] = a[i] * (1.0f - b[i] * b[i]); break;
    case Operation::kFloor: for (size_t i = 0; i < n; ++i) out[i] = std::floor(a[i]); break;
    case Operation::kRound: for (size_t i = 0; i < n; ++i) out[i] = as_float(nearest_bf16(a[i])); break;
    case Operation::kSigmoid: for (size_t i = 0; i < n; ++i) out[i] = sigmoid(a[i]); break;
    case Operation::kRectifierGradient: for (size_t i = 0; i < n; ++i) out[i] = b[i] <= x ? 0.0f : a[i]; break;
    case Operation::kCosine: {
      bool are_small = true;
      for (size_t i = 0; i < n; ++i) are_small &= std::fabs(a[i]) < 1e4f;
      if (are_small) {
        for (size_t i = 0; i < n; ++i) out[i] = cosine(a[i]);
      } else {
        for (size_t i = 0; i < n; ++i) out[i] = std::cos(a[i]);
      }
      break;
    }
    default: break;
  }
}

// Sum in 16 parts.
PENSTOCK_WIDE inline float sum_of(const float* __restrict a, size_t n) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane];
  float sum = 0.0f;
  for (; i < n; ++i) sum += a[i];
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace penstock
