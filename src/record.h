// A computation as steps on tensors, and the requirements that they meet.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "blas.h"
#include "layers.h"
#include "operations.h"
#include "squashed_normal.h"

namespace penstock {

// An operation on tensors, which writes another.
struct Step {
  Operation operation;
  int out, a, b, c;  // numbers of tensors; -1: none
  float x, y;        // of a call x is its number
  bool rectifies = false;  // of a product: its result is max(., 0)
};

// Element types of inputs.
enum class Kind : int { kFloat, kBool, kInt64, kUint8, kInt8, kInt16, kInt32, kCount };

// A call with several tensors; -1 among what it writes: not needed.
struct Call {
  enum class Kind : int {
    kForward,            // x, parameters -> kept, out
    kBackward,           // x, kept, out, gradient, parameters -> d_x, gradients of the parameters
    kSample,             // outputs, noise -> action, log_prob
    kSampleGradient,     // outputs, noise, action, d_action, d_log_prob -> d_outputs
    kMoments,            // x -> variance, mean of each column
    kNormalize,          // x, scale, shift -> y, mean, inverse deviation of each column
    kNormalizeGradient,  // d_y, x, scale, mean, inverse deviation -> d_x, d_scale, d_shift
    kQuantileHuber,      // quantiles, their fractions, samples -> loss of each row, its derivative by each quantile
    kCount
  };

  Kind kind;
  std::vector<int> reads, writes;
  std::optional<Layers> layers;
  int rows, networks;  // of layers
  bool in_bf16;
  SquashedNormal normal;  // of kNormalize, centre is added to variances
  bool rectifies = false;  // of kNormalize: y is max(., 0); of kNormalizeGradient: d_x is 0 where x is not above 0
};

// The first tensors are the inputs, each of the given kind; every other is the result of a step, and each output is one
// of these. A part ends before each of the steps `ends`, and the last one after all steps.
struct Record {
  std::vector<Shape> shapes;
  std::vector<Kind> inputs;
  std::vector<Step> steps;
  std::vector<Call> calls;
  std::vector<int> outputs;
  std::vector<size_t> ends;

