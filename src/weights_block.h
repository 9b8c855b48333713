// The newest weights: one writer that never waits, any number of readers that never see half an update.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <sched.h>

#include "region.h"
#include "shared_copy.h"

namespace penstock {

// Two buffers used in turn: publish number n goes to buffer n % 2. The writer announces a publish by raising `begun`
// and commits it by raising `published`. What a reader copied of publish n is whole unless n + 2, the next one to use
// that buffer, has begun. A writer killed between the two words leaves publish n in place, and its successor
// simply begins the same number again.
class WeightsBlock {
 public:
  static constexpr const char* kName = "WeightsBlock";

  static size_t nbytes(size_t size) {
    if (size == 0 || size > kMaxSize) {
      throw std::invalid_argument("WeightsBlock: size must be from 1 to " + std::to_string(kMaxSize) +
                                  " bytes, found " + std::to_string(size));
    }
    return whole_lines(sizeof(Header)) + 2 * whole_lines(size);
  }

  static WeightsBlock create(const Arena& arena, size_t offset, size_t size) {
    auto* header = new (region(arena, offset, nbytes(size), kName)) Header{};
    header->size = size;
    header->version[0] = kNoVersion;
    header->version[1] = kNoVersion;
    header->magic.store(Header::kMagic, std::memory_order_release);
    return WeightsBlock(header);
  }

  static WeightsBlock attach(const Arena& arena, size_t offset) {
    auto* header = existing<Header>(arena, offset, kName);
    region(arena, offset, nbytes(header->size), kName);
    return WeightsBlock(header);
  }

  size_t size() const { return header_->size; }

  void publish(const void* data, int64_t version) {
    const uint64_t number = header_->published.load(std::memory_order_relaxed) + 1;
    header_->begun.store(number, std::memory_order_relaxed);
    // No byte below may become visible before `begun`.
    std::atomic_thread_fence(std::memory_order_release);
    copy_shared(buffer(number), data, header_->size);
    header_->version[number % 2].store(version, std::memory_order_relaxed);
    header_->published.store(number, std::memory_order_release);
  }

  // The version of the newest publish, or -1 before the first.
  int64_t version() const {
    return read([](const std::byte*) {});
  }

  // Copies the newest publish; its version, or -1 (and nothing copied) before the first.
  int64_t read_into(void* out) const {
    return read([&](const std::byte* data) { copy_shared(out, data, header_->size); });
  }

 private:
  static constexpr int64_t kNoVersion = -1;
  static constexpr size_t kMaxSize = size_t{1} << 46;

  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsWeigh1");
    Magic magic;                      // written by create()
    uint64_t size;                    // bytes of one buffer; written by create()
    std::atomic<uint64_t> begun;      // number of the last publish begun; written by the writer
    std::atomic<uint64_t> published;  // number of the last publish completed; written by the writer
    std::atomic<int64_t> version[2];  // of the publish in each buffer; written by the writer
  };

  explicit WeightsBlock(Header* header) : header_(header) {}

  // Another try is needed only after a whole new publish, so a dead writer keeps no reader here.
  template <class Copy>
  int64_t read(Copy copy) const {
    for (;;) {
      const uint64_t number = header_->published.load(std::memory_order_acquire);
      if (number == 0) return kNoVersion;
      copy(buffer(number));
      const int64_t version = header_->version[number % 2].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (header_->begun.load(std::memory_order_relaxed) <= number + 1) return version;
      sched_yield();
    }
  }

  std::byte* buffer(uint64_t number) const {
    return reinterpret_cast<std::byte*>(header_) + whole_lines(sizeof(Header)) +
           (number % 2) * whole_lines(header_->size);
  }

  Header* header_;
};

}  // namespace penstock
