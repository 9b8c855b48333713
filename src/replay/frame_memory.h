// Recognises frames that a lane has stored a moment ago, so that each is stored once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "schema.h"

namespace penstock {

// Copies of the frames that a lane touched last, with the ids they were stored under. A frame is recognised by its
// bytes alone, in any stack, so sharing never depends on a promise of the caller. Only the place to look first is a
// guess: after a frame comes the one that followed it last time, or itself.
class FrameMemory {
 public:
  // `stacks`: fields that store their frames here. `places`: frames to remember.
  FrameMemory(size_t frame_nbytes, size_t stacks, size_t places)
      : frame_nbytes_(frame_nbytes),
        frames_(std::make_unique_for_overwrite<std::byte[]>(places * frame_nbytes)),
        places_(places),
        starts_(stacks) {
    forget();
  }

  // The ids (8 bytes each) of a stack's frames, which lie one after another. `put(frame)` stores a frame and gives its
  // id: called for those that are not known, or known by an id before `oldest`. Zeros are not stored: kNoFrame.
  template <class Put>
  void identify(size_t stack, const std::byte* frames, size_t depth, uint64_t oldest, const Put& put, std::byte* ids) {
    Index before = starts_[stack];
    for (size_t d = 0; d < depth; ++d) {
      const Index place = identify_one(frames + d * frame_nbytes_, before, oldest, put);
      std::memcpy(ids + d * sizeof(uint64_t), &places_[place].id, sizeof(uint64_t));
      if (d == 0) {
        starts_[stack] = place;
      } else {
        places_[before].next = place;
      }
      before = place;
    }
  }

  // Ids that were given so far mean nothing any more.
  void forget() {
    std::fill(places_.begin(), places_.end(), Place{});
    std::fill(starts_.begin(), starts_.end(), Index{0});
    now_ = 0;
  }

 private:
  using Index = uint32_t;
  static constexpr Index kNowhere = UINT32_MAX;

  struct Place {
    uint64_t id = 0;
    uint64_t touched = 0;  // when it was last found or filled; 0: empty
    uint64_t tried = 0;    // when it was last compared
    Index next = 0;        // what followed it in a stack
  };

  std::byte* bytes(Index place) const { return frames_.get() + place * frame_nbytes_; }

  template <class Put>
  Index identify_one(const std::byte* frame, Index before, uint64_t oldest, const Put& put) {
    ++now_;
    Index found = find(frame, before);
    if (found == kNowhere) {
      const uint64_t id = is_zero(frame) ? Schema::kNoFrame : put(frame);
      found = least_recent();
      std::memcpy(bytes(found), frame, frame_nbytes_);
      places_[found] = {.id = id, .touched = now_, .tried = now_, .next = found};
    } else if (places_[found].id < oldest || places_[found].id == Schema::kLostFrame) {
      places_[found].id = put(frame);
    }
    places_[found].touched = now_;
    return found;
  }

  Index find(const std::byte* frame, Index before) {
    for (const Index likely : {places_[before].next, before}) {
      if (matches(likely, frame)) return likely;
    }
    for (Index any = 0; any < places_.size(); ++any) {
      if (matches(any, frame)) return any;
    }
    return kNowhere;
  }

  bool matches(Index at, const std::byte* frame) {
    Place& place = places_[at];
    if (place.touched == 0 || place.tried == now_) return false;
    place.tried = now_;
    return std::memcmp(bytes(at), frame, frame_nbytes_) == 0;
  }

  bool is_zero(const std::byte* frame) const {
    return frame[0] == std::byte{0} && std::memcmp(frame, frame + 1, frame_nbytes_ - 1) == 0;
  }

  Index least_recent() const {
    const auto place = std::min_element(places_.begin(), places_.end(),
                                        [](const Place& a, const Place& b) { return a.touched < b.touched; });
    return static_cast<Index>(place - places_.begin());
  }

  size_t frame_nbytes_;
  std::unique_ptr<std::byte[]> frames_;
  std::vector<Place> places_;
  std::vector<Index> starts_;  // of each stack: its first frame, in the step before
  uint64_t now_ = 0;           // lookups so far
};

}  // namespace penstock
