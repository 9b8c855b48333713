// Fully connected layers with rectifiers or tangents, of several networks side by side, in one call each way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include "activations.h"
#include "blas.h"
#include "scratch.h"
#include "threads.h"

namespace penstock {

// C networks of the same sizes over the same input. Their parameters, in order: weight and bias of each layer,
// [C, inputs, outputs] (or turned, [C, outputs, inputs]) and [C, outputs].
class Layers {
 public:
  Layers(int networks, std::vector<int> sizes, int outputs, bool is_turned, bool is_tangent)
      : networks_(networks),
        sizes_(std::move(sizes)),
        outputs_(outputs),
        is_turned_(is_turned),
        is_tangent_(is_tangent) {
    if (sizes_.size() < 2) throw std::invalid_argument("sizes must hold that of the input and of a hidden layer");
    for (size_t tensor = 0; tensor < num_tensors(); ++tensor) num_parameters_ += size_of(tensor);
  }

  size_t num_tensors() const { return 2 * (num_hidden() + (outputs_ ? 1 : 0)); }
  int num_networks() const { return networks_; }
  int num_inputs() const { return sizes_.front(); }
  int num_outputs() const { return outputs_ ? outputs_ : sizes_.back(); }

  // Numbers of a tensor of parameters, of all networks.
  size_t size_of(size_t tensor) const {
    const size_t layer = tensor / 2;
    const size_t outputs = layer < num_hidden() ? sizes_[layer + 1] : outputs_;
    return networks_ * outputs * (tensor % 2 ? 1 : sizes_[layer]);
  }

  // Bytes that a forward pass of `count` networks over n rows keeps for the backward pass. They include the last hidden
  // layer only if there is a head; otherwise it is the output.
  size_t kept_nbytes(int n, int count, bool in_bf16) const {
    size_t units = 0;
    for (size_t layer = 1; layer <= num_hidden(); ++layer) units += size_t(count) * n * sizes_[layer];
    const size_t last = size_t(count) * n * sizes_.back();
    if (in_bf16) return 2 * (units + size_t(n) * sizes_[0]) + (outputs_ ? 4 * last : 0) + kAlign;
    return 4 * (units - (outputs_ ? 0 : last));
  }

  void forward(const float* x, int n, int count, std::span<const float* const> parameters, std::byte* kept, float* out,
               bool in_bf16, int threads) const {
    if (in_bf16) {
      run<Bf16>(x, n, count, parameters, kept, out, threads);
    } else {
      run<float>(x, n, count, parameters, kept, out, threads);
    }
  }

  // `gradient` is that of the output. The gradients of the parameters are added to d_parameters, tensors of the same
  // sizes, or overwrite them (is_first); an empty d_parameters: they are not needed. The input's gradient is written
  // to d_x, unless that is null.
  void backward(const float* x, int n, int count, std::span<const float* const> parameters, const std::byte* kept,
                const float* out, const float* gradient, float* d_x, std::span<float* const> d_parameters, bool in_bf16,
                int threads, bool is_first = false) const {
    if (is_first) clear_all_but_products(d_parameters, n ? count : 0);
    if (in_bf16) {
      back<Bf16>(x, n, count, parameters, kept, out, gradient, d_x, d_parameters, threads, is_first);
    } else {
      back<float>(x, n, count, parameters, kept, out, gradient, d_x, d_parameters, threads, is_first);
    }
  }

 private:
  // A block of the n rows. of() finds its beginning in an array [networks, n, width].
  struct Rows {
    template <class Pointer>
    Pointer of(Pointer all, int network, int width) const {
      return all + (size_t(network) * n + begin) * width;
    }

    int begin, count, n;
  };

