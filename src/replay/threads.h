// A few threads that help the caller with one piece of work at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "writers.h"

namespace penstock {

class Threads {
 public:
  explicit Threads(size_t count) : count_(count) {}
  ~Threads() { stop(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  size_t count() const { return count_; }

  // Calls work(part) for part = 0 .. count - 1, part 0 on this thread, and returns when all are done.
  void run(const std::function<void(size_t)>& work) {
    if (count_ <= 1) return work(0);
    start();
    Crew& crew = *crew_;
    {
      std::lock_guard lock(crew.mutex);
      crew.work = &work;
      crew.unfinished = count_ - 1;
      ++crew.round;
    }
    crew.begin.notify_all();
    work(0);
    // The others are nearly done too, and to be woken takes longer than that.
    for (int spins = 0; crew.unfinished.load(std::memory_order_acquire) != 0 && spins < kSpins; ++spins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::unique_lock lock(crew.mutex);
    crew.done.wait(lock, [&] { return crew.unfinished == 0; });
  }

 private:
  static constexpr int kSpins = 1000;  // some 30 us

  struct Crew {
    std::mutex mutex;
    std::condition_variable begin, done;
    const std::function<void(size_t)>* work = nullptr;
    size_t round = 0;
    std::atomic<size_t> unfinished{0};  // changed under the mutex
    bool over = false;
    std::vector<std::thread> threads;
  };

  // Threads do not follow a fork: a child starts its own, and leaves the copies of its parent's alone.
  void start() {
    if (crew_ != nullptr && forks_ == fork_generation()) return;
    if (crew_ != nullptr) (void)crew_.release();
    forks_ = fork_generation();
    crew_ = std::make_unique<Crew>();
    for (size_t part = 1; part < count_; ++part) {
      crew_->threads.emplace_back([crew = crew_.get(), part] {
        for (size_t seen = 0;;) {
          std::unique_lock lock(crew->mutex);
          crew->begin.wait(lock, [&] { return crew->over || crew->round != seen; });
          if (crew->over) return;
          seen = crew->round;
          const auto* work = crew->work;
          lock.unlock();
          (*work)(part);
          lock.lock();
          if (--crew->unfinished == 0) crew->done.notify_one();
        }
      });
    }
  }

  void stop() {
    if (crew_ == nullptr) return;
    if (forks_ != fork_generation()) {
      (void)crew_.release();
      return;
    }
    {
      std::lock_guard lock(crew_->mutex);
      crew_->over = true;
    }
    crew_->begin.notify_all();
    for (std::thread& thread : crew_->threads) thread.join();
  }

  size_t count_;
  uint64_t forks_ = 0;
  std::unique_ptr<Crew> crew_;
};

}  // namespace penstock
