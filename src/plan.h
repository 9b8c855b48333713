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
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "activations.h"
#include "blas.h"
#include "layout.h"
#include "normalization.h"
#include "operations.h"
#include "quantile_huber.h"
#include "record.h"
#include "scratch.h"
#include "threads.h"

namespace penstock {

class Plan {
 public:
  explicit Plan(Record record) : record_(std::move(record)) {
    record_.require_legal();
    record_.ends.push_back(record_.steps.size());
    record_.join_rectifiers();
    const Layout layout = lay_out(record_);
    memory_.reset(static_cast<float*>(std::aligned_alloc(kAlign, std::max(kAlign, layout.size * sizeof(float)))));
    if (!memory_) throw std::bad_alloc();
    for (const size_t begin : layout.begins)
      places_.push_back(begin == kElsewhere ? nullptr : memory_.get() + begin);
    leave_out_reshaping();
  }

  // Takes the addresses of inputs, from which floats are read at every step, and of outputs, for all parts.
  void begin(std::span<const void* const> inputs, std::span<float* const> outputs, int threads) {
    if (inputs.size() != record_.inputs.size() || outputs.size() != record_.outputs.size())
      throw std::invalid_argument("another number of inputs or outputs than the plan has");
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (record_.inputs[i] == Kind::kFloat) {
        places_[i] = static_cast<float*>(const_cast<void*>(inputs[i]));
      } else {
        load(record_.inputs[i], inputs[i], places_[i], numbers_of(shape_of(i)));
      }
    }
    for (size_t i = 0; i < outputs.size(); ++i) places_[record_.outputs[i]] = outputs[i];
    threads_ = threads;
  }

  // Runs one part.
  void run(size_t part) {
    if (part >= record_.ends.size()) throw std::out_of_range("no such part of the plan");
    for (size_t i = part ? record_.ends[part - 1] : 0; i < record_.ends[part];) {
      const size_t together = elementwise_from(i, record_.ends[part]);
      if (together > 1) {
        take_together(std::span(record_.steps).subspan(i, together));
      } else {
        take(record_.steps[i]);
      }
      i += std::max<size_t>(together, 1);
    }
  }

 private:
  // Removes the steps whose result lies in the place of its operand.
  void leave_out_reshaping() {
    std::vector<bool> is_in_place;
    for (const Step& step : record_.steps) {
      const bool is_put = step.operation == Operation::kPut || step.operation == Operation::kCall || step.a < 0;
      is_in_place.push_back(!is_put && places_[step.out] && places_[step.out] == places_[step.a]);
    }
    record_.leave_out(is_in_place);
  }

  float* tensor(size_t number) const { return places_[number]; }
  const Shape& shape_of(size_t number) const { return record_.shapes[number]; }

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

  enum class Use { kA, kB, kC, kPowers, kRowA, kRowB, kRowC, kFactorA, kFactorB };

