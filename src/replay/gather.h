// Rows of a buffer as a dense batch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "buffer.h"
#include "copying.h"
#include "frames.h"
#include "threads.h"

namespace penstock {

// Where a batch goes: for each field its dense array, and the arrays that come with n-step rows and sequences.
struct BatchArrays {
  std::vector<std::byte*> fields;  // nullptr: left out
  float* discount = nullptr;  // [rows]
  bool* mask = nullptr;       // [rows, length]
};

class Gather {
 public:
  Gather(Buffer& buffer, Threads& threads) : buffer_(buffer), schema_(buffer.schema()), threads_(threads) {}

  // Bytes of a row's fields in a batch.
  size_t row_nbytes(const BatchArrays& batch) const {
    size_t nbytes = 0;
    for (size_t f = 0; f < schema_.fields.size(); ++f) {
      if (batch.fields[f] != nullptr) nbytes += schema_.row_nbytes(schema_.fields[f]);
    }
    return nbytes;
  }

  // Copies record rows[i], which must hold ids[i], to place places[i] of the batch (without places: to place i).
  // Returns the numbers i, in order, of those that could not be read: overwritten by now, or their frames are.
  const std::vector<size_t>& operator()(const uint64_t* rows, const uint64_t* ids, const size_t* places, size_t count,
                                        const BatchArrays& batch) {
    unread_.clear();
    const size_t nbytes = row_nbytes(batch);
    if (count * nbytes < kWorthThreads || threads_.count() == 1) {
      copy(rows, ids, places, 0, count, batch, unread_);
      return unread_;
    }
    // Piece by piece, so that a thread that wakes up late has the less to do.
    const size_t piece = std::max<size_t>(1, kPiece / nbytes);
    std::atomic<size_t> next{0};
    std::mutex collecting;
    threads_.run([&] {
      std::vector<size_t> unread;
      for (size_t begin = 0; (begin = next.fetch_add(piece)) < count;) {
        copy(rows, ids, places, begin, std::min(begin + piece, count), batch, unread);
      }
      const std::lock_guard lock(collecting);
      unread_.insert(unread_.end(), unread.begin(), unread.end());
    });
    std::ranges::sort(unread_);
    return unread_;
  }

 private:
  static constexpr size_t kWorthThreads = size_t{1} << 19;  // bytes that take longer than waking a thread
  static constexpr size_t kLarge = 2048;                    // bytes of a value that prefetching pays for
  static constexpr size_t kPiece = size_t{1} << 17;         // bytes that a thread takes at once
  static constexpr size_t kAhead = 8;                       // rows whose bytes are on their way

  void copy(const uint64_t* rows, const uint64_t* ids, const size_t* places, size_t begin, size_t end,
            const BatchArrays& batch, std::vector<size_t>& unread) {
    RowStore& store = buffer_.rows();
    for (size_t i = begin; i < std::min(begin + kAhead, end); ++i) store.prefetch(rows[i]);
    for (size_t i = begin; i < end; ++i) {
      if (i + kAhead < end) store.prefetch(rows[i + kAhead]);
      const size_t place = places == nullptr ? i : places[i];
      const std::byte* next = i + 1 < end ? store.record(rows[i + 1]) : nullptr;
      if (ids[i] == RowStore::kNone || store.committed(rows[i]) != ids[i] ||
          !copy_record(store.record(rows[i]), next, place, batch) || !store.unchanged(rows[i], ids[i])) {
        unread.push_back(i);
      }
    }
  }

  bool copy_record(const std::byte* record, const std::byte* next, size_t place, const BatchArrays& batch) {
    const size_t length = std::max<size_t>(schema_.length, 1);
    for (size_t f = 0; f < schema_.fields.size(); ++f) {
      if (batch.fields[f] == nullptr) continue;
      const FieldPlan& field = schema_.fields[f];
      const size_t nbytes = schema_.row_nbytes(field);
      std::byte* to = batch.fields[f] + place * nbytes;
      if (field.frame_store < 0 && nbytes < kLarge) {
        copy_bytes(to, record + field.offset, nbytes);
      } else if (field.frame_store < 0) {
        copy_large(to, record + field.offset, next == nullptr ? nullptr : next + field.offset, nbytes);
      } else {
        const size_t steps = field.once ? 1 : length;
        for (size_t step = 0; step < steps; ++step) {
          const std::byte* at = record + field.offset + step * field.stored_nbytes;
          if (!copy_frames(to + step * field.step_nbytes, at, field)) return false;
        }
      }
    }
    if (batch.discount != nullptr) copy_shared(batch.discount + place, record + schema_.discount_offset, sizeof(float));
    if (batch.mask != nullptr) {
      uint32_t steps = 0;
      copy_shared(&steps, record + schema_.steps_offset, sizeof steps);
      // A record that is being overwritten may hold any number here.
      const size_t real = std::min<size_t>(steps, length);
      std::fill_n(batch.mask + place * length, real, true);
      std::fill_n(batch.mask + place * length + real, length - real, false);
    }
    return true;
  }

  bool copy_frames(std::byte* to, const std::byte* stored_ids, const FieldPlan& field) {
    RowStore& store = buffer_.frames(static_cast<size_t>(field.frame_store));
    uint64_t ids[kMaxDepth];
    const std::byte* frames[kMaxDepth];
    copy_shared(ids, stored_ids, field.depth * sizeof(uint64_t));
    for (size_t d = 0; d < field.depth; ++d) {
      if (ids[d] == Schema::kNoFrame) {
        frames[d] = nullptr;
      } else if (store.committed(store.row(ids[d])) == ids[d]) {
        frames[d] = store.record(store.row(ids[d]));
      } else {
        return false;
      }
    }
    FrameLayout::assemble(to, field, frames);
    for (size_t d = 0; d < field.depth; ++d) {
      if (frames[d] != nullptr && !store.unchanged(store.row(ids[d]), ids[d])) return false;
    }
    return true;
  }

 public:
  static constexpr size_t kMaxDepth = 4096;  // frames in one value: 64 KiB of stack

 private:
  Buffer& buffer_;
  const Schema& schema_;
  Threads& threads_;
  std::vector<size_t> unread_;
};

}  // namespace penstock
