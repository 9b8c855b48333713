// A ring of records that any number of processes write and read at once, without a lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <string>

#include "../region.h"
#include "writers.h"

namespace penstock {

// Every record ever written has an id, counted up from 0; it lies in row id % capacity until a later one takes the row.
// A word per row holds the id of that record and the number of its writer. A writer takes the row by compare-and-swap,
// copies, and lets go with one store; a reader copies between two looks at the word. So a record is read whole or not
// at all, also when its writer was killed half-way: then the row stays taken until its writer is found dead.
class RowStore {
 public:
  static constexpr const char* kName = "RowStore";
  static constexpr uint64_t kNone = UINT64_MAX;
  static constexpr uint64_t kMaxId = (uint64_t{1} << (64 - Writers::kNumberBits)) - 2;

  // Bytes in the control arena.
  static size_t nbytes(size_t capacity) { return whole_lines(sizeof(Header) + capacity * sizeof(Word)); }
  // Bytes in the data arena.
  static size_t data_nbytes(size_t capacity, size_t record_nbytes) {
    size_t nbytes = 0;
    if (__builtin_mul_overflow(capacity, stride(record_nbytes), &nbytes)) throw std::bad_alloc();
    return whole_lines(nbytes);
  }

  static RowStore create(const Arena& control, size_t offset, const Arena& data, size_t data_offset, size_t capacity,
                         size_t record_nbytes) {
    auto* header = new (region(control, offset, nbytes(capacity), kName)) Header{};
    header->capacity = capacity;
    header->record_nbytes = record_nbytes;
    header->magic.store(Header::kMagic, std::memory_order_release);
    return attach(control, offset, data, data_offset);
  }

  static RowStore attach(const Arena& control, size_t offset, const Arena& data, size_t data_offset) {
    auto* header = existing<Header>(control, offset, kName);
    region(control, offset, nbytes(header->capacity), kName);
    return RowStore(header,
                    region(data, data_offset, data_nbytes(header->capacity, header->record_nbytes), "its records"));
  }

  size_t capacity() const { return capacity_; }
  size_t record_nbytes() const { return header_->record_nbytes; }
  size_t row(uint64_t id) const { return id % capacity_; }

  // The least id from `claim` on that falls to `row`, and is larger than all that have been there.
  uint64_t next_id(size_t row, uint64_t claim) const {
    const uint64_t least = std::max(claim, ever_in(row));
    return least + (row + capacity_ - least % capacity_) % capacity_;
  }
  // Larger than every id that a row holds, or held.
  uint64_t end_of_ids() const {
    uint64_t end = claimed();
    for (size_t row = 0; row < capacity_; ++row) end = std::max(end, ever_in(row));
    return end;
  }

  // Ids given out so far; ids from base() on are alive until they are overwritten, those before were cleared.
  uint64_t claimed() const { return header_->claimed.load(std::memory_order_acquire); }
  uint64_t base() const { return header_->base.load(std::memory_order_acquire); }
  uint64_t oldest() const {
    const uint64_t now = claimed();
    return std::max(base(), now > capacity_ ? now - capacity_ : 0);
  }

  // Records written: ever, and of those that are here.
  uint64_t written() const { return header_->written.load(std::memory_order_acquire); }
  size_t size() const {
    const uint64_t before = header_->cleared.load(std::memory_order_acquire);
    return std::min<uint64_t>(written() - before, capacity_);
  }

  // ---- writing

  uint64_t claim(size_t count) { return header_->claimed.fetch_add(count, std::memory_order_acq_rel); }

  // The record in `row`, to be written as `id`; nullptr if another live writer is in it, or a later record is there.
  std::byte* open(size_t row, uint64_t id, uint32_t writer, const Writers& writers) {
    Word& word = words()[row];
    uint64_t seen = word.load(std::memory_order_relaxed);
    do {
      if (seen >> Writers::kNumberBits > id) return nullptr;
      const auto holder = static_cast<uint32_t>(seen & kWriterMask);
      if (holder != Writers::kNobody && writers.alive(holder)) return nullptr;
    } while (!word.compare_exchange_weak(seen, packed(id, writer), std::memory_order_acquire,
                                         std::memory_order_relaxed));
    // No byte of the record may be seen to change before the word does.
    std::atomic_thread_fence(std::memory_order_release);
    return record(row);
  }

  // Whether no living writer is in `row`.
  bool is_free(size_t row, const Writers& writers) const {
    const auto holder = static_cast<uint32_t>(words()[row].load(std::memory_order_relaxed) & kWriterMask);
    return holder == Writers::kNobody || !writers.alive(holder);
  }

