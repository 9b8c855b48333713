// A bounded queue of 64-bit integers between processes, any of which may be killed at any instant.
#pragma once

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>

#include "futex.h"
#include "region.h"
#include "robust_mutex.h"

namespace penstock {

// Items lie between head and tail, two counters that only grow. Under the mutex a producer writes its items and then
// commits them with one store to tail; a consumer copies items out and then commits with one store to head. So a
// process killed inside has either done all of its push (pop) or nothing, and what it popped is all that dies with it.
class Ring {
 public:
  static constexpr const char* kName = "Ring";

  static size_t nbytes(size_t capacity) {
    if (capacity == 0 || capacity > kMaxCapacity) {
      throw std::invalid_argument("Ring: capacity must be from 1 to " + std::to_string(kMaxCapacity) + ", found " +
                                  std::to_string(capacity));
    }
    return whole_lines(sizeof(Header) + capacity * sizeof(int64_t));
  }

  static Ring create(const Arena& arena, size_t offset, size_t capacity) {
    auto* header = new (region(arena, offset, nbytes(capacity), kName)) Header{};
    header->capacity = capacity;
    header->mutex.initialise();
    header->magic.store(Header::kMagic, std::memory_order_release);
    return Ring(header);
  }

  static Ring attach(const Arena& arena, size_t offset) {
    auto* header = existing<Header>(arena, offset, kName);
    region(arena, offset, nbytes(header->capacity), kName);
    return Ring(header);
  }

  size_t capacity() const { return header_->capacity; }
  bool closed() const { return header_->closed.load(); }
  // Head is read first: it can only have grown towards the tail read after it, so the difference is never negative.
  size_t size() const {
    const uint64_t head = header_->head.load();
    return std::min<uint64_t>(header_->tail.load() - head, header_->capacity);
  }

  // Appends as many of the values as there is room for, oldest first; the number appended. None when closed.
  size_t try_push(const int64_t* values, size_t count) {
    size_t pushed = 0;
    {
      std::lock_guard lock(header_->mutex);
      if (closed()) return 0;
      const uint64_t tail = header_->tail.load();
      pushed = std::min<uint64_t>(count, header_->capacity - (tail - header_->head.load()));
      for_parts(tail, pushed, [&](int64_t* items, size_t done, size_t n) {
        std::memcpy(items, values + done, n * sizeof(int64_t));
      });
      header_->tail.store(tail + pushed);
    }
    if (pushed != 0) header_->pushes.signal(wakes(pushed));
    return pushed;
  }

  // Takes up to `limit` of the oldest items, none while there are fewer than `least`; the number taken.
  size_t try_pop(int64_t* out, size_t limit, size_t least = 1) {
    if (size() < least) return 0;
    size_t popped = 0;
    {
      std::lock_guard lock(header_->mutex);
      const uint64_t head = header_->head.load();
      popped = std::min<uint64_t>(limit, header_->tail.load() - head);
      if (popped < least) return 0;
      for_parts(head, popped, [&](const int64_t* items, size_t done, size_t n) {
        std::memcpy(out + done, items, n * sizeof(int64_t));
      });
      header_->head.store(head + popped);
    }
    if (popped != 0) header_->pops.signal(wakes(popped));
    return popped;
  }

  void clear() {
    {
      std::lock_guard lock(header_->mutex);
      header_->head.store(header_->tail.load());
    }
    header_->pops.signal_all();
  }

  // Under the mutex: once a consumer has seen the ring closed and empty, nothing can be appended any more.
  void close() {
    {
      std::lock_guard lock(header_->mutex);
      header_->closed.store(true);
    }
    header_->pushes.signal_all();
    header_->pops.signal_all();
  }

  // What a consumer (producer) that found the ring empty (full) sleeps on, also woken by close().
  Event& pushes() { return header_->pushes; }
  Event& pops() { return header_->pops; }

 private:
  static constexpr size_t kMaxCapacity = size_t{1} << 40;

  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsRing01");
    Magic magic;             // written by create()
    uint64_t capacity;       // written by create()
    RobustMutex mutex;       // held to push, pop, clear or close
    std::atomic<bool> closed;                 // written by close(), under the mutex
    alignas(kLine) std::atomic<uint64_t> tail;  // items ever pushed: written by producers, under the mutex
    Event pushes;                             // signalled by producers, slept on by consumers
    alignas(kLine) std::atomic<uint64_t> head;  // items ever popped: written by consumers, under the mutex
    Event pops;                               // signalled by consumers, slept on by producers
  };

  explicit Ring(Header* header) : header_(header) {}

  int64_t* items() const { return reinterpret_cast<int64_t*>(header_ + 1); }

  // Calls copy(items, number already done, number here) for the one or two contiguous parts of [from, from + count).
  template <class Copy>
  void for_parts(uint64_t from, size_t count, Copy copy) const {
    const size_t start = from % header_->capacity;
    const size_t first = std::min<size_t>(count, header_->capacity - start);
    copy(items() + start, 0, first);
    copy(items(), first, count - first);
  }

  static int wakes(size_t count) { return static_cast<int>(std::min<size_t>(count, INT_MAX)); }

  Header* header_;
};

}  // namespace penstock
