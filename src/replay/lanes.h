// Turns the steps of lanes into rows: transitions, n-step transitions or sequences.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "frame_memory.h"
#include "frames.h"
#include "schema.h"
#include "sink.h"

namespace penstock {

// The unfinished rows of a writer's lanes. Nothing here is shared, and nothing is allocated after construction. Steps
// that may still be needed lie in a ring per lane and field. Whatever throws leaves no record begun: a step whose
// frames could not be stored has not happened, and a row that could not be begun is lost while its lane continues.
class Lanes {
 public:
  // `next_episode`: the number of the first episode to start, and counted up from there.
  Lanes(const Schema& schema, size_t lanes, int64_t next_episode)
      : schema_(schema),
        places_(std::max({size_t{1}, schema.n_step, schema.length})),
        lanes_(lanes),
        next_episode_(next_episode) {
    size_t nbytes = 0;
    size_t split_nbytes = 0;
    std::vector<size_t> stacks(schema_.frame_stores.size());
    std::vector<size_t> frames(schema_.frame_stores.size());
    for (const FieldPlan& field : schema_.fields) {
      const bool kept = !schema_.plain() || field.frame_store >= 0;
      staged_.push_back({.offset = nbytes, .stack = 0});
      if (kept) nbytes += places_ * field.stored_nbytes;
      if (field.frame_store < 0) continue;
      staged_.back().stack = stacks[static_cast<size_t>(field.frame_store)]++;
      frames[static_cast<size_t>(field.frame_store)] += field.depth;
      if (!FrameLayout::whole(field)) split_nbytes = std::max(split_nbytes, field.step_nbytes);
    }
    split_.resize(split_nbytes);
    for (Lane& lane : lanes_) {
      lane.steps.resize(nbytes);
      lane.priorities.resize(places_);
      for (size_t store = 0; store < stacks.size(); ++store) {
        // Room for every frame of two steps: what this one shares with the last is never gone.
        lane.frames.emplace_back(schema_.frame_stores[store].frame_nbytes, stacks[store], 2 * frames[store]);
      }
    }
    for (double power = 1.0; powers_.size() <= schema_.n_step; power *= schema_.gamma) powers_.push_back(power);
  }

  // One step of a lane: values[f] is field f's value. NaN as priority: the default.
  void step(Sink& sink, size_t lane_index, const std::byte* const* values, bool terminated, bool truncated,
            double priority) {
    Lane& lane = lanes_[lane_index];
    if (lane.to_skip > 0) {
      --lane.to_skip;
    } else {
      stage(sink, lane, values, priority);
      ++lane.count;
      ++lane.unseen;
    }
    if (lane.length++ == 0) lane.episode = next_episode_++;
    const bool ends = terminated || truncated;
    if (schema_.plain()) {
      pass_on(sink, lane, values, ends);
    } else if (schema_.length == 0) {
      finish_windows(sink, lane, ends, terminated);
    } else {
      finish_sequences(sink, lane, ends);
    }
  }

  // Cuts the lane's episode after its last step, as a truncation does.
  void end_episode(Sink& sink, size_t lane_index) {
    Lane& lane = lanes_[lane_index];
    if (schema_.plain()) {
      lane.start_afresh();
    } else if (schema_.length == 0) {
      finish_windows(sink, lane, true, false);
    } else {
      finish_sequences(sink, lane, true);
    }
  }

  // What decides when a lane's next row is finished: count, unseen and to_skip of a lane.
  struct Pending {
    size_t count, unseen, to_skip;
  };
  Pending unfinished(size_t lane) const { return {lanes_[lane].count, lanes_[lane].unseen, lanes_[lane].to_skip}; }

  // How many rows one more step would finish, and what would then be pending; nothing is written.
  size_t finishes(Pending& pending, bool ends) const {
    if (schema_.plain()) return 1;
    if (pending.to_skip > 0) {
      --pending.to_skip;
    } else {
      ++pending.count;
      ++pending.unseen;
    }
    if (ends) {
      const size_t rows = finishes_at_end(pending);
      pending = {0, 0, 0};
      return rows;
    }
    if (pending.count < places_) return 0;
    const size_t dropped = schema_.length == 0 ? 1 : std::min(schema_.period, schema_.length);
    pending = {pending.count - dropped, 0, schema_.length == 0 ? 0 : schema_.period - dropped};
    return 1;
  }

