// A mutex in shared memory that outlives the death of the process holding it.
#pragma once

#include <cerrno>
#include <pthread.h>
#include <system_error>
#include <time.h>

#include "clock.h"
#include "relax.h"

namespace penstock {

// Makes a wait that may be long, `wait(mutex)`, which returns whether it has the mutex. The Python face releases the
// GIL meanwhile, and throws the error of a signal handler if the wait was in vain: Ctrl-C works although the holder is
// stopped.
inline bool (*around_a_wait)(bool (*wait)(void*), void* mutex) = [](bool (*wait)(void*), void* mutex) {
  return wait(mutex);
};

// The data it guards must be consistent at every instant, because the holder may be killed at any: prepare first, then
// commit with a single store. Otherwise the next holder after a death must repair it.
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

  // Returns whether the last holder died while it held the mutex.
  bool lock() {
    int error = pthread_mutex_trylock(&mutex_);
    // Mostly it is held for some dozens of nanoseconds: a sleep costs a hundred times that.
    for (int tries = 0; error == EBUSY && tries < kTries; ++tries) {
      relax();
      error = pthread_mutex_trylock(&mutex_);
    }
    while (error == EBUSY || error == ETIMEDOUT) {
      Wait wait{&mutex_, 0};
      around_a_wait(
          [](void* waiting) {
            auto& [mutex, result] = *static_cast<Wait*>(waiting);
            // Timed, so that a wake-up that died with the process it was meant for is not waited for.
            result = lock_within(mutex, kLongestSleepNs);
            return result != ETIMEDOUT;
          },
          &wait);
      error = wait.result;
    }
    const bool orphaned = error == EOWNERDEAD;
    if (orphaned) error = pthread_mutex_consistent(&mutex_);
    if (error != 0) throw std::system_error(error, std::generic_category(), "locking a shared mutex");
    return orphaned;
  }

  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  static constexpr int kTries = 100;  // some microseconds

  static int lock_within(pthread_mutex_t* mutex, int64_t timeout_ns) {
#ifdef __SANITIZE_THREAD__  // which does not model pthread_mutex_clocklock, and would take the mutex for unlocked
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t until_ns = now.tv_sec * kSecondNs + now.tv_nsec + timeout_ns;
    const timespec until{until_ns / kSecondNs, until_ns % kSecondNs};
    return pthread_mutex_timedlock(mutex, &until);
#else
    const int64_t until_ns = now_ns() + timeout_ns;
    const timespec until{until_ns / kSecondNs, until_ns % kSecondNs};
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
#endif
  }

  static constexpr int64_t kSecondNs = 1'000'000'000;

  struct Wait {
    pthread_mutex_t* mutex;
    int result;
  };

  pthread_mutex_t mutex_;  // written by the C library on behalf of the holder
};

}  // namespace penstock
