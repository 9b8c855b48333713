// From observations to the outputs of a head in one call, without gradient.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "activations.h"
#include "blas.h"
#include "layers.h"
#include "scratch.h"

namespace penstock {

// (x - mean) / std, within [-10, 10]; NaN stays NaN.
PENSTOCK_WIDE inline void normalize(const float* __restrict x, const float* __restrict mean,
                                    const float* __restrict std, float* __restrict to, size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n) {
    for (size_t i = 0; i < width; ++i) {
      const float value = (x[n * width + i] - mean[i]) / std[i];
      to[n * width + i] = value > 10.0f ? 10.0f : (value < -10.0f ? -10.0f : value);
    }
  }
}

// Memory of rows, 0 in those that begin an episode.
PENSTOCK_WIDE inline void reset(const float* __restrict state, const uint8_t* __restrict first, float* __restrict to,
                                size_t rows, size_t width) {
  for (size_t n = 0; n < rows; ++n)
    for (size_t i = 0; i < width; ++i) to[n * width + i] = first[n] ? 0.0f : state[n * width + i];
}

// A GRU's state after a row, from products with its input and with its state, both [rows, 3 size]: reset, update, new.
PENSTOCK_WIDE inline void gru_cells(const float* __restrict x, const float* __restrict h, const float* __restrict b_x,
                                    const float* __restrict b_h, const float* __restrict state,
                                    float* __restrict after, size_t rows, size_t size) {
  for (size_t n = 0; n < rows; ++n) {
    const float* __restrict of_x = x + 3 * n * size;
    const float* __restrict of_h = h + 3 * n * size;
    for (size_t i = 0; i < size; ++i) {
      const size_t j = size + i, k = 2 * size + i;
      const float resets = sigmoid(of_x[i] + b_x[i] + of_h[i] + b_h[i]);
      const float keeps = sigmoid(of_x[j] + b_x[j] + of_h[j] + b_h[j]);
      const float fresh = tangent(of_x[k] + b_x[k] + resets * (of_h[k] + b_h[k]));
      after[n * size + i] = fresh + keeps * (state[n * size + i] - fresh);
    }
  }
}

// An LSTM's state, hidden numbers and then cells; products are [rows, 4 size]: input, forget, cell, output.
PENSTOCK_WIDE inline void lstm_cells(const float* __restrict x, const float* __restrict h, const float* __restrict b_x,
                                     const float* __restrict b_h, const float* __restrict state,
                                     float* __restrict after, size_t rows, size_t size) {
  for (size_t n = 0; n < rows; ++n) {
    const float* __restrict of_x = x + 4 * n * size;
    const float* __restrict of_h = h + 4 * n * size;
    for (size_t i = 0; i < size; ++i) {
      const size_t j = size + i, k = 2 * size + i, l = 3 * size + i;
      const float admits = sigmoid(of_x[i] + b_x[i] + of_h[i] + b_h[i]);
      const float keeps = sigmoid(of_x[j] + b_x[j] + of_h[j] + b_h[j]);
      const float fresh = tangent(of_x[k] + b_x[k] + of_h[k] + b_h[k]);
      const float shows = sigmoid(of_x[l] + b_x[l] + of_h[l] + b_h[l]);
      const float cell = keeps * state[2 * n * size + size + i] + admits * fresh;
      after[2 * n * size + i] = shows * tangent(cell);
      after[2 * n * size + size + i] = cell;
    }
  }
}

// Normalisation (optional), hidden layers, a memory cell (optional) and a head. Parameters, in torch's layout: mean,
// deviation; weight and bias of each layer; both weights of the cell, then both biases; weight and bias of the head.
class Chain {
 public:
  enum Memory { kNone = 0, kGru = 3, kLstm = 4 };  // numbers of gates

