// The quantile Huber loss of quantiles and samples, and its gradient, in one pass over all pairs.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "functions.h"
#include "threads.h"

namespace penstock {

// Rows of quantiles theta at fractions tau, and of samples y of the target.
struct QuantileHuber {
  size_t rows, quantiles, samples;

  // Of each row the sum over quantiles of the mean over samples of |tau - 1{y < theta}| Huber(y - theta), and its
  // derivative by each theta. All rows have the same fractions, or each its own.
  void compute(const float* theta, const float* tau, bool has_tau_by_row, const float* y, float* loss, float* slope,
               int threads) const {
    const size_t parts = rows * quantiles * samples < kShared ? 1 : std::min<size_t>(rows, kParts);
    share_out(static_cast<int>(parts), threads, [&](int part) {
      for (size_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        float sum = 0.0f;
        for (size_t first = 0; first < quantiles; first += kBlock) {
          const size_t count = std::min(kBlock, quantiles - first);
          sum += block(theta + row * quantiles + first, tau + (has_tau_by_row ? row * quantiles : 0) + first,
                       y + row * samples, count, samples, slope + row * quantiles + first);
        }
        loss[row] = sum;
      }
    });
  }

 private:
  static constexpr size_t kBlock = 32;        // quantiles
  static constexpr size_t kShared = 1 << 14;  // least number of pairs for which threads share the rows
  static constexpr size_t kParts = 32;

  PENSTOCK_WIDE static float block(const float* __restrict theta, const float* __restrict tau, const float* __restrict y,
                                   size_t count, size_t samples, float* __restrict slope) {
    std::array<float, kBlock> one{}, above{}, loss{}, derivative{};
    for (size_t i = 0; i < count; ++i) {
      one[i] = theta[i];
      above[i] = tau[i];
    }
    for (size_t j = 0; j < samples; ++j) {
      const float sample = y[j];
      for (size_t i = 0; i < kBlock; ++i) {
        const float error = sample - one[i];
        const float low = error < -1.0f ? -1.0f : error, near = low > 1.0f ? 1.0f : low;
        const float weighted = (error < 0.0f ? 1.0f - above[i] : above[i]) * near;
        loss[i] += weighted * (error - 0.5f * near);
        derivative[i] -= weighted;
      }
    }
    const float share = 1.0f / static_cast<float>(samples);
    float sum = 0.0f;
    for (size_t i = 0; i < count; ++i) {
      sum += loss[i];
      slope[i] = derivative[i] * share;
    }
    return sum * share;
  }
};

}  // namespace penstock
