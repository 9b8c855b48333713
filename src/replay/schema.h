// What a record holds and where: the plan that every process of a buffer shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// Which step of an n-step row a field's value comes from.
enum class Taken : uint8_t { kFirst, kSum, kLast };

struct FieldPlan {
  std::string name;
  size_t step_nbytes;    // one step's value as callers give and get it
  size_t stored_nbytes;  // one step's share of the record: the value, or 8 bytes for each of its frames
  size_t offset;         // in the record; with sequences `length` steps follow each other there, unless `once`
  Taken taken;
  char letter;           // element type in the buffer protocol: 'f' and 'd' can be summed
  bool once;             // with sequences: only the first step's value is kept
  int frame_store;       // where its frames lie; -1: the value is in the record itself
  // With frames: the value is [outer, depth, inner] bytes, and frame d of it [outer, inner].
  size_t outer, depth, inner;
};

struct FrameStorePlan {
  size_t capacity;
  size_t frame_nbytes;
};

struct Schema {
  // In place of a frame's id:
  static constexpr uint64_t kNoFrame = UINT64_MAX;        // all zeros, as of a padded step
  static constexpr uint64_t kLostFrame = UINT64_MAX - 1;  // it could not be stored: a row that names it cannot be read

  std::vector<FieldPlan> fields;
  std::vector<FrameStorePlan> frame_stores;
  size_t record_nbytes;
  size_t episode_offset;   // int64: which episode of which writer the row is from
  size_t discount_offset;  // float, if n_step > 0
  size_t steps_offset;     // uint32: how many steps of a sequence are real, if length > 0
  size_t n_step;           // 0: rows are plain transitions
  double gamma;
  size_t length;           // steps of a sequence; 0: rows are single steps
  size_t period;           // steps from the start of one sequence to the next
  bool reservoir;          // keep a uniform sample of all rows ever added, instead of the newest
  size_t group;            // > 0: a new row replaces the row of the largest score among this many, not the oldest

  bool evicts;             // a new row replaces one drawn by its priority, instead of the oldest

  // Whether rows are overwritten in the order of their ids.
  bool in_order() const { return !reservoir && group == 0 && !evicts; }
  bool plain() const { return n_step == 0 && length == 0; }
  // Bytes a caller gets for `rows` rows of the field.
  size_t row_nbytes(const FieldPlan& field) const {
    return field.step_nbytes * (length > 0 && !field.once ? length : 1);
  }
};

}  // namespace penstock