  // How many rows the end of the episode would finish.
  size_t finishes_at_end(const Pending& pending) const {
    if (schema_.plain()) return 0;
    if (schema_.length == 0) return pending.count;
    return pending.unseen > 0 || pending.count == schema_.length ? 1 : 0;
  }

  // Steps of the lane's episode so far.
  size_t pending(size_t lane) const { return lanes_[lane].length; }

 private:
  static constexpr double kMaxShare = 0.9;  // of the largest in a sequence's priority, R2D2 (OpenReview r1lyTjAqYX)

  struct Staged {
    size_t offset;  // of the field's ring in Lane::steps
    size_t stack;   // which of the stacks of its frame store it is
  };

  struct Lane {
    std::vector<std::byte> steps;     // for each field a ring of its last steps, as they lie in a record
    std::vector<double> priorities;   // ring
    std::vector<FrameMemory> frames;  // of each frame store
    size_t first = 0;                 // place in the rings of the oldest step that is needed
    size_t count = 0;                 // steps from there on
    size_t unseen = 0;                // of these, the newest that no sequence holds
    size_t to_skip = 0;               // coming steps that no sequence will hold, as it is shorter than the period
    size_t length = 0;                // steps of the episode so far
    int64_t episode = 0;

    void start_afresh() { first = count = unseen = to_skip = length = 0; }
  };

  // Steps that lie in a lane's rings.
  struct Window {
    size_t first;
    size_t count;
  };

  size_t place(size_t first, size_t i) const { return first + i < places_ ? first + i : first + i - places_; }

  std::byte* staged(Lane& lane, size_t f, size_t at) const {
    return lane.steps.data() + staged_[f].offset + at * schema_.fields[f].stored_nbytes;
  }

  void stage(Sink& sink, Lane& lane, const std::byte* const* values, double priority) {
    const size_t at = place(lane.first, lane.count);
    for (size_t f = 0; f < schema_.fields.size(); ++f) {
      const FieldPlan& field = schema_.fields[f];
      if (field.frame_store >= 0) {
        identify(sink, lane, field, staged_[f].stack, values[f], staged(lane, f, at));
      } else if (!schema_.plain()) {
        std::memcpy(staged(lane, f, at), values[f], field.stored_nbytes);
      }
    }
    lane.priorities[at] = priority;
  }

  void identify(Sink& sink, Lane& lane, const FieldPlan& field, size_t stack, const std::byte* value, std::byte* ids) {
    const auto store = static_cast<size_t>(field.frame_store);
    const std::byte* frames = value;
    if (!FrameLayout::whole(field)) {
      FrameLayout::split(split_.data(), field, value);
      frames = split_.data();
    }
    const auto put = [&](const std::byte* frame) { return sink.put_frame(store, frame); };
    lane.frames[store].identify(stack, frames, field.depth, sink.oldest_reusable(store), put, ids);
  }

  template <class Fill>
  void write(Sink& sink, int64_t episode, double priority, const Fill& fill) {
    Sink::Ticket ticket;
    std::byte* record = sink.begin(ticket);
    if (record == nullptr) return;
    fill(record);
    copy_shared(record + schema_.episode_offset, &episode, sizeof episode);
    sink.finish(ticket, priority);
  }

  // ---- plain transitions

  void pass_on(Sink& sink, Lane& lane, const std::byte* const* values, bool ends) {
    lane.count = 0;
    if (ends) lane.start_afresh();
    write(sink, lane.episode, lane.priorities[0], [&](std::byte* record) {
      for (size_t f = 0; f < schema_.fields.size(); ++f) {
        const FieldPlan& field = schema_.fields[f];
        const std::byte* from = field.frame_store >= 0 ? staged(lane, f, 0) : values[f];
        copy_shared(record + field.offset, from, field.stored_nbytes);
      }
    });
  }

  // ---- n-step transitions

  // A full window gives one row; at a boundary every step that still waits gives one, shorter and shorter.
  void finish_windows(Sink& sink, Lane& lane, bool ends, bool terminated) {
    Window window{lane.first, lane.count};
    if (ends) {
      lane.start_afresh();
    } else if (window.count == schema_.n_step) {
      lane.first = place(lane.first, 1);
      --lane.count;
    } else {
      return;
    }
    const size_t rows = ends ? window.count : 1;
    for (size_t i = 0; i < rows; ++i) {
      write_window(sink, lane, window, terminated);
      window = {place(window.first, 1), window.count - 1};
    }
  }

