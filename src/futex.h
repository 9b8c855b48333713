// Sleeping on a 32-bit word of shared memory until another process changes it.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace penstock {

static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

// A counter that processes sleep on. Lies in shared memory; all-zero bytes are a valid new event.
class Event {
 public:
  uint32_t count() const { return count_.load(); }

  // Counts one more and wakes up to `sleepers_to_wake`. A system call is made only if a process sleeps.
  void signal(int sleepers_to_wake) {
    count_.fetch_add(1);
    if (sleepers_.load() != 0) {
      syscall(SYS_futex, word(), FUTEX_WAKE, sleepers_to_wake, nullptr, nullptr, 0);
    }
  }

  void signal_all() { signal(INT_MAX); }

  // Whether a signal would be a system call now.
  bool has_sleepers() const { return sleepers_.load() != 0; }

  // Sleeps until the count differs from `seen`, a signal arrives or the time is over; may also return early.
  void sleep(uint32_t seen, int64_t timeout_ns) {
    const timespec timeout{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    // Announce first, compare second (in the kernel): with the order in signal(), no change is ever slept through.
    sleepers_.fetch_add(1);
    syscall(SYS_futex, word(), FUTEX_WAIT, seen, &timeout, nullptr, 0);
    sleepers_.fetch_sub(1);
  }

 private:
  uint32_t* word() { return reinterpret_cast<uint32_t*>(&count_); }

  std::atomic<uint32_t> count_;     // written by signallers
  std::atomic<uint32_t> sleepers_;  // written by sleepers; one killed asleep leaves it too high: wasted calls only
};

}  // namespace penstock
