// What the binding files share: one function per file, and blocking calls that stay interruptible.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <mutex>

#include "clock.h"

namespace penstock {

namespace nb = nanobind;

void bind_arena(nb::module_& module);
void bind_signals(nb::module_& module);
void bind_state(nb::module_& module);
void bind_node_slots(nb::module_& module);
void bind_rows(nb::module_& module);
void bind_networks(nb::module_& module);
void bind_replay(nb::module_& module);
void bind_sum_tree(nb::module_& module);
void bind_rate_limiter(nb::module_& module);

// Copies up to this size keep the GIL: they take about a microsecond, and giving it up and taking it back costs a
// tenth of that alone, but up to a switch interval (5 ms) when another thread wants it.
inline constexpr size_t kCopyWithGil = 16 * 1024;

// Whether this thread works without the GIL; a wait within such work must not release it a second time.
inline thread_local bool without_gil = false;

// Runs work() without the GIL if it copies enough bytes to be worth it.
template <class Work>
auto copying(size_t nbytes, Work work) {
  if (nbytes <= kCopyWithGil) return work();
  struct Without {
    Without() { without_gil = true; }
    ~Without() { without_gil = false; }
  };
  nb::gil_scoped_release released;
  const Without without;
  return work();
}

// Locks a mutex whose holder may wait for the GIL, or for another process: waiting for it releases the GIL, and serves
// Ctrl-C.
inline std::unique_lock<std::timed_mutex> one_at_a_time(std::timed_mutex& mutex) {
  std::unique_lock lock(mutex, std::try_to_lock);
  while (!lock) {
    {
      nb::gil_scoped_release released;
      if (lock.try_lock_for(std::chrono::nanoseconds(kLongestSleepNs))) break;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return lock;
}

// Tries, sleeps without the GIL, tries again; true once attempt() succeeds, false when the time is over.
// sleep(slice_ns) returns within the slice, so Ctrl-C is served at once and a lost wake-up is noticed.
template <class Attempt, class Sleep>
bool wait_until(const Deadline& deadline, Attempt attempt, Sleep sleep) {
  while (!attempt()) {
    if (deadline.passed()) return false;
    {
      nb::gil_scoped_release released;
      sleep(deadline.slice_ns());
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return true;
}

}  // namespace penstock
