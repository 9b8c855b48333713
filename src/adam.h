// Adam (arXiv:1412.6980), one pass over parameters, gradient and moments.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "functions.h"
#include "threads.h"

namespace penstock {

struct Adam {
  double beta1, beta2, learning_rate;
  float eps;

  // Takes a step on n numbers, and increases their count of steps t.
  void step(float* parameters, const float* gradient, float* mean, float* square, float* t, size_t n,
            int threads) const {
    *t += 1.0f;
    const auto step_size = static_cast<float>(learning_rate / (1.0 - std::pow(beta1, *t)));
    const auto root_of_correction = static_cast<float>(std::sqrt(1.0 - std::pow(beta2, *t)));
    const size_t parts = (n + kPart - 1) / kPart;
    share_out(static_cast<int>(parts), threads, [&](int part) {
      const size_t begin = static_cast<size_t>(part) * kPart;
      move(parameters + begin, gradient + begin, mean + begin, square + begin, std::min(kPart, n - begin),
           static_cast<float>(1.0 - beta1), static_cast<float>(beta2), static_cast<float>(1.0 - beta2), step_size,
           1.0f / root_of_correction, eps);
    });
  }

 private:
  static constexpr size_t kPart = 1 << 14;  // numbers for one thread at a time

  PENSTOCK_WIDE static void move(float* __restrict parameters, const float* __restrict gradient, float* __restrict mean,
                                 float* __restrict square, size_t n, float share1, float kept2, float share2, float size,
                                 float inverse_root, float epsilon) {
    for (size_t i = 0; i < n; ++i) {
      const float g = gradient[i];
      mean[i] += share1 * (g - mean[i]);
      square[i] = kept2 * square[i] + share2 * g * g;
      parameters[i] -= size * mean[i] / (std::sqrt(square[i]) * inverse_root + epsilon);
    }
  }
};

}  // namespace penstock
