// Copies from and to memory that another process may be changing at the same time.
#pragma once

#include <cstddef>
#include <cstring>

namespace penstock {

// A reader under a sequence lock (WeightsBlock, RowStore) copies first, and keeps the copy only if the lock's word is
// the same afterwards. So bytes may change while they are copied. C++ calls that a data race unless each access is
// atomic; relaxed atomic moves of 8 bytes copy at a third of memcpy's rate (1.4 GB/s against 4 to 8 of 256 bytes to 1 MiB,
// on two cores), so the copy is a plain one. It relies on this:
// - Only bytes are copied: no pointer, length or index is taken from them before the word has been compared, and what is
//   read as a number is only compared, or limited to what is legal. A torn value makes a copy that is thrown away.
// - The compiler cannot move the copy out: an acquire load of the word stands before, and an acquire fence and the second
//   load after it; a release fence stands between the writer's change of the word and its copy. It cannot read a byte a
//   second time either, because the kept copy is in memory of the reader's own.
// - On 64-bit processors that run Linux, a copy of changing bytes is some mixture of old and new bytes, and no worse.
// Under the thread sanitizer, bytes are copied by relaxed atomic accesses, so that it finds every other race.
inline void copy_shared(void* to, const void* from, size_t nbytes) {
#ifdef __SANITIZE_THREAD__
  auto* into = static_cast<unsigned char*>(to);
  const auto* bytes = static_cast<const unsigned char*>(from);
  for (size_t i = 0; i < nbytes; ++i) {
    __atomic_store_n(into + i, __atomic_load_n(bytes + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  }
#else
  std::memcpy(to, from, nbytes);
#endif
}

// Fills memory that others may be copying from with one byte.
inline void fill_shared(void* to, int byte, size_t nbytes) {
#ifdef __SANITIZE_THREAD__
  auto* into = static_cast<unsigned char*>(to);
  for (size_t i = 0; i < nbytes; ++i) __atomic_store_n(into + i, static_cast<unsigned char>(byte), __ATOMIC_RELAXED);
#else
  std::memset(to, byte, nbytes);
#endif
}

}  // namespace penstock
