// Actions drawn from a normal distribution that is squashed by tanh, with their log-densities, in one call each way.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "functions.h"

namespace penstock {

// Outputs of a network for the actions of one row: d means, and d numbers x, each a standard deviation's logarithm
// centre + reach tanh(x).
struct SquashedNormal {
  size_t d;
  float centre, reach;

  // Computes actions [n, d] and log_prob [n] from outputs [n, 2 d] and noise [n, d].
  void sample(const float* outputs, size_t n, const float* noise, float* action, float* log_prob) const {
    const size_t size = n * d;
    std::vector<float> mean(size), x(size), terms(size);
    for (size_t row = 0; row < n; ++row) {
      for (size_t j = 0; j < d; ++j) {
        mean[row * d + j] = outputs[2 * row * d + j];
        x[row * d + j] = outputs[(2 * row + 1) * d + j];
      }
    }
    draw(mean.data(), x.data(), noise, size, centre, reach, action, terms.data());
    const float constant = 0.5f * std::log(2.0f * std::numbers::pi_v<float>) + 2.0f * std::numbers::ln2_v<float>;
    for (size_t row = 0; row < n; ++row) {
      float sum = 0.0f;
      for (size_t j = 0; j < d; ++j) sum += terms[row * d + j];
      log_prob[row] = sum - constant * static_cast<float>(d);
    }
  }

  // Computes the gradient of the outputs from the results of sample() and their gradients.
  void gradient(const float* outputs, size_t n, const float* noise, const float* action, const float* d_action,
                const float* d_log_prob, float* d_outputs) const {
    const size_t size = n * d;
    std::vector<float> x(size), of_density(size), d_mean(size), d_x(size);
    for (size_t row = 0; row < n; ++row) {
      for (size_t j = 0; j < d; ++j) {
        x[row * d + j] = outputs[(2 * row + 1) * d + j];
        of_density[row * d + j] = d_log_prob[row];
      }
    }
    differentiate(x.data(), noise, action, d_action, of_density.data(), size, centre, reach, d_mean.data(), d_x.data());
    for (size_t row = 0; row < n; ++row) {
      for (size_t j = 0; j < d; ++j) {
        d_outputs[2 * row * d + j] = d_mean[row * d + j];
        d_outputs[(2 * row + 1) * d + j] = d_x[row * d + j];
      }
    }
  }

 private:
  // With u = mean + std noise, log(1 - tanh(u)^2) = 2 (log 2 - |u| - log(1 + e^(-2 |u|))), exact where tanh is 1.
  PENSTOCK_WIDE static void draw(const float* __restrict mean, const float* __restrict x, const float* __restrict noise,
                                 size_t size, float centre, float reach, float* __restrict action,
                                 float* __restrict terms) {
    for (size_t i = 0; i < size; ++i) {
      const float log_std = centre + reach * tangent(x[i]);
      const float u = mean[i] + power_of_e(log_std) * noise[i];
      const float far = std::fabs(u);
      const float e = power_of_e(-2.0f * (far > 40.0f ? 40.0f : far));
      action[i] = std::copysign((1.0f - e) / (1.0f + e), u);
      terms[i] = 2.0f * (far + log_one_plus(e)) - log_std - 0.5f * noise[i] * noise[i];
    }
  }

  PENSTOCK_WIDE static void differentiate(const float* __restrict x, const float* __restrict noise,
                                          const float* __restrict action, const float* __restrict d_action,
                                          const float* __restrict of_density, size_t size, float centre, float reach,
                                          float* __restrict d_mean, float* __restrict d_x) {
    for (size_t i = 0; i < size; ++i) {
      const float t = tangent(x[i]), a = action[i];
      const float d_u = d_action[i] * (1.0f - a * a) + 2.0f * of_density[i] * a;
      d_mean[i] = d_u;
      d_x[i] = (d_u * power_of_e(centre + reach * t) * noise[i] - of_density[i]) * reach * (1.0f - t * t);
    }
  }
};

}  // namespace penstock
