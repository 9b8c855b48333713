// Whether watching without sleeping would take a core from another thread.
#pragma once

#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "clock.h"

namespace penstock {

// Whether all threads of this machine that want to run, the caller among them, have a core. Asking the kernel costs one
// to two microseconds, so a no holds for a millisecond.
inline bool a_core_is_idle() {
  constexpr int64_t kBusyNs = 1'000'000;
  static std::atomic<int64_t> busy_until_ns{0};
  const int64_t now = now_ns();
  if (now < busy_until_ns.load(std::memory_order_relaxed)) return false;

  // "0.12 0.34 0.56 3/789 4321": 3 of 789 threads want to run.
  static const int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  char text[128];
  const ssize_t length = pread(file, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = '\0';
  int runnable = 0;
  cpu_set_t cores;
  const bool idle = std::sscanf(text, "%*s %*s %*s %d/", &runnable) == 1 &&
                    sched_getaffinity(0, sizeof cores, &cores) == 0 && runnable <= CPU_COUNT(&cores);
  if (!idle) busy_until_ns.store(now + kBusyNs, std::memory_order_relaxed);
  return idle;
}

}  // namespace penstock
