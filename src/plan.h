// A recorded computation over small tensors: elementwise operations, sums, products, and the calls of networks' layers and
// of squashed normal actions, without dispatch or allocation.
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
#include <optional>
#include <span>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "activations.h"
#include "blas.h"
#include "functions.h"
#include "layers.h"
#include "normalization.h"
#include "quantile_huber.h"
#include "scratch.h"
#include "squashed_normal.h"

namespace penstock {

// Operations of a step on tensors a, b, c and numbers x, y. Truth values are 0 and 1, indices are floats.
enum class Operation : int {
  kConstant, kCopy, kAdd, kMul, kDiv, kExp, kLog, kSqrt, kPower, kClamp, kMinimum, kMaximum, kWhere, kGreater,
  kGreaterEqual, kEqual, kAnd, kOr, kNot, kSum, kGather, kScatterAdd, kLogSoftmax, kLogSoftmaxBackward, kTanh,
  kTanhBackward, kSigmoid, kProduct, kTurn, kSlice, kPut,
  kLargest, kPlaceOfLargest, kSwap, kFloor, kCosine, kSort, kRectifierGradient, kCall, kCount
};

inline size_t num_operands(Operation operation) {
  switch (operation) {
    case Operation::kConstant: case Operation::kCall: return 0;
    case Operation::kCopy: case Operation::kExp: case Operation::kLog: case Operation::kSqrt: case Operation::kPower:
    case Operation::kClamp: case Operation::kNot: case Operation::kTanh: case Operation::kSigmoid: case Operation::kSum:
    case Operation::kLogSoftmax: case Operation::kTurn: case Operation::kSlice: case Operation::kLargest:
    case Operation::kPlaceOfLargest: case Operation::kSwap: case Operation::kFloor: case Operation::kCosine:
    case Operation::kSort: return 1;
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

class Plan {
 public:
  struct Step {
    Operation operation;
    int out, a, b, c;  // numbers of tensors; -1: none
    float x, y;        // of a call x is its number
  };
  enum class Kind : int { kFloat, kBool, kInt64, kUint8, kInt8, kInt16, kInt32, kCount };

  // A call with several tensors; -1 among what it writes: not needed.
  struct Call {
    enum class Kind : int {
      kForward,          // x, parameters -> kept, out
      kBackward,         // x, kept, out, gradient, parameters -> d_x, gradients of the parameters
      kSample,           // outputs, noise -> action, log_prob
      kSampleGradient,   // outputs, noise, action, d_action, d_log_prob -> d_outputs
      kMoments,          // x -> variance, mean of each column
      kNormalize,        // x, scale, shift -> y, mean, inverse deviation of each column
      kNormalizeGradient,  // d_y, x, scale, mean, inverse deviation -> d_x, d_scale, d_shift
      kQuantileHuber,    // quantiles, their fractions, samples -> loss of each row, its derivative by each quantile
      kCount
    };

    Kind kind;
    std::vector<int> reads, writes;
    std::optional<Layers> layers;
    int rows, networks;  // of layers
    bool in_bf16;
    SquashedNormal normal;  // of columns that are normalised, centre is added to variances
  };

  // The first tensors are the inputs, one of each kind; every other is the result of a step, and each output is one of
  // these. A part of the plan ends before each of the steps `ends`, and the last one behind all steps.
  Plan(std::vector<Shape> shapes, std::vector<Kind> inputs, std::vector<Step> steps, std::vector<Call> calls,
       std::vector<int> outputs, std::vector<size_t> ends)
      : shapes_(std::move(shapes)),
        inputs_(std::move(inputs)),
        steps_(std::move(steps)),
        calls_(std::move(calls)),
        outputs_(std::move(outputs)),
        ends_(std::move(ends)) {
    const int count = static_cast<int>(shapes_.size()), num_inputs = static_cast<int>(inputs_.size());
    for (const Kind kind : inputs_)
      if (kind < Kind::kFloat || kind >= Kind::kCount) throw std::invalid_argument("no such kind of input");
    if (num_inputs > count) throw std::invalid_argument("more inputs than tensors");
    std::vector<bool> is_there(shapes_.size(), false);
    std::fill_n(is_there.begin(), num_inputs, true);
    for (const Step& step : steps_) {
      if (step.operation < Operation::kConstant || step.operation >= Operation::kCount)
        throw std::invalid_argument("no such operation");
      const bool is_call = step.operation == Operation::kCall;
      if (is_call && !(step.x >= 0.0f && step.x < static_cast<float>(calls_.size())))
        throw std::invalid_argument("no such call of the plan");
      bool is_legal = is_call || step.out >= 0;
      const std::array<int, 3> operands{step.a, step.b, step.c};
      for (size_t i = 0; i < num_operands(step.operation); ++i) is_legal &= operands[i] >= 0;
      each_read(step, [&](int number) { is_legal &= number >= 0 && number < count && is_there[number]; });
      if (is_legal) each_written(step, [&](int number) {
        is_legal &= number >= num_inputs && number < count && !is_there[number];
        if (is_legal) is_there[number] = true;
      });
      if (!is_legal) throw std::invalid_argument("a step of the plan has a tensor that is not there yet");
      if (is_call) {
        require_fitting(call_of(step));
      } else {
        require_fitting(step);
      }
    }
    for (const int tensor : outputs_)
      if (tensor < num_inputs || tensor >= count || !is_there[tensor])
        throw std::invalid_argument("no such output in the plan");
    if (!std::is_sorted(ends_.begin(), ends_.end()) || (!ends_.empty() && ends_.back() > steps_.size()))
      throw std::invalid_argument("no such part of the plan");
    ends_.push_back(steps_.size());
    lay_out();
  }

  // Takes the addresses of inputs, from which floats are read at every step, and of outputs, for all parts.
  void begin(std::span<const void* const> inputs, std::span<float* const> outputs, int threads) {
    if (inputs.size() != inputs_.size() || outputs.size() != outputs_.size())
      throw std::invalid_argument("another number of inputs or outputs than the plan has");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs_[i] == Kind::kFloat) {
        places_[i] = static_cast<float*>(const_cast<void*>(inputs[i]));
      } else {
        load(inputs_[i], inputs[i], places_[i], numbers_of(shapes_[i]));
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) places_[outputs_[i]] = outputs[i];
    threads_ = threads;
  }

  // Runs one part.
  void run(size_t part) {
    if (part >= ends_.size()) throw std::out_of_range("no such part of the plan");
    for (size_t i = part ? ends_[part - 1] : 0; i < ends_[part];) {
      const size_t together = elementwise_from(i, ends_[part]);
      if (together > 1) {
        take_together(std::span(steps_).subspan(i, together));
      } else {
        take(steps_[i]);
      }
      i += std::max<size_t>(together, 1);
    }
  }

 private:
  // Operations that read at places of their own; the others repeat what is smaller than their result.
  void require_fitting(const Step& step) const {
    const Shape &out = shapes_[step.out], &a = shapes_[step.a < 0 ? step.out : step.a];
    bool is_fitting = true;
    if (step.operation == Operation::kProduct) {
      const auto [m, k] = factor_of(step.a, step.x);
      const auto [inner, n] = factor_of(step.b, step.y);
      const size_t count = a[0];
      is_fitting = k == inner && shapes_[step.b][0] == count && out == Shape{count, m, n} &&
                   (step.c < 0 || shapes_[step.c] == Shape{count, 1, n});
    } else if (step.operation == Operation::kGather || step.operation == Operation::kScatterAdd) {
      const Shape& index = shapes_[step.b];
      const Shape& of_rows = step.operation == Operation::kGather ? a : out;
      is_fitting = index[0] == out[0] && index[1] == out[1] && of_rows[0] == out[0] && of_rows[1] == out[1] &&
                   (step.operation == Operation::kScatterAdd || index == out);
    } else if (step.operation == Operation::kLargest || step.operation == Operation::kPlaceOfLargest) {
      is_fitting = a[2] > 0 && out == Shape{a[0], a[1], 1};
    } else if (step.operation == Operation::kSort) {
      is_fitting = out == a;
    } else if (step.operation == Operation::kTurn) {
      is_fitting = out == Shape{a[0], a[2], a[1]};
    } else if (step.operation == Operation::kSwap) {
      is_fitting = out == Shape{a[1], a[0], a[2]};
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

  const Call& call_of(const Step& step) const { return calls_[static_cast<size_t>(step.x)]; }

  template <class Visit>
  void each_read(const Step& step, Visit visit) const {
    if (step.operation == Operation::kCall) {
      for (const int number : call_of(step).reads) visit(number);
      return;
    }
    for (const int number : {step.a, step.b, step.c})
      if (number != -1) visit(number);
  }

  template <class Visit>
  void each_written(const Step& step, Visit visit) const {
    if (step.operation != Operation::kCall) {
      visit(step.out);
      return;
    }
    for (const int number : call_of(step).writes)
      if (number != -1) visit(number);
  }

  // Sizes of what a call without layers reads and writes.
  std::pair<std::vector<size_t>, std::vector<size_t>> sizes_of(const Call& call) const {
    const auto shape = [&](size_t i) {
      if (i >= call.reads.size() || call.reads[i] == -1) throw std::invalid_argument("a call of the plan lacks a tensor");
      return shapes_[call.reads[i]];
    };
    const size_t rows = static_cast<size_t>(call.rows), numbers = rows * call.normal.d;
    switch (call.kind) {
      case Call::Kind::kSample: return {{2 * numbers, numbers}, {numbers, rows}};
      case Call::Kind::kSampleGradient: return {{2 * numbers, numbers, numbers, numbers, rows}, {2 * numbers}};
      case Call::Kind::kQuantileHuber: {
        const size_t quantiles = shape(0)[2], n = shape(0)[1];
        return {{n * quantiles, numbers_of(shape(1)) == quantiles ? quantiles : n * quantiles, n * shape(2)[2]},
                {n, n * quantiles}};
      }
      default: {
        const bool is_gradient = call.kind == Call::Kind::kNormalizeGradient;
        const auto [matrices, n, width] = shape(is_gradient ? 1 : 0);
        const size_t all = matrices * n * width, columns = matrices * width;
        if (call.kind == Call::Kind::kMoments) return {{all}, {columns, columns}};
        if (is_gradient) return {{all, all, columns, columns, columns}, {all, columns, columns}};
        return {{all, columns, columns}, {all, columns, columns}};
      }
    }
  }

  // Each tensor of a call has the size that the call reads or writes.
  void require_fitting(const Call& call) const {
    std::vector<size_t> reads, writes;
    if (call.kind < Call::Kind::kForward || call.kind >= Call::Kind::kCount)
      throw std::invalid_argument("no such call of the plan");
    if (call.kind == Call::Kind::kForward || call.kind == Call::Kind::kBackward) {
      const bool is_forward = call.kind == Call::Kind::kForward;
      if (!call.layers || call.rows < 0 || call.networks < 0 || call.networks > call.layers->num_networks())
        throw std::invalid_argument("a call of the plan has no layers");
      const size_t n = static_cast<size_t>(call.rows), kept = kept_numbers(call);
      const size_t x = n * call.layers->num_inputs(), out = n * call.networks * call.layers->num_outputs();
      std::vector<size_t> parameters;
      for (size_t tensor = 0; tensor < call.layers->num_tensors(); ++tensor)
        parameters.push_back(call.layers->size_of(tensor));
      reads = is_forward ? std::vector<size_t>{x} : std::vector<size_t>{x, kept, out, out};
      writes = is_forward ? std::vector<size_t>{kept, out} : std::vector<size_t>{x};
      reads.insert(reads.end(), parameters.begin(), parameters.end());
      if (!is_forward && call.writes.size() > 1) writes.insert(writes.end(), parameters.begin(), parameters.end());
    } else {
      std::tie(reads, writes) = sizes_of(call);
    }
    const auto fit = [&](const std::vector<int>& numbers, const std::vector<size_t>& sizes) {
      bool is_fitting = numbers.size() == sizes.size();
      for (size_t i = 0; is_fitting && i < numbers.size(); ++i)
        is_fitting = numbers[i] == -1 || numbers_of(shapes_[numbers[i]]) == sizes[i];
      return is_fitting;
    };
    bool is_whole = std::find(call.reads.begin(), call.reads.end(), -1) == call.reads.end();
    for (size_t i = call.kind == Call::Kind::kBackward ? 1 : 0; i < call.writes.size(); ++i)
      is_whole &= call.writes[i] != -1;
    if (!is_whole || !fit(call.reads, reads) || !fit(call.writes, writes))
      throw std::invalid_argument("a call of the plan has tensors that do not fit each other");
  }

  static size_t kept_numbers(const Call& call) {
    return (call.layers->kept_nbytes(call.rows, call.networks, call.in_bf16) + sizeof(float) - 1) / sizeof(float);
  }

  // Rows and columns of a factor of a product, which may lie turned.
  std::pair<size_t, size_t> factor_of(int number, float is_turned) const {
    const Shape& shape = shapes_[number];
    return is_turned != 0.0f ? std::pair{shape[2], shape[1]} : std::pair{shape[1], shape[2]};
  }

  // Gives each tensor its place in the memory. A result may lie where one lay that no later step reads: what is in use
  // then stays in a core's own cache.
  void lay_out() {
    constexpr size_t kNever = std::numeric_limits<size_t>::max(), kElsewhere = kNever;
    const size_t count = shapes_.size();
    std::vector<size_t> last(count, 0), begins(count, kElsewhere);
    std::vector<bool> lies_elsewhere(count, false);
    for (size_t i = 0; i < steps_.size(); ++i) each_read(steps_[i], [&](int number) { last[number] = i; });
    for (size_t i = 0; i < inputs_.size(); ++i) lies_elsewhere[i] = true;
    for (const int number : outputs_) lies_elsewhere[number] = true;
    for (size_t number = 0; number < count; ++number)
      if (lies_elsewhere[number]) last[number] = kNever;
    // The tensor in whose place another lies: one that it is a copy of in another shape, or that it is the first change of.
    std::vector<int> place_of(count);
    for (size_t number = 0; number < count; ++number) place_of[number] = static_cast<int>(number);
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      if (step.operation == Operation::kCall || step.a < 0 || lies_elsewhere[step.a] || lies_elsewhere[step.out]) continue;
      const int from = place_of[step.a];
      if (is_reshaping(step) || (step.operation == Operation::kPut && last[from] == i)) {
        place_of[step.out] = from;
        last[from] = std::max(last[from], last[step.out]);
      }
    }
    size_t size = 0;
    std::vector<std::pair<size_t, size_t>> free;  // places: count of numbers, beginning
    const auto count_of = [&](size_t number) { return (numbers_of(shapes_[number]) + 15) / 16 * 16; };
    const auto take_place = [&](size_t number) {
      const auto found =
          std::find_if(free.begin(), free.end(), [&](const auto& place) { return place.first == count_of(number); });
      if (found != free.end()) {
        begins[number] = found->second;
        free.erase(found);
      } else {
        begins[number] = size;
        size += count_of(number);
      }
    };
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i] != Kind::kFloat) take_place(i);
    for (size_t i = 0; i < steps_.size(); ++i) {
      std::vector<int> used;
      each_written(steps_[i], [&](int number) {
        if (!lies_elsewhere[number] && place_of[number] == number) take_place(number);
        used.push_back(place_of[number]);
      });
      each_read(steps_[i], [&](int number) { used.push_back(place_of[number]); });
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      for (const int each : used)
        if (last[each] <= i) free.emplace_back(count_of(each), begins[each]);
    }
    memory_.reset(static_cast<float*>(std::aligned_alloc(kAlign, std::max(kAlign, size * sizeof(float)))));
    if (!memory_) throw std::bad_alloc();
    for (const int place : place_of)
      places_.push_back(begins[place] == kElsewhere ? nullptr : memory_.get() + begins[place]);
    leave_out_reshaping();
  }

  // Whether a step gives the same numbers in the same order.
  bool is_reshaping(const Step& step) const {
    const Shape& from = shapes_[step.a];
    const bool is_same = step.operation == Operation::kCopy ||
                         (step.operation == Operation::kSwap && (from[0] == 1 || from[1] == 1)) ||
                         (step.operation == Operation::kTurn && (from[1] == 1 || from[2] == 1));
    return is_same && numbers_of(from) == numbers_of(shapes_[step.out]);
  }

  // Removes the steps whose result lies in the place of its operand.
  void leave_out_reshaping() {
    std::vector<Step> kept;
    std::vector<size_t> ends;
    for (size_t i = 0, part = 0; i <= steps_.size(); ++i) {
      for (; part < ends_.size() && ends_[part] == i; ++part) ends.push_back(kept.size());
      if (i == steps_.size()) break;
      const Step& step = steps_[i];
      const bool is_put = step.operation == Operation::kPut || step.operation == Operation::kCall || step.a < 0;
      if (is_put || !places_[step.out] || places_[step.out] != places_[step.a]) kept.push_back(step);
    }
    steps_ = std::move(kept);
    ends_ = std::move(ends);
  }

  float* tensor(size_t number) const { return places_[number]; }

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

  enum class Use { kA, kB, kC, kPowers, kRowA, kRowB, kRowC };

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
    if (step.operation == Operation::kCall) {
      take(call_of(step));
      return;
    }
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
      case Operation::kSort: sort(step, out, shape); break;
      case Operation::kTurn: turn(step, out); break;
      case Operation::kSwap: swap(step, out); break;
      case Operation::kSlice: copy_part<true>(step, tensor(step.a), out, shapes_[step.a], shape); break;
      case Operation::kPut:
        if (out != tensor(step.a)) std::memcpy(out, tensor(step.a), sizeof(float) * numbers_of(shape));
        copy_part<false>(step, tensor(step.b), out, shape, shapes_[step.b]);
        break;
      default: elementwise(step, out, shape);
    }
  }

  // Number of steps from one on that compute tensors of the same shape, each number of a result of those at its place.
  size_t elementwise_from(size_t first, size_t end) const {
    size_t count = 0;
    while (first + count < end && is_elementwise(steps_[first + count].operation) &&
           shapes_[steps_[first + count].out] == shapes_[steps_[first].out])
      ++count;
    return count;
  }

  static bool is_elementwise(Operation operation) {
    return operation <= Operation::kNot || operation == Operation::kTanh || operation == Operation::kTanhBackward ||
           operation == Operation::kSigmoid || operation == Operation::kFloor || operation == Operation::kCosine || operation == Operation::kRectifierGradient;
  }

  // Takes elementwise steps on some rows at a time, which stay in a core's nearest caches in between. A result may lie
  // where a tensor lay that an earlier one of the steps reads: of the same size, so row by row at the same places.
  void take_together(std::span<const Step> steps) {
    const Shape& shape = shapes_[steps[0].out];
    const size_t rows = shape[0] * shape[1], chunk = std::max<size_t>(1, kChunk / std::max<size_t>(shape[2], 1));
    if (shape[2] < kRow || rows <= chunk) {
      for (const Step& step : steps) take(step);
      return;
    }
    share_out(static_cast<int>((rows + chunk - 1) / chunk), numbers_of(shape) < kShared ? 1 : threads_, [&](int part) {
      const size_t begin = part * chunk, end = std::min(rows, begin + chunk);
      for (const Step& step : steps) elementwise_rows(step, tensor(step.out), shape, begin, end);
    });
  }

  void elementwise(const Step& step, float* out, const Shape& shape) {
    const size_t rows = shape[0] * shape[1];
    const bool is_whole = !differs(step.a, shape) && !differs(step.b, shape) && !differs(step.c, shape);
    if (rows > 1 && shape[2] >= kRow && (!is_whole || numbers_of(shape) >= kShared)) {
      const int parts = numbers_of(shape) < kShared ? 1 : std::min(threads_, static_cast<int>(rows));
      share_out(parts, parts, [&](int part) {
        elementwise_rows(step, out, shape, rows * part / parts, rows * (part + 1) / parts);
      });
      return;
    }
    compute(step.operation, out, repeated<Use::kA>(step.a, shape), repeated<Use::kB>(step.b, shape),
            repeated<Use::kC>(step.c, shape), step.x, step.y, numbers_of(shape));
  }

  // Whether a tensor is repeated to be of a shape.
  bool differs(int number, const Shape& to) const { return number >= 0 && numbers_of(shapes_[number]) != numbers_of(to); }

  // Some rows of the result: what is repeated along rows is read where it lies.
  void elementwise_rows(const Step& step, float* out, const Shape& shape, size_t begin, size_t end) {
    RowsOf<Use::kRowA> a(*this, step.a, shape);
    RowsOf<Use::kRowB> b(*this, step.b, shape);
    RowsOf<Use::kRowC> c(*this, step.c, shape);
    if (a.are_all() && b.are_all() && c.are_all()) {
      compute(step.operation, out + begin * shape[2], a.of(begin), b.of(begin), c.of(begin), step.x, step.y,
              (end - begin) * shape[2]);
      return;
    }
    for (size_t row = begin; row < end; ++row)
      compute(step.operation, out + row * shape[2], a.of(row), b.of(row), c.of(row), step.x, step.y, shape[2]);
  }

  // Rows of a tensor, repeated to a shape, one after the other.
  template <Use use>
  class RowsOf {
   public:
    RowsOf(const Plan& plan, int number, const Shape& to) : rows_(to[1]), width_(to[2]) {
      if (number < 0) return;
      const Shape& from = plan.shapes_[number];
      values_ = plan.tensor(number);
      if (numbers_of(from) == numbers_of(to)) {
        strides_ = {rows_ * width_, width_, 1};
      } else {
        strides_ = strides_of(from);
        is_all_ = false;
        if (!strides_[2] && width_ > 1) row_ = scratch<float, use>(width_);
      }
    }

    bool are_all() const { return is_all_; }

    const float* of(size_t row) {
      if (!values_) return nullptr;
      const float* found = values_ + row / rows_ * strides_[0] + row % rows_ * strides_[1];
      if (!row_) return found;
      if (found != filled_) std::fill_n(row_, width_, *found);
      filled_ = found;
      return row_;
    }

   private:
    size_t rows_, width_;
    Shape strides_{};
    const float* values_ = nullptr;
    const float* filled_ = nullptr;  // what the row is filled with
    float* row_ = nullptr;           // of one number
    bool is_all_ = true;             // nothing is repeated
  };

  void take(const Call& call) {
    const auto read = [&](size_t i) { return tensor(call.reads[i]); };
    const auto write = [&](size_t i) { return call.writes[i] == -1 ? nullptr : tensor(call.writes[i]); };
    switch (call.kind) {
      case Call::Kind::kForward: {
        const std::vector<const float*> parameters = tensors(call.reads, 1);
        call.layers->forward(read(0), call.rows, call.networks, parameters, reinterpret_cast<std::byte*>(write(0)),
                             write(1), call.in_bf16, threads_);
        break;
      }
      case Call::Kind::kBackward: {
        const std::vector<const float*> parameters = tensors(call.reads, 4);
        std::vector<float*> gradients;
        for (size_t i = 1; i < call.writes.size(); ++i) gradients.push_back(write(i));
        call.layers->backward(read(0), call.rows, call.networks, parameters,
                              reinterpret_cast<const std::byte*>(read(1)), read(2), read(3), write(0), gradients,
                              call.in_bf16, threads_, /*is_first=*/true);
        break;
      }
      case Call::Kind::kSample:
        call.normal.sample(read(0), call.rows, read(1), write(0), write(1));
        break;
      case Call::Kind::kSampleGradient:
        call.normal.gradient(read(0), call.rows, read(1), read(2), read(3), read(4), write(0));
        break;
      case Call::Kind::kMoments:
        columns_of(call.reads[0]).moments(read(0), write(0), write(1), threads_);
        break;
      case Call::Kind::kNormalize:
        columns_of(call.reads[0]).normalize(read(0), read(1), read(2), call.normal.centre, write(0), write(1), write(2), threads_);
        break;
      case Call::Kind::kNormalizeGradient:
        columns_of(call.reads[1]).gradient(read(0), read(1), read(2), read(3), read(4), write(0), write(1), write(2),
                                           threads_);
        break;
      case Call::Kind::kQuantileHuber: {
        const Shape &quantiles = shapes_[call.reads[0]], &samples = shapes_[call.reads[2]];
        const bool has_tau_by_row = numbers_of(shapes_[call.reads[1]]) == numbers_of(quantiles);
        QuantileHuber{quantiles[1], quantiles[2], samples[2]}.compute(read(0), read(1), has_tau_by_row, read(2), write(0),
                                                                      write(1), threads_);
        break;
      }
      default: break;
    }
  }

  Columns columns_of(int number) const {
    const auto [matrices, rows, columns] = shapes_[number];
    return {matrices, rows, columns};
  }

  std::vector<const float*> tensors(const std::vector<int>& numbers, size_t from) const {
    std::vector<const float*> found;
    for (size_t i = from; i < numbers.size(); ++i) found.push_back(tensor(numbers[i]));
    return found;
  }

  // Over all dimensions that are 1 in the result.
  void sum(const Step& step, float* out, const Shape& to) {
    const Shape& from = shapes_[step.a];
    const float* a = tensor(step.a);
    if (to == from) {
      std::memcpy(out, a, sizeof(float) * numbers_of(to));
      return;
    }
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
    if (to[2] == from[2]) {
      for (size_t i = 0; i < from[0] * from[1]; ++i)
        add_to(out + i / from[1] * block + i % from[1] * row, a + i * from[2], from[2]);
      return;
    }
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

  // Each row in rising order; what is no number comes last.
  void sort(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], n = numbers_of(shape);
    if (out != tensor(step.a)) std::memcpy(out, tensor(step.a), sizeof(float) * n);
    share_out(static_cast<int>(shape[0] * shape[1]), n < kShared ? 1 : threads_, [&](int row) {
      std::sort(out + row * width, out + (row + 1) * width, [](float a, float b) { return a < b || (b != b && a == a); });
    });
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

  // a b of each block, plus its row c if there is one.
  void product(const Step& step, float* out, const Shape& shape) {
    const auto [count, m, n] = shape;
    const bool a_turned = step.x != 0.0f, b_turned = step.y != 0.0f;
    const size_t k = a_turned ? shapes_[step.a][1] : shapes_[step.a][2];
    share_out(static_cast<int>(count), threads_, [&, m = m, n = n](int block) {
      float* c = out + block * m * n;
      blas.product(a_turned, b_turned, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k),
                   tensor(step.a) + block * m * k, tensor(step.b) + block * k * n, 0.0f, c);
      if (step.c >= 0) add_bias(c, tensor(step.c) + block * n, m, n);
    });
  }

  void turn(const Step& step, float* out) {
    const auto [count, rows, width] = shapes_[step.a];
    const float* a = tensor(step.a);
    for (size_t block = 0; block < count; ++block, a += rows * width, out += rows * width)
      for (size_t row = 0; row < rows; ++row)
        for (size_t k = 0; k < width; ++k) out[k * rows + row] = a[row * width + k];
  }

  // Rows of blocks to blocks of rows.
  void swap(const Step& step, float* out) const {
    const auto [count, rows, width] = shapes_[step.a];
    const float* a = tensor(step.a);
    share_out(static_cast<int>(count), numbers_of(shapes_[step.a]) < kShared ? 1 : threads_,
              [&, count = count, rows = rows, width = width](int block) {
                for (size_t row = 0; row < rows; ++row)
                  std::memcpy(out + (row * count + block) * width, a + (block * rows + row) * width,
                              sizeof(float) * width);
              });
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

  static constexpr size_t kChunk = 1 << 12;   // numbers of each tensor that several steps work on at a time
  static constexpr size_t kRow = 16;          // numbers of a row from which on rows are worth a call each
  static constexpr size_t kShared = 1 << 15;  // numbers of a tensor from which on threads share its rows

  std::vector<Shape> shapes_;
  std::vector<Kind> inputs_;
  std::vector<Step> steps_;
  std::vector<Call> calls_;
  std::vector<int> outputs_;
  std::vector<size_t> ends_;    // of the parts
  std::vector<float*> places_;  // of each tensor: in the memory, or where an input or output lies
  int threads_ = 1;
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
};

}  // namespace penstock
