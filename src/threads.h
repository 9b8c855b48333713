// Work shared out among torch's threads. The address of their pool is set when the process starts.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

namespace penstock {

// Runs a function on a number of threads at once, the caller's included, and returns when all are done: GOMP_parallel.
using RunByAll = void (*)(void (*)(void*), void*, unsigned, unsigned);

inline RunByAll run_by_all = nullptr;  // without one the caller does everything

// Runs task(0) to task(count - 1), each once, on at most `threads` threads.
template <class Task>
void share_out(int count, int threads, Task task) {
  if (std::min(count, threads) < 2 || !run_by_all) {
    for (int i = 0; i < count; ++i) task(i);
    return;
  }
  struct Work {
    Task* task;
    int count;
    std::atomic<int> next{0};
    std::mutex mutex;
    std::exception_ptr problem;

    void take_part() noexcept {
      for (int i; (i = next.fetch_add(1)) < count;) {
        try {
          (*task)(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          problem = std::current_exception();
        }
      }
    }
  } work{.task = &task, .count = count, .next = 0, .mutex = {}, .problem = {}};
  run_by_all([](void* shared) { static_cast<Work*>(shared)->take_part(); }, &work,
             static_cast<unsigned>(std::min(count, threads)), 0);
  if (work.problem) std::rethrow_exception(work.problem);
}

}  // namespace penstock
