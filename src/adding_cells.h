// Cells that only add, over time, and back: c_t = m_t + sigmoid(W m_t + b) z_t with m_t = k_t c_t-1.
#pragma once

#include <cstddef>
#include <vector>

#include "functions.h"

namespace penstock {

// Arrays are [steps, lanes, cells], or [steps, lanes]; W is [cells out, cells in].
struct AddingCells {
  size_t steps, lanes, size;

  // What a step needs on the way back is kept: gates, and the cells carried over.
  PENSTOCK_WIDE void forward(const float* z, const float* kept, const float* memory, const float* weight,
                             const float* bias, float* gates, float* carried, float* cells) const {
    std::vector<float> turned(size * size);
    for (size_t o = 0; o < size; ++o)
      for (size_t i = 0; i < size; ++i) turned[i * size + o] = weight[o * size + i];
    const float* before = memory;
    for (size_t row = 0; row < steps * lanes; ++row) {
      if (row == lanes) before = cells;
      float* __restrict m = carried + row * size;
      float* __restrict gate = gates + row * size;
      for (size_t i = 0; i < size; ++i) {
        m[i] = kept[row] * before[i];
        gate[i] = bias[i];
      }
      for (size_t i = 0; i < size; ++i) {
        const float* __restrict column = turned.data() + i * size;
        const float from = m[i];
        for (size_t o = 0; o < size; ++o) gate[o] += from * column[o];
      }
      float* __restrict c = cells + row * size;
      const float* __restrict in = z + row * size;
      for (size_t o = 0; o < size; ++o) {
        gate[o] = sigmoid(gate[o]);
        c[o] = m[o] + gate[o] * in[o];
      }
      before += size;
    }
  }

  // Gradients of z, and of the inputs of the gates; none is passed back beyond the first step.
  PENSTOCK_WIDE void backward(const float* d_cells, const float* z, const float* kept, const float* gates,
                              const float* weight, float* d_z, float* into_gates) const {
    std::vector<float> carry(lanes * size);
    for (size_t row = steps * lanes; row-- > 0;) {
      float* __restrict grad = carry.data() + row % lanes * size;
      float* __restrict into = into_gates + row * size;
      const float* __restrict gate = gates + row * size;
      for (size_t o = 0; o < size; ++o) {
        grad[o] += d_cells[row * size + o];
        d_z[row * size + o] = grad[o] * gate[o];
        into[o] = grad[o] * z[row * size + o] * gate[o] * (1.0f - gate[o]);
      }
      for (size_t o = 0; o < size; ++o) {
        const float* __restrict of = weight + o * size;
        const float from = into[o];
        for (size_t i = 0; i < size; ++i) grad[i] += from * of[i];
      }
      for (size_t i = 0; i < size; ++i) grad[i] *= kept[row];
    }
  }
};

}  // namespace penstock
