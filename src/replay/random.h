// The generator that sampling draws from: xoshiro256++ (Blackman and Vigna 2019), quick and of known quality.
#pragma once

#include <array>
#include <cstdint>

namespace penstock {

class Random {
 public:
  using State = std::array<uint64_t, 4>;

  explicit Random(uint64_t seed) {
    // Spread over the state by SplitMix64, as the authors advise.
    for (uint64_t& word : state_) {
      seed += 0x9E3779B97F4A7C15;
      uint64_t mixed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
      word = mixed ^ (mixed >> 31);
    }
  }

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

  uint64_t next() {
    const uint64_t result = rotated(state_[0] + state_[3], 23) + state_[0];
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotated(state_[3], 45);
    return result;
  }

  // Uniform in [0, 1), of 53 bits.
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  // Uniform in [0, end); off by less than end / 2^64.
  uint64_t below(uint64_t end) {
    return static_cast<uint64_t>((static_cast<Wide>(next()) * end) >> 64);
  }

 private:
  __extension__ using Wide = unsigned __int128;

  static uint64_t rotated(uint64_t word, int bits) { return (word << bits) | (word >> (64 - bits)); }

  State state_;
};

}  // namespace penstock
