// A few threads that help the caller with one piece of work at a time. They do not follow a fork: see per_process.h.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace penstock {

class Threads {
 public:
  explicit Threads(size_t count) : count_(count) {}
  ~Threads() { stop(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  size_t count() const { return count_; }

  // Calls work() on this thread and on all others at once, and returns when each has returned. What one of them throws
  // is thrown here.
  void run(const std::function<void()>& work) {
    if (count_ <= 1) return work();
    start();
    Crew& crew = *crew_;
    {
      std::lock_guard lock(crew.mutex);
      crew.work = &work;
      crew.unfinished = crew.threads.size();
      crew.error = nullptr;
      ++crew.round;
    }
    crew.begin.notify_all();
    std::exception_ptr error = crew.caught(work);
    // The others are nearly done too, and to be woken takes longer than that.
    for (int spins = 0; crew.unfinished.load(std::memory_order_acquire) != 0 && spins < kSpins; ++spins) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    std::unique_lock lock(crew.mutex);
    crew.done.wait(lock, [&] { return crew.unfinished == 0; });
    if (error == nullptr) error = crew.error;
    if (error != nullptr) std::rethrow_exception(error);
  }

 private:
  static constexpr int kSpins = 1000;  // some 30 us

  struct Crew {
    std::mutex mutex;
    std::condition_variable begin, done;
    const std::function<void()>* work = nullptr;
    size_t round = 0;
    std::atomic<size_t> unfinished{0};  // changed under the mutex
    std::exception_ptr error;
    bool over = false;
    std::vector<std::thread> threads;

    static std::exception_ptr caught(const std::function<void()>& work) {
      try {
        work();
        return nullptr;
      } catch (...) {
        return std::current_exception();
      }
    }

    void serve() {
      for (size_t seen = 0;;) {
        std::unique_lock lock(mutex);
        begin.wait(lock, [&] { return over || round != seen; });
        if (over) return;
        seen = round;
        const auto* given = work;
        lock.unlock();
        std::exception_ptr thrown = caught(*given);
        lock.lock();
        if (thrown != nullptr) error = std::move(thrown);
        if (--unfinished == 0) done.notify_one();
      }
    }
  };

  // If the system grants fewer threads than requested, those that exist do the work.
  void start() {
    if (crew_ != nullptr) return;
    crew_ = std::make_unique<Crew>();
    try {
      while (crew_->threads.size() + 1 < count_) crew_->threads.emplace_back([crew = crew_.get()] { crew->serve(); });
    } catch (const std::system_error&) {
      count_ = crew_->threads.size() + 1;
    }
  }

  void stop() {
    if (crew_ == nullptr) return;
    {
      std::lock_guard lock(crew_->mutex);
      crew_->over = true;
    }
    crew_->begin.notify_all();
    for (std::thread& thread : crew_->threads) thread.join();
  }

  size_t count_;
  std::unique_ptr<Crew> crew_;
};

}  // namespace penstock