  Chain(std::vector<int> sizes, int outputs, bool is_tangent, bool is_normalized, int gates, int memory_size)
      : width_(sizes.at(0)),
        features_(sizes.back()),
        outputs_(outputs),
        is_normalized_(is_normalized),
        gates_(static_cast<Memory>(gates)),
        memory_size_(memory_size),
        layers_(1, std::move(sizes), gates ? 0 : outputs, true, is_tangent) {
    if (gates != kNone && gates != kGru && gates != kLstm) throw std::invalid_argument("gates must be 0, 3 or 4");
  }

  size_t num_tensors() const { return layers_.num_tensors() + (is_normalized_ ? 2 : 0) + (gates_ ? 6 : 0); }

  // Throws unless the arrays have the sizes of n rows of floats.
  void require(size_t n, size_t x, size_t state, size_t out, size_t after) const {
    const size_t numbers_of_state = gates_ == kLstm ? 2 * memory_size_ : (gates_ ? memory_size_ : 0);
    const size_t state_nbytes = 4 * n * numbers_of_state;
    if (x != 4 * n * width_ || out != 4 * n * outputs_ || state != state_nbytes || after != state_nbytes) {
      throw std::invalid_argument("x, state, out and after must be float32 arrays with a row for each of first");
    }
  }

  // Without memory, first, state and after may be null.
  void run(const float* x, int n, std::span<const float* const> parameters, const uint8_t* first, const float* state,
           float* out, float* after, bool in_bf16, int threads) const {
    if (parameters.size() != num_tensors()) throw std::invalid_argument("there must be an address for each tensor");
    if (is_normalized_) {
      float* normalized = scratch<float, Use::kInput>(size_t(n) * width_);
      normalize(x, parameters[0], parameters[1], normalized, n, width_);
      x = normalized;
      parameters = parameters.subspan(2);
    }
    std::byte* kept = scratch<std::byte, Use::kKept>(layers_.kept_nbytes(n, 1, in_bf16));
    float* y = gates_ ? scratch<float, Use::kFeatures>(size_t(n) * features_) : out;
    layers_.forward(x, n, 1, parameters.first(layers_.num_tensors()), kept, y, in_bf16, threads);
    if (gates_) remember(y, n, parameters.subspan(layers_.num_tensors()), first, state, out, after);
  }

 private:
  enum class Use { kInput, kKept, kFeatures, kState, kFromInput, kFromState, kHidden };

  void remember(const float* features, int n, std::span<const float* const> parameters, const uint8_t* first,
                const float* state, float* out, float* after) const {
    const int size = memory_size_, columns = gates_ * size;
    const bool is_lstm = gates_ == kLstm;
    const size_t width = is_lstm ? 2 * size : size;
    float* before = scratch<float, Use::kState>(n * width);
    float* of_x = scratch<float, Use::kFromInput>(size_t(n) * columns);
    float* of_h = scratch<float, Use::kFromState>(size_t(n) * columns);
    reset(state, first, before, n, width);
    const float* hidden = before;
    if (is_lstm) hidden = copy_hidden(before, n);
    blas.product(false, true, n, columns, features_, features, parameters[0], 0.0f, of_x);
    blas.product(false, true, n, columns, size, hidden, parameters[1], 0.0f, of_h);
    (is_lstm ? lstm_cells : gru_cells)(of_x, of_h, parameters[2], parameters[3], before, after, n, size);
    hidden = is_lstm ? copy_hidden(after, n) : after;
    blas.product(false, true, n, outputs_, size, hidden, parameters[4], 0.0f, out);
    add_bias(out, parameters[5], n, outputs_);
  }

  // Hidden numbers of an LSTM's states, without its cells.
  const float* copy_hidden(const float* state, int n) const {
    const size_t size = memory_size_;
    float* hidden = scratch<float, Use::kHidden>(n * size);
    for (int row = 0; row < n; ++row) std::copy_n(state + 2 * row * size, size, hidden + row * size);
    return hidden;
  }

  int width_, features_, outputs_;
  bool is_normalized_;
  Memory gates_;
  int memory_size_;
  Layers layers_;
};

}  // namespace penstock
