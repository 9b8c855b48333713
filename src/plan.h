// A recorded computation of elementwise operations and sums over small tensors, run without dispatch or allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "functions.h"
#include "scratch.h"

namespace penstock {

// Operations of a step on tensors a, b, c and numbers x, y. Truth values are 0 and 1, indices are floats.
enum class Operation : int {
  kConstant, kCopy, kAdd, kMul, kDiv, kExp, kLog, kSqrt, kPower, kClamp, kMinimum, kMaximum, kWhere, kGreater,
  kGreaterEqual, kEqual, kAnd, kOr, kNot, kSum, kGather, kScatterAdd, kLogSoftmax, kLogSoftmaxBackward, kCount
};

inline size_t num_operands(Operation operation) {
  switch (operation) {
    case Operation::kConstant: return 0;
    case Operation::kCopy: case Operation::kExp: case Operation::kLog: case Operation::kSqrt: case Operation::kPower:
    case Operation::kClamp: case Operation::kNot: case Operation::kSum: case Operation::kLogSoftmax: return 1;
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

// e^x; 0 below -80.
PENSTOCK_INLINE float exponential(float x) {
  const float near = x > 80.0f ? 80.0f : (x < -80.0f ? -80.0f : x);
  const float found = power_of_e(near);
  return x > 80.0f ? std::numeric_limits<float>::infinity() : (x < -80.0f ? 0.0f : (x == x ? found : x));
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

class Plan {
 public:
  struct Step {
    Operation operation;
    int out, a, b, c;  // numbers of tensors; -1: none
    float x, y;
  };
  enum class Kind : int { kFloat, kBool, kInt64 };

  // The first tensors are the inputs, one of each kind; every other is the result of a step.
  Plan(std::vector<Shape> shapes, std::vector<Kind> inputs, std::vector<Step> steps, std::vector<int> outputs)
      : shapes_(std::move(shapes)), inputs_(std::move(inputs)), steps_(std::move(steps)), outputs_(std::move(outputs)) {
    const int count = static_cast<int>(shapes_.size());
    size_t size = 0;
    for (const Shape& shape : shapes_) {
      begins_.push_back(size);
      size += (numbers_of(shape) + 15) / 16 * 16;
    }
    for (const Step& step : steps_) {
      if (step.operation < Operation::kConstant || step.operation >= Operation::kCount)
        throw std::invalid_argument("no such operation");
      const std::array<int, 3> operands{step.a, step.b, step.c};
      bool is_legal = step.out >= static_cast<int>(inputs_.size()) && step.out < count;
      for (size_t i = 0; i < num_operands(step.operation); ++i) is_legal &= operands[i] >= 0 && operands[i] < step.out;
      if (!is_legal) throw std::invalid_argument("a step of the plan has a tensor that is not there yet");
    }
    for (const int tensor : outputs_)
      if (tensor < 0 || tensor >= count) throw std::invalid_argument("no such output in the plan");
    memory_.resize(size);
  }

  void run(std::span<const void* const> inputs, std::span<float* const> outputs) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      throw std::invalid_argument("another number of inputs or outputs than the plan has");
    for (size_t i = 0; i < inputs.size(); ++i) load(inputs_[i], inputs[i], tensor(i), numbers_of(shapes_[i]));
    for (const Step& step : steps_) take(step);
    for (size_t i = 0; i < outputs.size(); ++i)
      std::memcpy(outputs[i], tensor(outputs_[i]), sizeof(float) * numbers_of(shapes_[outputs_[i]]));
  }

 private:
  float* tensor(size_t number) { return memory_.data() + begins_[number]; }

  static void load(Kind kind, const void* from, float* to, size_t n) {
    if (kind == Kind::kFloat) {
      std::memcpy(to, from, sizeof(float) * n);
    } else if (kind == Kind::kBool) {
      for (size_t i = 0; i < n; ++i) to[i] = static_cast<const uint8_t*>(from)[i] ? 1.0f : 0.0f;
    } else {
      for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<const int64_t*>(from)[i]);
    }
  }

  enum class Use { kA, kB, kC, kPowers };

  // The numbers of a tensor, repeated to a shape where it differs.
  template <Use use>
  const float* repeated(int number, const Shape& to) {
    if (number < 0) return nullptr;
    const Shape& from = shapes_[number];
    const float* a = tensor(number);
    if (from == to || numbers_of(from) == numbers_of(to)) return a;
    float* all = scratch<float, use>(numbers_of(to));
    if (numbers_of(from) == 1) {
      compute(Operation::kConstant, all, nullptr, nullptr, nullptr, *a, 0.0f, numbers_of(to));
      return all;
    }
    const auto [block, row, one] = strides_of(from);
    float* next = all;
    for (size_t i = 0; i < to[0]; ++i)
      for (size_t j = 0; j < to[1]; ++j)
        for (size_t k = 0; k < to[2]; ++k) *next++ = a[i * block + j * row + k * one];
    return all;
  }

  void take(const Step& step) {
    const Shape& shape = shapes_[step.out];
    float* out = tensor(step.out);
    switch (step.operation) {
      case Operation::kSum: sum(step, out, shape); break;
      case Operation::kGather: gather(step, out, shape); break;
      case Operation::kScatterAdd: scatter_add(step, out, shape); break;
      case Operation::kLogSoftmax: log_softmax(step, out, shape); break;
      case Operation::kLogSoftmaxBackward: log_softmax_backward(step, out, shape); break;
      default:
        compute(step.operation, out, repeated<Use::kA>(step.a, shape), repeated<Use::kB>(step.b, shape),
                repeated<Use::kC>(step.c, shape), step.x, step.y, numbers_of(shape));
    }
  }

  // Over all dimensions that are 1 in the result.
  void sum(const Step& step, float* out, const Shape& to) {
    const Shape& from = shapes_[step.a];
    const float* a = tensor(step.a);
    if (numbers_of(to) == 1) {
      *out = sum_of(a, numbers_of(from));
      return;
    }
    if (to[0] == from[0] && to[1] == from[1]) {
      for (size_t row = 0; row < to[0] * to[1]; ++row) out[row] = sum_of(a + row * from[2], from[2]);
      return;
    }
    std::memset(out, 0, sizeof(float) * numbers_of(to));
    const auto [block, row, one] = strides_of(to);
    for (size_t i = 0; i < from[0]; ++i)
      for (size_t j = 0; j < from[1]; ++j)
        for (size_t k = 0; k < from[2]; ++k) out[i * block + j * row + k * one] += *a++;
  }

  void gather(const Step& step, float* out, const Shape& shape) {
    const size_t width = shapes_[step.a][2], chosen = shape[2];
    const float *a = tensor(step.a), *index = tensor(step.b);
    for (size_t row = 0; row < shape[0] * shape[1]; ++row)
      for (size_t k = 0; k < chosen; ++k) out[row * chosen + k] = a[row * width + place(index[row * chosen + k], width)];
  }

  // To a, at the places b of each row, c is added.
  void scatter_add(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], chosen = shapes_[step.b][2];
    std::memcpy(out, repeated<Use::kA>(step.a, shape), sizeof(float) * numbers_of(shape));
    const float *index = tensor(step.b), *added = repeated<Use::kC>(step.c, shapes_[step.b]);
    for (size_t row = 0; row < shape[0] * shape[1]; ++row)
      for (size_t k = 0; k < chosen; ++k)
        out[row * width + place(index[row * chosen + k], width)] += added[row * chosen + k];
  }

  static size_t place(float index, size_t width) {
    if (!(index >= 0.0f && index < static_cast<float>(width))) throw std::out_of_range("index beyond the last dimension");
    return static_cast<size_t>(index);
  }

  void log_softmax(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], n = numbers_of(shape);
    const float* a = tensor(step.a);
    float* power = scratch<float, Use::kPowers>(n);
    for (size_t begin = 0; begin < n; begin += width) {
      float largest = a[begin];
      for (size_t k = 1; k < width; ++k) largest = a[begin + k] > largest ? a[begin + k] : largest;
      for (size_t k = 0; k < width; ++k) out[begin + k] = a[begin + k] - largest;
    }
    compute(Operation::kExp, power, out, nullptr, nullptr, 0.0f, 0.0f, n);
    for (size_t begin = 0; begin < n; begin += width) {
      const float logarithm = std::log(sum_of(power + begin, width));
      for (size_t k = 0; k < width; ++k) out[begin + k] -= logarithm;
    }
  }

  // Of the gradient a of the result b.
  void log_softmax_backward(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], n = numbers_of(shape);
    const float *a = repeated<Use::kA>(step.a, shape), *b = tensor(step.b);
    compute(Operation::kExp, out, b, nullptr, nullptr, 0.0f, 0.0f, n);
    for (size_t begin = 0; begin < n; begin += width) {
      const float sum = sum_of(a + begin, width);
      for (size_t k = 0; k < width; ++k) out[begin + k] = a[begin + k] - out[begin + k] * sum;
    }
  }

  std::vector<Shape> shapes_;
  std::vector<Kind> inputs_;
  std::vector<Step> steps_;
  std::vector<int> outputs_;
  std::vector<size_t> begins_;  // of each tensor in the memory
  std::vector<float> memory_;
};

}  // namespace penstock
