// A recorded computation over small tensors: elementwise operations, sums and products, without dispatch or allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "activations.h"
#include "blas.h"
#include "functions.h"
#include "scratch.h"

namespace penstock {

// Operations of a step on tensors a, b, c and numbers x, y. Truth values are 0 and 1, indices are floats.
enum class Operation : int {
  kConstant, kCopy, kAdd, kMul, kDiv, kExp, kLog, kSqrt, kPower, kClamp, kMinimum, kMaximum, kWhere, kGreater,
  kGreaterEqual, kEqual, kAnd, kOr, kNot, kSum, kGather, kScatterAdd, kLogSoftmax, kLogSoftmaxBackward, kTanh,
  kTanhBackward, kSigmoid, kProduct, kTurn, kSlice, kPut,
  kLargest, kPlaceOfLargest, kCount
};

inline size_t num_operands(Operation operation) {
  switch (operation) {
    case Operation::kConstant: return 0;
    case Operation::kCopy: case Operation::kExp: case Operation::kLog: case Operation::kSqrt: case Operation::kPower:
    case Operation::kClamp: case Operation::kNot: case Operation::kTanh: case Operation::kSigmoid: case Operation::kSum:
    case Operation::kLogSoftmax: case Operation::kTurn: case Operation::kSlice: case Operation::kLargest:
    case Operation::kPlaceOfLargest: return 1;
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
    case Operation::kTanh: for (size_t i = 0; i < n; ++i) out[i] = tangent(a[i]); break;
    case Operation::kTanhBackward: for (size_t i = 0; i < n; ++i) out[i] = a[i] * (1.0f - b[i] * b[i]); break;
    case Operation::kSigmoid: for (size_t i = 0; i < n; ++i) out[i] = sigmoid(a[i]); break;
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
  enum class Kind : int { kFloat, kBool, kInt64, kUint8, kInt8, kInt16, kInt32, kCount };

  // The first tensors are the inputs, one of each kind; every other is the result of a step.
  Plan(std::vector<Shape> shapes, std::vector<Kind> inputs, std::vector<Step> steps, std::vector<int> outputs)
      : shapes_(std::move(shapes)), inputs_(std::move(inputs)), steps_(std::move(steps)), outputs_(std::move(outputs)) {
    const int count = static_cast<int>(shapes_.size());
    for (const Kind kind : inputs_)
      if (kind < Kind::kFloat || kind >= Kind::kCount) throw std::invalid_argument("no such kind of input");
    if (inputs_.size() > shapes_.size()) throw std::invalid_argument("more inputs than tensors");
    for (const Step& step : steps_) {
      if (step.operation < Operation::kConstant || step.operation >= Operation::kCount)
        throw std::invalid_argument("no such operation");
      const std::array<int, 3> operands{step.a, step.b, step.c};
      bool is_legal = step.out >= static_cast<int>(inputs_.size()) && step.out < count;
      for (size_t i = 0; i < operands.size(); ++i)
        is_legal &= operands[i] < step.out && (operands[i] >= 0 || i >= num_operands(step.operation));
      if (!is_legal) throw std::invalid_argument("a step of the plan has a tensor that is not there yet");
      require_fitting(step);
    }
    for (const int tensor : outputs_)
      if (tensor < 0 || tensor >= count) throw std::invalid_argument("no such output in the plan");
    lay_out();
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
  // Operations that read at places of their own; the others repeat what is smaller than their result.
  void require_fitting(const Step& step) const {
    const Shape &out = shapes_[step.out], &a = shapes_[step.a < 0 ? step.out : step.a];
    bool is_fitting = true;
    if (step.operation == Operation::kProduct) {
      const auto [m, k] = factor_of(step.a, step.x);
      const auto [inner, n] = factor_of(step.b, step.y);
      is_fitting = k == inner && out == Shape{1, m, n} && (step.c < 0 || shapes_[step.c] == Shape{1, 1, n});
    } else if (step.operation == Operation::kLargest || step.operation == Operation::kPlaceOfLargest) {
      is_fitting = a[2] > 0 && out == Shape{a[0], a[1], 1};
    } else if (step.operation == Operation::kTurn) {
      is_fitting = a[0] == 1 && out == Shape{1, a[2], a[1]};
    } else if (step.operation == Operation::kSlice || step.operation == Operation::kPut) {
      const bool is_slice = step.operation == Operation::kSlice;
      is_fitting = step.x >= 0.0f && step.x < static_cast<float>(kDims) && step.y >= 0.0f && (is_slice || a == out);
      const Shape &whole = a, &part = is_slice ? out : shapes_[step.b];
      for (size_t dim = 0; is_fitting && dim < kDims; ++dim) {
        const bool is_cut = dim == static_cast<size_t>(step.x);
        is_fitting = is_cut ? static_cast<size_t>(step.y) + part[dim] <= whole[dim] : part[dim] == whole[dim];
      }
    }
    if (!is_fitting) throw std::invalid_argument("a step of the plan has tensors that do not fit each other");
  }

  // Rows and columns of a factor of a product, which may lie turned.
  std::pair<size_t, size_t> factor_of(int number, float is_turned) const {
    const Shape& shape = shapes_[number];
    return is_turned != 0.0f ? std::pair{shape[2], shape[1]} : std::pair{shape[1], shape[2]};
  }

  // Gives each tensor its place in the memory. A result may lie where one lay that no later step reads: what is in use
  // then stays in a core's own cache.
  void lay_out() {
    constexpr size_t kNever = std::numeric_limits<size_t>::max();
    std::vector<size_t> last(shapes_.size(), 0);
    for (size_t i = 0; i < steps_.size(); ++i)
      for (const int number : {steps_[i].a, steps_[i].b, steps_[i].c})
        if (number >= 0) last[number] = i;
    for (size_t i = 0; i < inputs_.size(); ++i) last[i] = kNever;
    for (const int number : outputs_) last[number] = kNever;
    begins_.resize(shapes_.size());
    size_t size = 0;
    std::vector<std::pair<size_t, size_t>> free;  // places: count of numbers, beginning
    const auto take_place = [&](size_t number) {
      const size_t count = (numbers_of(shapes_[number]) + 15) / 16 * 16;
      const auto found = std::find_if(free.begin(), free.end(), [&](const auto& place) { return place.first == count; });
      if (found != free.end()) {
        begins_[number] = found->second;
        free.erase(found);
      } else {
        begins_[number] = size;
        size += count;
      }
    };
    for (size_t i = 0; i < inputs_.size(); ++i) take_place(i);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      take_place(step.out);
      std::array<int, 4> used{step.a, step.b, step.c, step.out};
      std::sort(used.begin(), used.end());
      for (auto each = used.begin(), end = std::unique(used.begin(), used.end()); each != end; ++each)
        if (*each >= 0 && last[*each] <= i) free.emplace_back((numbers_of(shapes_[*each]) + 15) / 16 * 16, begins_[*each]);
    }
    memory_.reset(static_cast<float*>(std::aligned_alloc(kAlign, std::max(kAlign, size * sizeof(float)))));
    if (!memory_) throw std::bad_alloc();
  }

  float* tensor(size_t number) { return memory_.get() + begins_[number]; }

  template <class Number>
  static void convert(const void* from, float* to, size_t n) {
    for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(static_cast<const Number*>(from)[i]);
  }

  static void load(Kind kind, const void* from, float* to, size_t n) {
    switch (kind) {
      case Kind::kFloat: std::memcpy(to, from, sizeof(float) * n); break;
      case Kind::kBool: convert<bool>(from, to, n); break;
      case Kind::kInt64: convert<int64_t>(from, to, n); break;
      case Kind::kUint8: convert<uint8_t>(from, to, n); break;
      case Kind::kInt8: convert<int8_t>(from, to, n); break;
      case Kind::kInt16: convert<int16_t>(from, to, n); break;
      case Kind::kInt32: convert<int32_t>(from, to, n); break;
      default: break;
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
      case Operation::kLargest: largest<false>(step, out, shape); break;
      case Operation::kPlaceOfLargest: largest<true>(step, out, shape); break;
      case Operation::kProduct: product(step, out, shape); break;
      case Operation::kTurn: turn(step, out); break;
      case Operation::kSlice: copy_part<true>(step, tensor(step.a), out, shapes_[step.a], shape); break;
      case Operation::kPut:
        std::memcpy(out, tensor(step.a), sizeof(float) * numbers_of(shape));
        copy_part<false>(step, tensor(step.b), out, shape, shapes_[step.b]);
        break;
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

  // The largest number of each row, or the first place where it is; what is no number is the largest.
  template <bool is_place>
  void largest(const Step& step, float* out, const Shape& shape) {
    const size_t width = shapes_[step.a][2];
    const float* a = tensor(step.a);
    for (size_t row = 0; row < shape[0] * shape[1]; ++row, a += width) {
      size_t best = 0;
      for (size_t k = 1; k < width && a[best] == a[best]; ++k)
        if (a[k] > a[best] || a[k] != a[k]) best = k;
      out[row] = is_place ? static_cast<float>(best) : a[best];
    }
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

  // a b, plus the row c if there is one.
  void product(const Step& step, float* out, const Shape& shape) {
    const size_t m = shape[1], n = shape[2];
    const bool a_turned = step.x != 0.0f, b_turned = step.y != 0.0f;
    const int k = static_cast<int>(a_turned ? shapes_[step.a][1] : shapes_[step.a][2]);
    blas.product(a_turned, b_turned, static_cast<int>(m), static_cast<int>(n), k, tensor(step.a), tensor(step.b), 0.0f,
                 out);
    if (step.c >= 0) add_bias(out, tensor(step.c), m, n);
  }

  void turn(const Step& step, float* out) {
    const auto [one, rows, width] = shapes_[step.a];
    const float* a = tensor(step.a);
    for (size_t row = 0; row < rows; ++row)
      for (size_t k = 0; k < width; ++k) out[k * rows + row] = a[row * width + k];
  }

  // From the part of a whole that begins at y along dimension x, or to it.
  template <bool is_from_whole>
  static void copy_part(const Step& step, const float* from, float* to, const Shape& whole, const Shape& part) {
    Shape begin{};
    begin[static_cast<size_t>(step.x)] = static_cast<size_t>(step.y);
    for (size_t i = 0; i < part[0]; ++i)
      for (size_t j = 0; j < part[1]; ++j) {
        const size_t in_part = (i * part[1] + j) * part[2];
        const size_t in_whole = ((i + begin[0]) * whole[1] + j + begin[1]) * whole[2] + begin[2];
        std::memcpy(to + (is_from_whole ? in_part : in_whole), from + (is_from_whole ? in_whole : in_part),
                    sizeof(float) * part[2]);
      }
  }

  std::vector<Shape> shapes_;
  std::vector<Kind> inputs_;
  std::vector<Step> steps_;
  std::vector<int> outputs_;
  std::vector<size_t> begins_;  // of each tensor in the memory
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
};

}  // namespace penstock