  // The numbers of a tensor, repeated to a shape if its own is another.
  template <Use use>
  const float* repeated(int number, const Shape& to) {
    if (number < 0) return nullptr;
    const Shape& from = shape_of(number);
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
      take(record_.call_of(step));
      return;
    }
    const Shape& shape = shape_of(step.out);
    float* out = tensor(step.out);
    switch (step.operation) {
      case Operation::kSum: sum(step, out, shape); break;
      case Operation::kGather: gather(step, out, shape); break;
      case Operation::kScatterAdd: scatter_add(step, out, shape); break;
      case Operation::kLogSoftmax: log_softmax(step, out, shape); break;
      case Operation::kLogSoftmaxBackward: log_softmax_backward(step, out, shape); break;
      case Operation::kLargest: largest<false>(step, out, shape); break;
      case Operation::kPlaceOfLargest: largest<true>(step, out, shape); break;
      case Operation::kProduct: product<float>(step, out, shape); break;
      case Operation::kProductInBf16: product<Bf16>(step, out, shape); break;
      case Operation::kSort: sort(step, out, shape); break;
      case Operation::kTurn: turn(step, out); break;
      case Operation::kSwap: swap(step, out); break;
      case Operation::kSlice: copy_part<true>(step, tensor(step.a), out, shape_of(step.a), shape); break;
      case Operation::kPut:
        if (out != tensor(step.a)) std::memcpy(out, tensor(step.a), sizeof(float) * numbers_of(shape));
        copy_part<false>(step, tensor(step.b), out, shape, shape_of(step.b));
        break;
      default: elementwise(step, out, shape);
    }
  }

  // Number of successive steps, from `first` on, that compute tensors of the same shape elementwise.
  size_t elementwise_from(size_t first, size_t end) const {
    size_t count = 0;
    while (first + count < end && is_elementwise(record_.steps[first + count].operation) &&
           shape_of(record_.steps[first + count].out) == shape_of(record_.steps[first].out))
      ++count;
    return count;
  }

  // Takes elementwise steps on some rows at a time, which stay in a core's nearest caches in between. A result may take
  // the place of a tensor that an earlier step reads: it has the same size, so each row is at the same place.
  void take_together(std::span<const Step> steps) {
    const Shape& shape = shape_of(steps[0].out);
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

  // Whether a tensor has to be repeated to have a shape.
  bool differs(int number, const Shape& to) const { return number >= 0 && numbers_of(shape_of(number)) != numbers_of(to); }

  // Some rows of the result; tensors that are repeated along rows are read in place.
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
      const Shape& from = plan.shape_of(number);
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
        columns_of(call.reads[0]).normalize(read(0), read(1), read(2), call.normal.centre, write(0), write(1), write(2),
                                            call.rectifies, threads_);
        break;
      case Call::Kind::kNormalizeGradient:
        columns_of(call.reads[1]).gradient(read(0), read(1), read(2), read(3), read(4), write(0), write(1), write(2),
                                           call.rectifies, threads_);
        break;
      case Call::Kind::kQuantileHuber: {
        const Shape &quantiles = shape_of(call.reads[0]), &samples = shape_of(call.reads[2]);
        const bool has_tau_by_row = numbers_of(shape_of(call.reads[1])) == numbers_of(quantiles);
        const QuantileHuber loss{quantiles[1], quantiles[2], samples[2]};
        loss.compute(read(0), read(1), has_tau_by_row, read(2), write(0), write(1), threads_);
        break;
      }
      default: break;
    }
  }

  Columns columns_of(int number) const {
    const auto [matrices, rows, columns] = shape_of(number);
    return {matrices, rows, columns};
  }

  std::vector<const float*> tensors(const std::vector<int>& numbers, size_t from) const {
    std::vector<const float*> found;
    for (size_t i = from; i < numbers.size(); ++i) found.push_back(tensor(numbers[i]));
    return found;
  }

  // Sums over all dimensions that are 1 in the result.
  void sum(const Step& step, float* out, const Shape& to) {
    const Shape& from = shape_of(step.a);
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
    const size_t width = shape_of(step.a)[2], chosen = shape[2];
    const float *a = tensor(step.a), *index = tensor(step.b);
    for (size_t row = 0; row < shape[0] * shape[1]; ++row)
      for (size_t k = 0; k < chosen; ++k) out[row * chosen + k] = a[row * width + place(index[row * chosen + k], width)];
  }

  // a, with c added at the places b of each row.
  void scatter_add(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], chosen = shape_of(step.b)[2];
    std::memcpy(out, repeated<Use::kA>(step.a, shape), sizeof(float) * numbers_of(shape));
    const float *index = tensor(step.b), *added = repeated<Use::kC>(step.c, shape_of(step.b));
    for (size_t row = 0; row < shape[0] * shape[1]; ++row)
      for (size_t k = 0; k < chosen; ++k)
        out[row * width + place(index[row * chosen + k], width)] += added[row * chosen + k];
  }

  static size_t place(float index, size_t width) {
    if (!(index >= 0.0f && index < static_cast<float>(width))) throw std::out_of_range("index beyond the last dimension");
    return static_cast<size_t>(index);
  }

  // The largest number of each row, or the first place where it is; NaN counts as the largest.
  template <bool is_place>
  void largest(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape_of(step.a)[2];
    const float* a = tensor(step.a);
    for (size_t row = 0; row < shape[0] * shape[1]; ++row, a += width) {
      size_t best = 0;
      for (size_t k = 1; k < width && a[best] == a[best]; ++k)
        if (a[k] > a[best] || a[k] != a[k]) best = k;
      out[row] = is_place ? static_cast<float>(best) : a[best];
    }
  }

  // Each row in ascending order, NaN last.
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

  // From the gradient a of the result b.
  void log_softmax_backward(const Step& step, float* out, const Shape& shape) {
    const size_t width = shape[2], n = numbers_of(shape);
    const float *a = repeated<Use::kA>(step.a, shape), *b = tensor(step.b);
    compute(Operation::kExp, out, b, nullptr, nullptr, 0.0f, 0.0f, n);
    for (size_t begin = 0; begin < n; begin += width) {
      const float sum = sum_of(a + begin, width);
      for (size_t k = 0; k < width; ++k) out[begin + k] = a[begin + k] - out[begin + k] * sum;
    }
  }

  // The product a b of each block, plus its row c if there is one; factors and result are rounded to a type.
  template <class Factor>
  void product(const Step& step, float* out, const Shape& shape) {
    const auto [count, m, n] = shape;
    const bool a_turned = step.x != 0.0f, b_turned = step.y != 0.0f;
    const size_t k = a_turned ? shape_of(step.a)[1] : shape_of(step.a)[2];
    share_out(static_cast<int>(count), threads_, [&, m = m, n = n](int block) {
      float* c = out + block * m * n;
      const Factor* a = as_factor<Factor, Use::kFactorA>(tensor(step.a) + block * m * k, m * k);
      const Factor* b = as_factor<Factor, Use::kFactorB>(tensor(step.b) + block * k * n, k * n);
      blas.product(a_turned, b_turned, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), a, b, 0.0f, c);
      const float* bias = step.c < 0 ? nullptr : tensor(step.c) + block * n;
      if (bias && step.rectifies) {
        add_bias_rectify(c, bias, m, n);
      } else if (bias) {
        add_bias(c, bias, m, n);
      } else if (step.rectifies) {
        rectify(c, m * n);
      }
      if constexpr (!std::is_same_v<Factor, float>) round_to_bf16(c, m * n);
    });
  }

  void turn(const Step& step, float* out) {
    const auto [count, rows, width] = shape_of(step.a);
    const float* a = tensor(step.a);
    for (size_t block = 0; block < count; ++block, a += rows * width, out += rows * width)
      for (size_t row = 0; row < rows; ++row)
        for (size_t k = 0; k < width; ++k) out[k * rows + row] = a[row * width + k];
  }

  // Exchanges the first two dimensions.
  void swap(const Step& step, float* out) const {
    const auto [count, rows, width] = shape_of(step.a);
    const float* a = tensor(step.a);
    share_out(static_cast<int>(count), numbers_of(shape_of(step.a)) < kShared ? 1 : threads_,
              [&, count = count, rows = rows, width = width](int block) {
                for (size_t row = 0; row < rows; ++row)
                  std::memcpy(out + (row * count + block) * width, a + (block * rows + row) * width,
                              sizeof(float) * width);
              });
  }

  // Copies from the part of a whole that begins at y along dimension x, or to it.
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
  static constexpr size_t kRow = 16;          // least length of a row for which a call per row pays off
  static constexpr size_t kShared = 1 << 15;  // least size of a tensor whose rows threads share

  Record record_;
  std::vector<float*> places_;  // of each tensor: in the memory, or where an input or output lies
  int threads_ = 1;
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
};

}  // namespace penstock