  // Throws std::invalid_argument for steps that cannot be computed.
  void require_legal() const {
    const int count = static_cast<int>(shapes.size()), num_inputs = static_cast<int>(inputs.size());
    for (const Kind kind : inputs)
      if (kind < Kind::kFloat || kind >= Kind::kCount) throw std::invalid_argument("no such kind of input");
    if (num_inputs > count) throw std::invalid_argument("more inputs than tensors");
    std::vector<bool> is_there(shapes.size(), false);
    std::fill_n(is_there.begin(), num_inputs, true);
    for (const Step& step : steps) {
      if (step.operation < Operation::kConstant || step.operation >= Operation::kCount)
        throw std::invalid_argument("no such operation");
      const bool is_call = step.operation == Operation::kCall;
      if (is_call && !(step.x >= 0.0f && step.x < static_cast<float>(calls.size())))
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
    for (const int tensor : outputs)
      if (tensor < num_inputs || tensor >= count || !is_there[tensor])
        throw std::invalid_argument("no such output in the plan");
    if (!std::is_sorted(ends.begin(), ends.end()) || (!ends.empty() && ends.back() > steps.size()))
      throw std::invalid_argument("no such part of the plan");
  }

  // Merges rectifiers, and their gradients, into the step before if nothing else reads its result: large tensors are
  // then read and written once less.
  void join_rectifiers() {
    std::vector<int> readers(shapes.size(), 0);
    std::vector<size_t> made_by(shapes.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      each_read(steps[i], [&](int number) { ++readers[number]; });
      each_written(steps[i], [&](int number) { made_by[number] = i; });
    }
    for (const int number : outputs) ++readers[number];
    std::vector<bool> is_joined(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Step& step = steps[i];
      const bool rectifies = step.operation == Operation::kClamp && step.x == 0.0f && step.y == INFINITY;
      const bool is_gradient = step.operation == Operation::kRectifierGradient && step.x == 0.0f;
      if (!(rectifies || is_gradient) || readers[step.a] != 1 || shapes[step.a] != shapes[step.out]) continue;
      const size_t before = made_by[step.a];
      if (before == steps.size()) continue;
      Step& made = steps[before];
      if (made.operation == Operation::kCall) {
        Call& call = calls[static_cast<size_t>(made.x)];
        const bool fits = rectifies ? call.kind == Call::Kind::kNormalize
                                    : call.kind == Call::Kind::kNormalizeGradient && call.reads[1] == step.b;
        if (!fits || call.writes[0] != step.a) continue;
        call.writes[0] = step.out;
        call.rectifies = true;
      } else if (rectifies && (made.operation == Operation::kProduct || made.operation == Operation::kProductInBf16)) {
        made.out = step.out;
        made.rectifies = true;
      } else {
        continue;
      }
      made_by[step.out] = before;
      is_joined[i] = true;
    }
    leave_out(is_joined);
  }

  // Removes steps.
  void leave_out(const std::vector<bool>& is_left_out) {
    std::vector<Step> kept;
    std::vector<size_t> kept_ends;
    for (size_t i = 0, part = 0; i <= steps.size(); ++i) {
      for (; part < ends.size() && ends[part] == i; ++part) kept_ends.push_back(kept.size());
      if (i < steps.size() && !is_left_out[i]) kept.push_back(steps[i]);
    }
    steps = std::move(kept);
    ends = std::move(kept_ends);
  }

  const Call& call_of(const Step& step) const { return calls[static_cast<size_t>(step.x)]; }

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

 private:
  // Checks operations with rules of their own for shapes; all others repeat tensors smaller than their result.
  void require_fitting(const Step& step) const {
    const Shape &out = shapes[step.out], &a = shapes[step.a < 0 ? step.out : step.a];
    bool is_fitting = true;
    if (step.operation == Operation::kProduct || step.operation == Operation::kProductInBf16) {
      if (!blas.sgemm || (step.operation == Operation::kProductInBf16 && !blas.bf16_gemm)) throw std::invalid_argument("there is no library of products");
      const auto [m, k] = factor_of(step.a, step.x);
      const auto [inner, n] = factor_of(step.b, step.y);
      const size_t count = a[0];
      is_fitting = k == inner && shapes[step.b][0] == count && out == Shape{count, m, n} &&
                   (step.c < 0 || shapes[step.c] == Shape{count, 1, n});
    } else if (step.operation == Operation::kGather || step.operation == Operation::kScatterAdd) {
      const Shape& index = shapes[step.b];
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
      const Shape &whole = a, &part = is_slice ? out : shapes[step.b];
      for (size_t dim = 0; is_fitting && dim < kDims; ++dim) {
        const bool is_cut = dim == static_cast<size_t>(step.x);
        is_fitting = is_cut ? static_cast<size_t>(step.y) + part[dim] <= whole[dim] : part[dim] == whole[dim];
      }
    }
    if (!is_fitting) throw std::invalid_argument("a step of the plan has tensors that do not fit each other");
  }

  // Sizes of what a call without layers reads and writes.
  std::pair<std::vector<size_t>, std::vector<size_t>> sizes_of(const Call& call) const {
    const auto shape = [&](size_t i) {
      if (i >= call.reads.size() || call.reads[i] == -1) throw std::invalid_argument("a call of the plan lacks a tensor");
      return shapes[call.reads[i]];
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
        is_fitting = numbers[i] == -1 || numbers_of(shapes[numbers[i]]) == sizes[i];
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

  // Rows and columns of a factor of a product, which may be turned.
  std::pair<size_t, size_t> factor_of(int number, float is_turned) const {
    const Shape& shape = shapes[number];
    return is_turned != 0.0f ? std::pair{shape[2], shape[1]} : std::pair{shape[1], shape[2]};
  }
};

}  // namespace penstock