  void write_window(Sink& sink, Lane& lane, Window window, bool terminated) {
    const size_t last = place(window.first, window.count - 1);
    write(sink, lane.episode, lane.priorities[window.first], [&](std::byte* record) {
      for (size_t f = 0; f < schema_.fields.size(); ++f) {
        const FieldPlan& field = schema_.fields[f];
        std::byte* to = record + field.offset;
        if (field.taken == Taken::kSum) {
          field.letter == 'd' ? sum<double>(to, lane, f, window) : sum<float>(to, lane, f, window);
        } else {
          copy_shared(to, staged(lane, f, field.taken == Taken::kLast ? last : window.first), field.stored_nbytes);
        }
      }
      const auto discount = static_cast<float>(terminated ? 0.0 : powers_[window.count]);
      copy_shared(record + schema_.discount_offset, &discount, sizeof discount);
    });
  }

  template <class Float>
  void sum(std::byte* to, Lane& lane, size_t f, Window window) const {
    for (size_t offset = 0; offset < schema_.fields[f].stored_nbytes; offset += sizeof(Float)) {
      double total = 0.0;
      for (size_t i = 0; i < window.count; ++i) {
        Float reward;
        std::memcpy(&reward, staged(lane, f, place(window.first, i)) + offset, sizeof reward);
        total += powers_[i] * static_cast<double>(reward);
      }
      const auto stored = static_cast<Float>(total);
      copy_shared(to + offset, &stored, sizeof stored);
    }
  }

  // ---- sequences

  // A full sequence is written, and the steps before the next one's start dropped; at a boundary what remains is
  // written if any of it is in no sequence yet.
  void finish_sequences(Sink& sink, Lane& lane, bool ends) {
    const Window window{lane.first, lane.count};
    const bool full = window.count == schema_.length;
    const bool any = full || (ends && lane.unseen > 0);
    if (ends) {
      lane.start_afresh();
    } else if (full) {
      const size_t dropped = std::min(schema_.period, schema_.length);
      lane.first = place(lane.first, dropped);
      lane.count -= dropped;
      lane.unseen = 0;
      lane.to_skip = schema_.period - dropped;
    }
    if (any) write_sequence(sink, lane, window);
  }

  void write_sequence(Sink& sink, Lane& lane, Window window) {
    write(sink, lane.episode, priority(lane, window), [&](std::byte* record) {
      const size_t before_wrap = std::min(window.count, places_ - window.first);
      for (size_t f = 0; f < schema_.fields.size(); ++f) {
        const FieldPlan& field = schema_.fields[f];
        const size_t nbytes = field.stored_nbytes;
        std::byte* to = record + field.offset;
        if (field.once) {
          copy_shared(to, staged(lane, f, window.first), nbytes);
          continue;
        }
        copy_shared(to, staged(lane, f, window.first), before_wrap * nbytes);
        copy_shared(to + before_wrap * nbytes, staged(lane, f, 0), (window.count - before_wrap) * nbytes);
        static_assert(Schema::kNoFrame == UINT64_MAX, "so bytes of ones are frames of zeros");
        fill_shared(to + window.count * nbytes, field.frame_store >= 0 ? 0xff : 0,
                    (schema_.length - window.count) * nbytes);
      }
      const auto steps = static_cast<uint32_t>(window.count);
      copy_shared(record + schema_.steps_offset, &steps, sizeof steps);
    });
  }

  double priority(const Lane& lane, Window window) const {
    double largest = 0.0;
    double total = 0.0;
    for (size_t i = 0; i < window.count; ++i) {
      const double step = lane.priorities[place(window.first, i)];
      if (std::isnan(step)) return step;
      largest = std::max(largest, step);
      total += step;
    }
    return kMaxShare * largest + (1.0 - kMaxShare) * total / static_cast<double>(window.count);
  }

  Schema schema_;
  size_t places_;                // steps in a ring: as many as a row needs
  std::vector<Staged> staged_;   // of each field
  std::vector<std::byte> split_; // the frames of an interleaved value, while it is looked at
  std::vector<double> powers_;   // of gamma
  std::vector<Lane> lanes_;
  int64_t next_episode_;
};

}  // namespace penstock