  // Networks are distributed over threads, or parts of their rows if there are fewer networks than threads. A part is
  // processed in blocks, so that the memory in use fits in a core's own cache. bfloat16 is so fast that rounding the
  // weights again for each block would be expensive: there a block is the whole part.
  template <class Number>
  struct Tasks {
    Tasks(int rows, int networks, int num_threads, int rows_of_float_block = 256)
        : n(rows),
          threads(rows < kFewestRows ? 1 : num_threads),
          parts(std::clamp(std::min((threads + networks - 1) / networks, n / kFewestRows), 1, threads)),
          rows_of_part((n + parts - 1) / parts),
          rows_of_block(std::is_same_v<Number, float> ? rows_of_float_block : rows_of_part),
          count(networks * parts) {}

    // Calls work(network, part, rows) for every block, those of a network's part one after the other.
    template <class Work>
    void run(Work work) const {
      share_out(count, threads, [&](int task) {
        const int part = task % parts, end = std::min(n, (part + 1) * rows_of_part);
        for (int begin = part * rows_of_part; begin < end; begin += rows_of_block) {
          work(task / parts, part, Rows{begin, std::min(rows_of_block, end - begin), n});
        }
      });
    }

    static constexpr int kFewestRows = 64;
    int n, threads, parts, rows_of_part, rows_of_block, count;
  };

  size_t num_hidden() const { return sizes_.size() - 1; }

  // Where the parts of what is kept lie.
  template <class Number>
  struct Kept {
    Kept(const Layers& layers, std::byte* begin, float* out, int n, int count) {
      auto* next = reinterpret_cast<Number*>(begin);
      if constexpr (!std::is_same_v<Number, float>) {
        input = next;
        next += size_t(n) * layers.sizes_[0];
      }
      for (size_t layer = 1; layer <= layers.num_hidden(); ++layer) {
        const size_t size = size_t(count) * n * layers.sizes_[layer];
        if constexpr (std::is_same_v<Number, float>) {
          if (layer == layers.num_hidden() && !layers.outputs_) {
            hidden.push_back(out);
            continue;
          }
        }
        hidden.push_back(next);
        next += size;
      }
      if constexpr (std::is_same_v<Number, float>) {
        last = hidden.back();
      } else {
        auto address = reinterpret_cast<uintptr_t>(next);
        address = (address + kAlign - 1) / kAlign * kAlign;
        last = layers.outputs_ ? reinterpret_cast<float*>(address) : out;
      }
    }

    Number* input = nullptr;
    std::vector<Number*> hidden;
    float* last;  // of the hidden layers, as floats
  };

  template <class Number>
  void run(const float* x, int n, int count, std::span<const float* const> parameters, std::byte* kept_begin,
           float* out, int threads) const {
    const Kept<Number> kept(*this, kept_begin, out, n, count);
    const Number* input;
    if constexpr (std::is_same_v<Number, float>) {
      input = x;
    } else {
      to_bf16(x, kept.input, size_t(n) * sizes_[0]);
      input = kept.input;
    }
    // Products of few rows are as fast, unless weights are turned, and their results are still in the nearest cache.
    Tasks<Number>(n, count, threads, is_turned_ ? 256 : 64).run([&](int c, int, Rows rows) {
      run_one(c, rows, input, parameters, kept, out);
    });
  }

