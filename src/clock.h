// Deadlines of blocking calls, cut into slices short enough to notice a signal or a dead neighbour.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <time.h>

namespace penstock {

// No wait lasts longer than this without looking again: a wake-up lost with a killed process costs at most this much.
inline constexpr int64_t kLongestSleepNs = 100'000'000;

inline int64_t now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

class Deadline {
 public:
  // No seconds: for ever. Zero, negative or NaN: already over.
  explicit Deadline(std::optional<double> seconds) {
    if (!seconds || *seconds > kForEverSeconds) return;
    immediate_ = !(*seconds > 0);
    if (!immediate_) at_ns_ = now_ns() + static_cast<int64_t>(*seconds * 1e9);
  }

  bool passed() const { return immediate_ || (at_ns_ != kNever && now_ns() >= at_ns_); }

  // How long to sleep before looking again; positive, so that a sleep never means "for ever".
  int64_t slice_ns() const {
    if (at_ns_ == kNever) return kLongestSleepNs;
    return std::clamp<int64_t>(at_ns_ - now_ns(), 1, kLongestSleepNs);
  }

 private:
  static constexpr double kForEverSeconds = 1e9;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t at_ns_ = kNever;
  bool immediate_ = false;
};

}  // namespace penstock
