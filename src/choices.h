// Actions chosen among A by one random number each, in one call.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace penstock {

struct Choices {
  size_t n, a;

  // From logits [n, a] and noise [n], uniform in [0, 1), draws action [n], with log_prob [n]. Sums of probabilities are
  // rounded to floats before they are compared: for noise below 1, noise times the last one stays below it, so that no
  // action of probability zero is drawn.
  void sample(const float* logits, const float* noise, int64_t* action, float* log_prob) const {
    for (size_t row = 0; row < n; ++row, logits += a) {
      const float largest = *std::max_element(logits, logits + a);
      double sum = 0.0;
      for (size_t i = 0; i < a; ++i) sum += std::exp(logits[i] - largest);
      const float bound = noise[row] * static_cast<float>(sum);
      size_t drawn = 0;
      double below = std::exp(logits[0] - largest);
      while (drawn + 1 < a && static_cast<float>(below) <= bound) below += std::exp(logits[++drawn] - largest);
      action[row] = static_cast<int64_t>(drawn);
      log_prob[row] = logits[drawn] - largest - static_cast<float>(std::log(sum));
    }
  }

  // From values [n, a] and noise [n], chooses the action [n] of the largest value (the first of several) or, for noise
  // below epsilon, the one that its position in [0, epsilon) selects. epsilons [n] has one per row; null: all equal.
  void choose(const float* q, float epsilon, const float* epsilons, const float* noise, int64_t* action) const {
    for (size_t row = 0; row < n; ++row, q += a) {
      if (epsilons != nullptr) epsilon = epsilons[row];
      if (noise[row] < epsilon) {
        const auto number = static_cast<int64_t>(noise[row] / epsilon * static_cast<float>(a));
        action[row] = std::min(number, static_cast<int64_t>(a) - 1);
      } else {
        action[row] = std::max_element(q, q + a) - q;
      }
    }
  }
};

}  // namespace penstock
