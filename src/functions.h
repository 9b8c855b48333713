// Functions of single numbers that compilers turn into loops over vectors.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 12 && !defined(__clang__)
#define PENSTOCK_WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PENSTOCK_WIDE
#endif
#define PENSTOCK_INLINE inline __attribute__((always_inline))

namespace penstock {

using Bf16 = uint16_t;  // the upper half of a float

// The nearest bfloat16, ties to even; NaN stays NaN.
PENSTOCK_INLINE Bf16 nearest_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<Bf16>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

PENSTOCK_INLINE float as_float(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

// e^x for -80 < x < 80, within 2e-7 of it (the polynomial is Cephes').
PENSTOCK_INLINE float power_of_e(float x) {
  constexpr float kMagic = 12582912.0f;  // adding it rounds to a whole number
  const float n = x * 1.44269504f + kMagic - kMagic;
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return (p * r * r + r + 1.0f) * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

// The hyperbolic tangent, within 2e-7 of it; NaN stays NaN.
PENSTOCK_INLINE float tangent(float x) {
  const float size = std::fabs(x) > 10.0f ? 10.0f : std::fabs(x);
  const float t = power_of_e(-2.0f * size);
  return std::copysign((1.0f - t) / (1.0f + t), x);
}

// The cosine, within 2e-7 of it for |x| < 1e4, by the distance to the nearest multiple of pi and the sign there.
PENSTOCK_INLINE float cosine(float x) {
  constexpr float kMagic = 12582912.0f;
  const float n = x * 0.318309886f + kMagic - kMagic;
  const float r = ((x - n * 3.140625f) - n * 9.67502593994140625e-4f) - n * 1.509957990978376432e-7f;
  const float square = r * r;
  float p = 2.0876757e-9f;
  p = p * square - 2.7557319e-7f;
  p = p * square + 2.4801587e-5f;
  p = p * square - 1.3888889e-3f;
  p = p * square + 4.1666667e-2f;
  p = p * square - 0.5f;
  const float size = p * square + 1.0f;
  return static_cast<int32_t>(n) & 1 ? -size : size;
}

// 1 / (1 + e^-x), within 1e-7 of it.
PENSTOCK_INLINE float sigmoid(float x) {
  const float size = x > 80.0f ? 80.0f : (x < -80.0f ? -80.0f : x);
  return 1.0f / (1.0f + power_of_e(-size));
}

// log(1 + y) for 0 <= y <= 1, within 1e-7 of it: the series of 2 artanh(y / (2 + y)).
PENSTOCK_INLINE float log_one_plus(float y) {
  const float z = y / (2.0f + y), square = z * z;
  float p = 1.0f / 13.0f;
  p = p * square + 1.0f / 11.0f;
  p = p * square + 1.0f / 9.0f;
  p = p * square + 1.0f / 7.0f;
  p = p * square + 1.0f / 5.0f;
  p = p * square + 1.0f / 3.0f;
  return 2.0f * z * (p * square + 1.0f);
}

}  // namespace penstock
