// A mutex in shared memory that outlives the death of the process holding it.
#pragma once

#include <cerrno>
#include <pthread.h>
#include <system_error>
#include <time.h>

#include "clock.h"

namespace penstock {

// Called from time to time by whoever waits for a mutex; may throw, and then the wait is over. The Python face lets it
// throw what a signal handler raised: the holder may be stopped, and Ctrl-C shall work all the same.
inline void (*while_waiting_for_a_mutex)() = nullptr;

// The data it guards must be consistent at every instant, because the holder may be killed at any: prepare first, then
// commit with a single store. Or whoever locks after a death must put it right.
class RobustMutex {
 public:
  void initialise() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    const int error = pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
    if (error != 0) throw std::system_error(error, std::generic_category(), "pthread_mutex_init");
  }

  // Whether the last holder died with it.
  bool lock() {
    int error = pthread_mutex_trylock(&mutex_);
    while (error == EBUSY || error == ETIMEDOUT) {
      // Timed, so that a wake-up that died with the process it was meant for is not waited for.
      const int64_t until_ns = now_ns() + kLongestSleepNs;
      const timespec until{until_ns / 1'000'000'000, until_ns % 1'000'000'000};
      error = pthread_mutex_clocklock(&mutex_, CLOCK_MONOTONIC, &until);
      if (error == ETIMEDOUT && while_waiting_for_a_mutex != nullptr) while_waiting_for_a_mutex();
    }
    const bool orphaned = error == EOWNERDEAD;
    if (orphaned) error = pthread_mutex_consistent(&mutex_);
    if (error != 0) throw std::system_error(error, std::generic_category(), "locking a shared mutex");
    return orphaned;
  }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;  // written by the C library on behalf of whoever locks
};

}  // namespace penstock