  // Lets go of the row. False if another writer has taken it, for which this one counted as dead. A look before the
  // store does, as no live writer should count as dead: compare-and-swap would take a fifth more time for a small row.
  bool commit(size_t row, uint64_t id, uint32_t writer) {
    Word& word = words()[row];
    if (word.load(std::memory_order_relaxed) != packed(id, writer)) return false;
    word.store(packed(id, Writers::kNobody), std::memory_order_release);
    return true;
  }

  void count_written(size_t count) { header_->written.fetch_add(count, std::memory_order_acq_rel); }

  // ---- reading: id = committed(row), copy from record(row), and keep the copy only if unchanged(row, id)

  // The record that can be read in `row`, or kNone: nothing, one being written, or a cleared one.
  uint64_t committed(size_t row) const {
    const uint64_t seen = words()[row].load(std::memory_order_acquire);
    if (seen == 0 || (seen & kWriterMask) != Writers::kNobody) return kNone;
    const uint64_t id = (seen >> Writers::kNumberBits) - 1;
    return id >= base() ? id : kNone;
  }

  bool unchanged(size_t row, uint64_t id) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return words()[row].load(std::memory_order_relaxed) == packed(id, Writers::kNobody);
  }

  std::byte* record(size_t row) const { return records_ + row * stride_; }

  void prefetch_word(size_t row) const { __builtin_prefetch(&words()[row]); }

  void prefetch(size_t row) const {
    prefetch_word(row);
    const std::byte* at = record(row);
    const size_t nbytes = std::min<size_t>(stride_, kPrefetched);
    for (size_t offset = 0; offset < nbytes; offset += kLine) __builtin_prefetch(at + offset);
  }

  // ---- the whole store

  // Forgets every record. The next id is a multiple of the capacity, so that rows are filled from the first one again,
  // and at least `least`.
  void clear(uint64_t least = 0) {
    uint64_t seen = header_->claimed.load();
    uint64_t next = 0;
    do {
      next = (std::max(seen, least) + capacity_ - 1) / capacity_ * capacity_;
    } while (!header_->claimed.compare_exchange_weak(seen, next));
    header_->base.store(next);
    header_->cleared.store(header_->written.load());
  }

  // Puts back what a file held, into a store without writers: words by put(), then the counters.
  void put(size_t row, uint64_t id) {
    words()[row].store(id == kNone ? 0 : packed(id, Writers::kNobody), std::memory_order_release);
  }
  struct Counters {
    uint64_t claimed, base, written, cleared;
  };
  // Base is read before claimed, and cleared before written: neither is ever larger than the other, whichever process
  // continues.
  Counters counters() const {
    const uint64_t base = header_->base.load();
    const uint64_t cleared = header_->cleared.load();
    return {header_->claimed.load(), base, header_->written.load(), cleared};
  }
  void set_counters(const Counters& counters) {
    header_->base.store(counters.base);
    header_->claimed.store(counters.claimed);
    header_->cleared.store(counters.cleared);
    header_->written.store(counters.written);
  }

 private:
  using Word = std::atomic<uint64_t>;  // id + 1 : 44 | number of the writer that is in it : 20; 0: never written
  static_assert(Word::is_always_lock_free);
  static constexpr uint64_t kWriterMask = (uint64_t{1} << Writers::kNumberBits) - 1;
  static constexpr size_t kPrefetched = 512;

  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsRows01");
    Magic magic;             // written by create()
    uint64_t capacity;       // written by create()
    uint64_t record_nbytes;  // written by create()
    Word base;               // the first id that counts: written by clear()
    Word cleared;            // `written` when base was: written by clear()
    alignas(kLine) Word claimed;  // the next id: raised by every writer
    alignas(kLine) Word written;  // raised by every writer after its commits
    // The words follow, each written by the writer that takes the row.
  };

  RowStore(Header* header, std::byte* records)
      : header_(header), records_(records), capacity_(header->capacity), stride_(stride(header->record_nbytes)) {}

  // Records of about a cache line or more start on one if that costs little.
  static size_t stride(size_t record_nbytes) {
    const size_t words = (record_nbytes + 7) / 8 * 8;
    return whole_lines(words) * 8 <= words * 9 ? whole_lines(words) : words;
  }

  static uint64_t packed(uint64_t id, uint32_t writer) { return (id + 1) << Writers::kNumberBits | writer; }

  // 1 + the last id that was in `row`, or is; 0: none.
  uint64_t ever_in(size_t row) const { return words()[row].load(std::memory_order_relaxed) >> Writers::kNumberBits; }

  Word* words() const { return reinterpret_cast<Word*>(header_ + 1); }

  Header* header_;
  std::byte* records_;
  size_t capacity_;
  size_t stride_;
};

}  // namespace penstock
