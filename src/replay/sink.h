// What the lane writer writes to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

// Where rows and frames go.
class Sink {
 public:
  struct Ticket {
    uint64_t id;
    size_t row;
  };

  // A record to be filled, or nullptr when the row is dropped. A record is finished before any other call.
  virtual std::byte* begin(Ticket& ticket) = 0;
  virtual void finish(const Ticket& ticket, double priority) = 0;  // NaN: the default priority

  // Stores a frame, and gives its id; Schema::kLostFrame if it found no place.
  virtual uint64_t put_frame(size_t store, const std::byte* frame) = 0;
  // Frames with this id and later ones will stay long enough to be referred to by new rows.
  virtual uint64_t oldest_reusable(size_t store) const = 0;

 protected:
  ~Sink() = default;
};

}  // namespace penstock
