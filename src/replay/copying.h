// Copying the small values that most fields are: moves where memcpy would be a call.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock {

inline void copy_bytes(std::byte* to, const std::byte* from, size_t nbytes) {
  constexpr size_t kStep = 16;
  if (nbytes == 4) {
    std::memcpy(to, from, 4);
  } else if (nbytes == 8) {
    std::memcpy(to, from, 8);
  } else if (nbytes >= kStep && nbytes <= 256) {
    size_t done = 0;
    for (; done + kStep <= nbytes; done += kStep) std::memcpy(to + done, from + done, kStep);
    // The rest by a move that overlaps the one before.
    std::memcpy(to + nbytes - kStep, from + nbytes - kStep, kStep);
  } else {
    std::memcpy(to, from, nbytes);
  }
}

}  // namespace penstock