  template <class Number>
  void run_one(int c, Rows rows, const Number* input, std::span<const float* const> parameters,
               const Kept<Number>& kept, float* out) const {
    const int n = rows.count;
    input += size_t(rows.begin) * sizes_[0];
    for (size_t layer = 0; layer < num_hidden(); ++layer) {
      const int inputs = sizes_[layer], outputs = sizes_[layer + 1];
      const size_t size = size_t(n) * outputs, weights = size_t(inputs) * outputs;
      const Number* weight = as_factor<Number, 0>(parameters[2 * layer] + c * weights, weights);
      const float* bias = parameters[2 * layer + 1] + size_t(c) * outputs;
      Number* h = rows.of(kept.hidden[layer], c, outputs);
      if constexpr (std::is_same_v<Number, float>) {
        blas.product(false, is_turned_, n, outputs, inputs, input, weight, 0.0f, h);
        if (is_tangent_) {
          add_bias_tangent(h, bias, n, outputs);
        } else {
          add_bias_rectify(h, bias, n, outputs);
        }
      } else {
        float* y = layer + 1 == num_hidden() ? rows.of(kept.last, c, outputs) : scratch<float, 0>(size);
        blas.product(false, is_turned_, n, outputs, inputs, input, weight, 0.0f, y);
        if (is_tangent_) {
          add_bias_tangent(y, bias, n, outputs);
          to_bf16(y, h, size);
        } else {
          add_bias_rectify(y, bias, h, n, outputs);
        }
      }
      input = h;
    }
    if (!outputs_) return;
    const int width = sizes_.back();
    const float* h = rows.of(kept.last, c, width);
    const float* weight = parameters[2 * num_hidden()] + size_t(c) * width * outputs_;
    const float* bias = parameters[2 * num_hidden() + 1] + size_t(c) * outputs_;
    float* y = rows.of(out, c, outputs_);
    if (outputs_ == 1) {
      dot_rows(h, weight, bias[0], y, n, width);
    } else {
      blas.product(false, is_turned_, n, outputs_, width, h, weight, 0.0f, y);
      add_bias(y, bias, n, outputs_);
    }
  }

  template <class Number>
  void back(const float* x, int n, int count, std::span<const float* const> parameters, const std::byte* kept_begin,
            const float* out, const float* gradient, float* d_x, std::span<float* const> d_parameters, int threads,
            bool is_first) const {
    const Kept<Number> kept(*this, const_cast<std::byte*>(kept_begin), const_cast<float*>(out), n, count);
    const Tasks<Number> tasks(n, count, threads);
    // All parts and networks but the first have gradients of their own, which are added at the end, so that the result
    // does not depend on which thread is faster.
    const size_t num_apart = d_parameters.empty() ? 0 : (tasks.parts - 1) * num_parameters_;
    float* apart = scratch<float, 4>(num_apart);
    if (num_apart) std::memset(apart, 0, sizeof(float) * num_apart);
    std::vector<std::vector<float*>> d_tensors{{d_parameters.begin(), d_parameters.end()}};
    for (int part = 1; part < tasks.parts; ++part) {
      d_tensors.emplace_back();
      for (size_t tensor = 0; tensor < d_parameters.size(); apart += size_of(tensor++)) d_tensors[part].push_back(apart);
    }
    const size_t size_of_x = size_t(n) * sizes_[0];
    float* d_x_apart = d_x ? scratch<float, 5>((count - 1) * size_of_x) : nullptr;
    const Number* input;
    if constexpr (std::is_same_v<Number, float>) {
      input = x;
    } else {
      input = kept.input;
    }
    tasks.run([&](int c, int part, Rows rows) {
      float* const d_input = c && d_x ? d_x_apart + (c - 1) * size_of_x : d_x;
      back_one(c, rows, input, parameters, kept, gradient, d_input, d_tensors[part], is_first && !part && !rows.begin);
    });
    for (int part = 1; part < tasks.parts; ++part) {
      for (size_t tensor = 0; tensor < d_parameters.size(); ++tensor) {
        add_to(d_parameters[tensor], d_tensors[part][tensor], size_of(tensor));
      }
    }
    for (int c = 1; d_x && c < count; ++c) add_to(d_x, d_x_apart + (c - 1) * size_of_x, size_of_x);
  }

  // Sets gradients to 0, except those of the first `count` networks' hidden weights, which products overwrite.
  void clear_all_but_products(std::span<float* const> d_parameters, int count) const {
    for (size_t tensor = 0; tensor < d_parameters.size(); ++tensor) {
      const size_t size = size_of(tensor);
      const size_t begin = tensor % 2 == 0 && tensor / 2 < num_hidden() ? size / networks_ * count : 0;
      std::memset(d_parameters[tensor] + begin, 0, sizeof(float) * (size - begin));
    }
  }

