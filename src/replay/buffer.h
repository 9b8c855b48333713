// A replay buffer in two arenas: the control arena with all words and trees, the data arena with the records.
#pragma once

#include <optional>
#include <vector>

#include "../futex.h"
#include "../shared_copy.h"
#include "priorities.h"
#include "row_store.h"
#include "schema.h"
#include "writers.h"

namespace penstock {

class Buffer {
 public:
  static constexpr const char* kName = "replay buffer";

  struct Sizes {
    size_t control, data;
  };
  static Sizes sizes(const Schema& schema, size_t capacity, bool prioritized) {
    Sizes at{whole_lines(sizeof(Header)) + Writers::nbytes(), 0};
    const auto add = [&](size_t rows, size_t record_nbytes) {
      at.control += RowStore::nbytes(rows);
      at.data += RowStore::data_nbytes(rows, record_nbytes);
    };
    add(capacity, schema.record_nbytes);
    for (const FrameStorePlan& frames : schema.frame_stores) add(frames.capacity, frames.frame_nbytes);
    if (prioritized) at.control += Priorities::nbytes(capacity, schema.evicts);
    if (schema.group > 0) at.control += scores_nbytes(capacity);
    return at;
  }

  static Buffer create(const Arena& control, const Arena& data, Schema schema, size_t capacity,
                       std::optional<PriorityPlan> priorities) {
    auto* header = new (region(control, 0, sizeof(Header), kName)) Header{};
    Buffer buffer(header, control, data, std::move(schema), capacity, priorities, true);
    header->magic.store(Header::kMagic, std::memory_order_release);
    return buffer;
  }

  static Buffer attach(const Arena& control, const Arena& data, Schema schema, size_t capacity,
                       std::optional<PriorityPlan> priorities) {
    return Buffer(existing<Header>(control, 0, kName), control, data, std::move(schema), capacity, priorities, false);
  }

  const Schema& schema() const { return schema_; }
  Writers& writers() { return *writers_; }
  RowStore& rows() { return stores_[0]; }
  RowStore& frames(size_t store) { return stores_[store + 1]; }
  std::vector<RowStore>& stores() { return stores_; }
  Priorities* priorities() { return priorities_ ? &*priorities_ : nullptr; }

  // Score of a row, if the schema has a group: rows of low score are kept. Readers set it, the writer resets it to 0.
  float score(size_t row) const { return scores_[row].load(std::memory_order_relaxed); }
  void set_score(size_t row, float score) { scores_[row].store(score, std::memory_order_relaxed); }

  // Rows that may hold something: all from the first one on.
  size_t rows_used() {
    return std::min<uint64_t>(rows().claimed() - rows().base(), rows().capacity());
  }

  // Whether no frame that a record names has been overwritten.
  bool has_frames(const std::byte* record) {
    for (const FieldPlan& field : schema_.fields) {
      if (field.frame_store < 0) continue;
      RowStore& store = frames(static_cast<size_t>(field.frame_store));
      const size_t steps = schema_.length > 0 && !field.once ? schema_.length : 1;
      for (size_t step = 0; step < steps; ++step) {
        for (size_t d = 0; d < field.depth; ++d) {
          uint64_t id = 0;
          copy_shared(&id, record + field.offset + step * field.stored_nbytes + d * sizeof id, sizeof id);
          if (id != Schema::kNoFrame && store.committed(store.row(id)) != id) return false;
        }
      }
    }
    return true;
  }

  void clear() {
    // With eviction by priority, ids run ahead of the claimed ones, those being given out now by a lap at most.
    rows().clear(schema_.evicts ? rows().end_of_ids() + rows().capacity() : 0);
    for (size_t store = 1; store < stores_.size(); ++store) stores_[store].clear();
    if (priorities_) priorities_->clear(rows());
    begin_epoch();
  }

  // Everything before is void, also what writers have begun: raised when the buffer is cleared or loaded.
  uint64_t epoch() const { return header_->epoch.load(std::memory_order_relaxed); }
  void begin_epoch() { header_->epoch.fetch_add(1); }

  // Signalled after every add, slept on by readers of an empty buffer.
  Event& added() { return header_->added; }
  // Numbers of episodes are unique: each writer counts on from a start of its own.
  int64_t first_episode() { return static_cast<int64_t>(header_->episode_starts.fetch_add(1) << 32); }
  std::atomic<uint64_t>& episode_starts() { return header_->episode_starts; }

  // Which save these contents were last written to or read from; 0: none.
  std::atomic<uint64_t>& last_save() { return header_->last_save; }

  // Counted because nothing may be lost in silence.
  struct Counts {
    std::atomic<uint64_t> skipped;  // rows not written: no row was free of writers, or it was taken. Raised by writers
    std::atomic<uint64_t> redrawn;  // rows that were overwritten while they were sampled. Raised by readers
    std::atomic<uint64_t> without_frames;  // of these, rows that were there but not their frames. Raised by readers
    std::atomic<uint64_t> late;     // priority updates for rows that are gone. Raised by readers
  };
  Counts& counts() { return header_->counts; }

 private:
  struct alignas(kLine) Header {
    static constexpr uint64_t kMagic = magic_word("PsReplay");
    Magic magic;                           // written by create()
    std::atomic<uint64_t> epoch;           // raised by clear() and load()
    std::atomic<uint64_t> episode_starts;  // writers that ever began: raised by each
    std::atomic<uint64_t> last_save;       // written by save() and load()
    Counts counts;
    alignas(kLine) Event added;  // signalled by writers
  };

  Buffer(Header* header, const Arena& control, const Arena& data, Schema schema, size_t capacity,
         std::optional<PriorityPlan> priorities, bool is_new)
      : header_(header), schema_(std::move(schema)) {
    Sizes at{whole_lines(sizeof(Header)), 0};
    writers_.emplace(is_new ? Writers::create(control, at.control) : Writers::attach(control, at.control));
    at.control += Writers::nbytes();
    const auto add = [&](size_t rows, size_t record_nbytes) {
      stores_.push_back(is_new ? RowStore::create(control, at.control, data, at.data, rows, record_nbytes)
                               : RowStore::attach(control, at.control, data, at.data));
      at.control += RowStore::nbytes(rows);
      at.data += RowStore::data_nbytes(rows, record_nbytes);
    };
    add(capacity, schema_.record_nbytes);
    for (const FrameStorePlan& frames : schema_.frame_stores) add(frames.capacity, frames.frame_nbytes);
    if (priorities) {
      priorities_.emplace(is_new ? Priorities::create(control, at.control, capacity, *priorities)
                                 : Priorities::attach(control, at.control));
      at.control += Priorities::nbytes(capacity, schema_.evicts);
    }
    if (schema_.group > 0) {
      scores_ = reinterpret_cast<std::atomic<float>*>(region(control, at.control, scores_nbytes(capacity), kName));
    }
  }

  static size_t scores_nbytes(size_t capacity) { return whole_lines(capacity * sizeof(std::atomic<float>)); }

  Header* header_;
  Schema schema_;
  std::optional<Writers> writers_;
  std::vector<RowStore> stores_;  // the rows, then the frame stores
  std::optional<Priorities> priorities_;
  std::atomic<float>* scores_ = nullptr;  // of each row; zeros at first
};

}  // namespace penstock
