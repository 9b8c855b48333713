// Copying the small values that most fields are: moves where memcpy would be a call.
#pragma once

#include <cstddef>

#include "../shared_copy.h"

namespace penstock {

inline void copy_bytes(std::byte* to, const std::byte* from, size_t nbytes) {
  constexpr size_t kStep = 16;
  if (nbytes == 4) {
    copy_shared(to, from, 4);
  } else if (nbytes == 8) {
    copy_shared(to, from, 8);
  } else if (nbytes >= kStep && nbytes <= 256) {
    size_t done = 0;
    for (; done + kStep <= nbytes; done += kStep) copy_shared(to + done, from + done, kStep);
    // The rest is copied by a move that overlaps the one before.
    copy_shared(to + nbytes - kStep, from + nbytes - kStep, kStep);
  } else {
    copy_shared(to, from, nbytes);
  }
}

// Copies a large value and prefetches the next one (or nullptr): one core alone cannot keep enough cache lines in
// flight, and the processor's own prefetching ends with every page.
inline void copy_large(std::byte* to, const std::byte* from, const std::byte* next, size_t nbytes) {
  constexpr size_t kLineNbytes = 64;
  if (next == nullptr) {
    copy_shared(to, from, nbytes);
    return;
  }
  size_t done = 0;
  for (; done + kLineNbytes <= nbytes; done += kLineNbytes) {
    __builtin_prefetch(next + done, 0, 2);
    copy_shared(to + done, from + done, kLineNbytes);
  }
  copy_shared(to + done, from + done, nbytes - done);
}

}  // namespace penstock