  template <class Number>
  void back_one(int c, Rows rows, const Number* input, std::span<const float* const> parameters,
                const Kept<Number>& kept, const float* gradient, float* d_x, std::span<float* const> d_tensors,
                bool is_first) const {
    const int n = rows.count;
    const bool has_parameters = !d_tensors.empty();
    const int widest = *std::max_element(sizes_.begin(), sizes_.end());
    float* d = scratch<float, 1>(size_t(n) * widest);  // of a hidden layer's output
    float* d_before = scratch<float, 2>(size_t(n) * widest);
    back_head(c, rows, parameters, kept.last, gradient, d, d_tensors);
    for (size_t layer = num_hidden(); layer-- > 0;) {
      const int inputs = sizes_[layer], outputs = sizes_[layer + 1];
      const size_t size = size_t(n) * outputs, weights = size_t(inputs) * outputs;
      float* d_bias = has_parameters ? d_tensors[2 * layer + 1] + size_t(c) * outputs : scratch<float, 3>(outputs);
      const Number* h = layer ? rows.of(kept.hidden[layer - 1], c, inputs) : rows.of(input, 0, inputs);
      const Number* activated = rows.of(kept.hidden[layer], c, outputs);
      const Number* factor;
      if constexpr (std::is_same_v<Number, float>) {
        if (is_tangent_) {
          tangent_gradient(d, activated, d_bias, n, outputs);
        } else {
          rectifier_gradient(d, activated, d_bias, n, outputs);
        }
        factor = d;
      } else {
        Number* rounded = scratch<Number, 1>(size);
        if (is_tangent_) {
          tangent_gradient(d, activated, d_bias, rounded, n, outputs);
        } else {
          rectifier_gradient(d, activated, d_bias, rounded, n, outputs);
        }
        factor = rounded;
      }
      if (has_parameters) {
        float* d_weight = d_tensors[2 * layer] + c * weights;
        const float beta = is_first ? 0.0f : 1.0f;
        if (is_turned_) {
          blas.product(true, false, outputs, inputs, n, factor, h, beta, d_weight);
        } else {
          blas.product(true, false, inputs, outputs, n, h, factor, beta, d_weight);
        }
      }
      if (!layer && !d_x) break;
      const Number* weight = as_factor<Number, 0>(parameters[2 * layer] + c * weights, weights);
      blas.product(false, !is_turned_, n, inputs, outputs, factor, weight, 0.0f,
                   layer ? d_before : rows.of(d_x, 0, inputs));
      std::swap(d, d_before);
    }
  }

  // The gradient of the last hidden layer's output, and the head's.
  void back_head(int c, Rows rows, std::span<const float* const> parameters, const float* last, const float* gradient,
                 float* d, std::span<float* const> d_tensors) const {
    const int n = rows.count, width = sizes_.back();
    const float* g = rows.of(gradient, c, outputs_ ? outputs_ : width);
    if (!outputs_) {
      std::memcpy(d, g, sizeof(float) * n * width);
      return;
    }
    const float* h = rows.of(last, c, width);
    const float* weight = parameters[2 * num_hidden()] + size_t(c) * width * outputs_;
    if (outputs_ == 1) {
      outer(g, weight, d, n, width);
    } else {
      blas.product(false, !is_turned_, n, width, outputs_, g, weight, 0.0f, d);
    }
    if (d_tensors.empty()) return;
    float* d_weight = d_tensors[2 * num_hidden()] + size_t(c) * width * outputs_;
    if (outputs_ == 1) {
      weigh_rows(h, g, d_weight, n, width);
    } else if (is_turned_) {
      blas.product(true, false, outputs_, width, n, g, h, 1.0f, d_weight);
    } else {
      blas.product(true, false, width, outputs_, n, h, g, 1.0f, d_weight);
    }
    sum_rows(g, d_tensors[2 * num_hidden() + 1] + size_t(c) * outputs_, n, outputs_);
  }

  int networks_;
  std::vector<int> sizes_;  // of the input and of each hidden layer
  int outputs_;             // of the head; 0: there is none
  bool is_turned_;
  bool is_tangent_;  // or else a rectifier
  size_t num_parameters_ = 0;
};

}  // namespace penstock
