// Buffers of a thread that keep their memory from call to call.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace penstock {

inline constexpr size_t kAlign = 64;

// A buffer for each `Use`, of `count` numbers or more. Its alignment is constant, so that it does not change results:
// kernels may add in another order if memory is aligned differently.
template <class Number, auto Use>
Number* scratch(size_t count) {
  struct Buffer {
    Number* begin = nullptr;
    size_t count = 0;
    ~Buffer() { std::free(begin); }
  };
  thread_local Buffer buffer;
  if (buffer.count < count) {
    std::free(buffer.begin);
    buffer.begin = nullptr;
    buffer.count = 0;
    const size_t nbytes = (count * sizeof(Number) + kAlign - 1) / kAlign * kAlign;
    buffer.begin = static_cast<Number*>(std::aligned_alloc(kAlign, nbytes));
    if (!buffer.begin) throw std::bad_alloc();
    buffer.count = count;
  }
  return buffer.begin;
}

}  // namespace penstock
