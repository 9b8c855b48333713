// Objects that each process has for itself: a forked child does not take over its parent's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <pthread.h>
#include <utility>

namespace penstock {

// Counts the forks that led to this process, so that an object notices at the cost of a load that it was inherited.
inline uint64_t fork_generation() {
  static std::atomic<uint64_t> forks{0};
  static const bool registered = [] {
    return pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); }) == 0;
  }();
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

// Locks and scratch space of which each process has its own. At the moment of a fork another thread may have been in the
// middle of them, and that thread is not in the child: there the lock would stay locked, and the scratch space half
// changed. So the child makes a new one when it first needs it, and never touches the copy of its parent's, which, half
// changed, cannot even be destroyed.
//
// Used with the GIL held, so that one thread at a time makes it.
template <class Value>
class PerProcess {
 public:
  explicit PerProcess(std::unique_ptr<Value> value) : value_(std::move(value)) {}
  ~PerProcess() {
    if (forks_ != fork_generation()) (void)value_.release();
  }
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;

  // This process's own; `renewed(inherited)` makes it in a child. Its reads of the inherited one may be torn.
  template <class Make>
  Value& get(Make renewed) {
    if (forks_ != fork_generation()) {
      std::unique_ptr<Value> own = renewed(*value_);
      (void)value_.release();
      value_ = std::move(own);
      forks_ = fork_generation();
    }
    return *value_;
  }

 private:
  std::unique_ptr<Value> value_;
  uint64_t forks_ = fork_generation();
};

}  // namespace penstock
