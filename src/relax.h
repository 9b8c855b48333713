// What to do between two looks at a word that another core is about to write.
#pragma once

namespace penstock {

// Some dozens of nanoseconds in which the other hardware thread of this core has it for itself.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

}  // namespace penstock
