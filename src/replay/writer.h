// Writing rows into a buffer: the one place where ids are claimed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "buffer.h"
#include "copying.h"
#include "random.h"
#include "sink.h"

namespace penstock {

// Used by one thread at a time. Many writers, of any processes, write to one buffer at once.
class BufferWriter final : public Sink {
 public:
  BufferWriter(Buffer& buffer, uint64_t seed)
      : buffer_(buffer),
        random_(seed),
        epoch_(buffer.epoch()),
        number_(buffer.writers().join()),
        episode_(buffer.first_episode()) {}

  ~BufferWriter() { buffer_.writers().leave(number_); }
  BufferWriter(const BufferWriter&) = delete;
  BufferWriter& operator=(const BufferWriter&) = delete;

  Random& random() { return random_; }

  // To be called first in every add. False if what was begun before is void: the buffer was cleared.
  bool begin_add() {
    written_.clear();
    passed_over_ = 0;
    const uint64_t epoch = buffer_.epoch();
    if (epoch_ == epoch) return true;
    episode_ = buffer_.first_episode();  // what was loaded may hold the numbers that would come next
    epoch_ = epoch;
    return false;
  }

  // To be called last: the rows count from now on, and waiting processes are woken.
  void end_add() {
    if (written_.size() + passed_over_ == 0) return;
    buffer_.rows().count_written(written_.size() + passed_over_);
    buffer_.added().signal_all();
  }

  // Ids of the rows written in this add.
  const std::vector<uint64_t>& written() const { return written_; }

  // Plain rows without frames, straight from the callers' arrays: values[f] + i * step_nbytes is the value of row i.
  // ends[i]: the episode is over after row i.
  void write(const std::byte* const* values, size_t count, const double* priorities, const bool* ends) {
    const Schema& schema = buffer_.schema();
    RowStore& rows = buffer_.rows();
    const bool newest = schema.in_order();
    const uint64_t first = newest ? rows.claim(count) : 0;
    for (size_t i = 0; i < count; ++i) {
      Ticket ticket{first + i, rows.row(first + i)};
      std::byte* record = newest ? rows.open(ticket.row, ticket.id, number_, buffer_.writers()) : nullptr;
      if (record == nullptr) record = begin(ticket);
      if (record != nullptr) {
        for (size_t f = 0; f < schema.fields.size(); ++f) {
          const FieldPlan& field = schema.fields[f];
          copy_bytes(record + field.offset, values[f] + i * field.step_nbytes, field.step_nbytes);
        }
        copy_shared(record + schema.episode_offset, &episode_, sizeof episode_);
        finish(ticket, priorities == nullptr ? std::nan("") : priorities[i]);
      }
      if (ends[i]) ++episode_;
    }
  }

  int64_t episode() const { return episode_; }
  void end_episode() { ++episode_; }

  std::byte* begin(Ticket& ticket) override {
    RowStore& rows = buffer_.rows();
    for (size_t tries = 0; tries < kTries; ++tries) {
      ticket.id = rows.claim(1);
      std::byte* record = nullptr;
      if (buffer_.schema().evicts && ticket.id - rows.base() >= rows.capacity()) {
        record = buffer_.priorities()->evict(rows, buffer_.writers(), number_, random_.uniform(), ticket.id);
        ticket.row = rows.row(ticket.id);
      } else if (place(ticket)) {
        record = rows.open(ticket.row, ticket.id, number_, buffer_.writers());
      } else {
        ++passed_over_;
        return nullptr;
      }
      if (record != nullptr) return record;
    }
    buffer_.counts().skipped.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
  }

  void finish(const Ticket& ticket, double priority) override {
    if (buffer_.schema().group > 0) buffer_.set_score(ticket.row, 0.0F);
    bool is_written = false;
    if (buffer_.schema().evicts) {
      is_written = buffer_.priorities()->commit(buffer_.rows(), ticket.row, ticket.id, number_, priority);
    } else {
      if (buffer_.priorities() != nullptr) buffer_.priorities()->offer(ticket.row, priority);
      is_written = buffer_.rows().commit(ticket.row, ticket.id, number_);
    }
    if (is_written) {
      written_.push_back(ticket.id);
    } else {
      buffer_.counts().skipped.fetch_add(1, std::memory_order_relaxed);
    }
  }

  uint64_t put_frame(size_t store, const std::byte* frame) override {
    RowStore& frames = buffer_.frames(store);
    for (size_t tries = 0; tries < kTries; ++tries) {
      const uint64_t id = frames.claim(1);
      std::byte* record = frames.open(frames.row(id), id, number_, buffer_.writers());
      if (record == nullptr) continue;
      copy_shared(record, frame, frames.record_nbytes());
      if (!frames.commit(frames.row(id), id, number_)) continue;
      frames.count_written(1);
      return id;
    }
    return Schema::kLostFrame;
  }

  uint64_t oldest_reusable(size_t store) const override {
    const RowStore& frames = buffer_.frames(store);
    const uint64_t young = frames.capacity() / kYoungShare;
    return std::max(frames.base(), frames.claimed() > young ? frames.claimed() - young : 0);
  }

 private:
  // Frames of the newest sixteenth stay about as long as a row that is written now: spare frames make up for the rest.
  static constexpr uint64_t kYoungShare = 16;
  static constexpr size_t kTries = 64;  // rows in the hands of other writers, one after another, before one is given up

  // The row for a new id: the oldest; in a reservoir of k rows the i-th id takes a free row, or any with chance k / i;
  // with scores a free row, or that of the largest score among a few.
  bool place(Ticket& ticket) {
    RowStore& rows = buffer_.rows();
    if (buffer_.schema().in_order()) {
      ticket.row = rows.row(ticket.id);
      return true;
    }
    const uint64_t index = ticket.id - rows.base();
    if (index < rows.capacity()) {
      ticket.row = index;
      return true;
    }
    if (buffer_.schema().group > 0) {
      ticket.row = random_.below(rows.capacity());
      for (size_t i = 1; i < buffer_.schema().group; ++i) {
        const uint64_t other = random_.below(rows.capacity());
        if (buffer_.score(other) > buffer_.score(ticket.row)) ticket.row = other;
      }
      return true;
    }
    ticket.row = random_.below(index + 1);
    return ticket.row < rows.capacity();
  }

  Buffer& buffer_;
  Random random_;   // for reservoirs, among scores, and for evictions
  uint64_t epoch_;  // of the buffer, when the last add began
  uint32_t number_;
  int64_t episode_;
  std::vector<uint64_t> written_;
  size_t passed_over_ = 0;  // rows of this add that a reservoir did not take
};

}  // namespace penstock
