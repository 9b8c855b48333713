// Blocks of segments between a node and home, and the slots at home that they fill.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "slot_table.h"

namespace penstock {

// States of all slots of an arena, read once for the grants to all nodes.
class Occupancy {
 public:
  enum State : uint8_t { kFree, kWriting, kFull, kReading };

  explicit Occupancy(const SlotTable& table) : states_(table.size()) {
    for (size_t slot = 0; slot < states_.size(); ++slot) {
      states_[slot] = table.at(slot).state;
      num_free_ += states_[slot] == kFree;
      num_waiting_ += states_[slot] >= kFull;
    }
  }

  size_t num_free() const { return num_free_; }
  size_t num_waiting() const { return num_waiting_; }
  size_t num_open() const { return states_.size() - num_free_; }
  uint8_t at(size_t slot) const { return states_[slot]; }

  // Records that a free slot was granted.
  void grant(size_t slot) {
    states_[slot] = kWriting;
    --num_free_;
  }

 private:
  std::vector<uint8_t> states_;
  size_t num_free_ = 0, num_waiting_ = 0;
};

// Bytes to receive from a connection, or to send through it, and their places in memory.
class Moving {
 public:
  void clear() {
    parts_.clear();
    next_ = missing_ = 0;
  }

  // Adjacent parts become one.
  void add(std::byte* place, size_t nbytes) {
    if (nbytes == 0) return;
    missing_ += nbytes;
    if (!parts_.empty() && static_cast<std::byte*>(parts_.back().iov_base) + parts_.back().iov_len == place) {
      parts_.back().iov_len += nbytes;
    } else {
      parts_.push_back({place, nbytes});
    }
  }

  size_t missing() const { return missing_; }

  // Moves as much as is possible without waiting; returns the number of bytes.
  size_t read(int fd) { return move(fd, readv, "receiving"); }
  size_t write(int fd) { return move(fd, writev, "sending"); }

 private:
  // A call that moves less than requested is the last: if the connection is ready for more by then, poll reports it.
  size_t move(int fd, ssize_t (*call)(int, const iovec*, int), const char* what) {
    size_t total = 0;
    while (missing_ != 0) {
      const size_t count = std::min<size_t>(parts_.size() - next_, IOV_MAX);
      size_t asked = 0;
      for (size_t i = 0; i < count; ++i) asked += parts_[next_ + i].iov_len;
      const ssize_t found = call(fd, &parts_[next_], static_cast<int>(count));
      if (found < 0 && errno == EINTR) continue;
      if (found < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (found < 0) throw std::system_error(errno, std::generic_category(), what);
      if (found == 0) {
        throw std::system_error(ECONNRESET, std::generic_category(), "the other end has closed the connection");
      }
      advance(static_cast<size_t>(found));
      total += static_cast<size_t>(found);
      if (static_cast<size_t>(found) < asked) break;
    }
    return total;
  }

  void advance(size_t nbytes) {
    missing_ -= nbytes;
    while (nbytes != 0) {
      iovec& part = parts_[next_];
      const size_t taken = std::min(nbytes, part.iov_len);
      part.iov_base = static_cast<std::byte*>(part.iov_base) + taken;
      part.iov_len -= taken;
      nbytes -= taken;
      if (part.iov_len == 0) ++next_;
    }
  }

  std::vector<iovec> parts_;
  size_t next_ = 0, missing_ = 0;
};

// Memory of an arena's slots, one after the other.
struct OfSlots {
  std::byte* data;
  size_t nbytes;  // of one slot

  std::byte* at(int64_t slot) const { return data + static_cast<size_t>(slot) * nbytes; }
  template <class Element>
  Element* elements(int64_t slot) const {
    return reinterpret_cast<Element*>(at(slot));
  }
};

// Places of the contents of segments.
struct SegmentMemory {
  static constexpr size_t kTableColumns = 3;  // slot, epoch, number

  std::vector<OfSlots> columns;  // in the order in which they travel
  OfSlots valid, version;        // columns that are counted: bool and int64 by row
  OfSlots epoch, number, state;  // of a segment: int64, int64, and the memory state at its start
  size_t length;                 // steps of a segment; its last row is no step

  // Bytes of one segment in a block.
  size_t nbytes() const {
    size_t found = kTableColumns * sizeof(int64_t) + state.nbytes;
    for (const OfSlots& column : columns) found += column.nbytes;
    return found;
  }

  // Sends a header, the table and the states of the slots, and then their columns. Waits until the connection has taken
  // all, but at most `patience` milliseconds without progress. Returns the number of bytes.
  size_t send(int fd, std::span<const std::byte> header, std::span<const int64_t> slots, int patience) const {
    std::vector<int64_t> rows(slots.size() * kTableColumns);
    std::vector<std::byte> states(slots.size() * state.nbytes);
    Moving left;
    left.add(const_cast<std::byte*>(header.data()), header.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      rows[i * kTableColumns] = slots[i];
      rows[i * kTableColumns + 1] = *epoch.elements<int64_t>(slots[i]);
      rows[i * kTableColumns + 2] = *number.elements<int64_t>(slots[i]);
      std::copy_n(state.at(slots[i]), state.nbytes, states.data() + i * state.nbytes);
    }
    left.add(reinterpret_cast<std::byte*>(rows.data()), rows.size() * sizeof(int64_t));
    left.add(states.data(), states.size());
    for (const OfSlots& column : columns) {
      for (int64_t slot : slots) left.add(column.at(slot), column.nbytes);
    }
    const size_t nbytes = left.missing();
    while (left.missing() != 0) {
      left.write(fd);
      if (left.missing() != 0) wait_to_send(fd, patience);
    }
    return nbytes;
  }

 private:
  static void wait_to_send(int fd, int patience) {
    pollfd ready{fd, POLLOUT, 0};
    int found = 0;
    do found = poll(&ready, 1, patience);
    while (found < 0 && errno == EINTR);
    if (found < 0) throw std::system_error(errno, std::generic_category(), "waiting to send");
    if (found == 0) throw std::system_error(ETIMEDOUT, std::generic_category(), "the other end takes nothing");
  }
};

// The slots of one node. The node numbers them from 0; each has another number at home.
class NodeSlots {
 public:
  NodeSlots(SlotTable table, SegmentMemory memory, std::vector<int64_t> slots, size_t num_lanes, int32_t node)
      : table_(table),
        memory_(std::move(memory)),
        slots_(std::move(slots)),
        num_lanes_(num_lanes),
        node_(node),
        granted_at_(num_lanes, kUnknown) {}

  // Claims slots for the node, at most one for each lane; returns their numbers on the node.
  //
  // While `backlog` segments are open, a lane gets its next slot only after it has filled the previous one; while as
  // many segments wait, only if none of the lane's own waits.
  std::vector<int64_t> grant(Occupancy& seen, double backlog, int64_t now) {
    std::vector<int64_t> granted;
    if (seen.num_free() == 0) return granted;
    const bool is_busy = static_cast<double>(seen.num_open()) >= backlog;
    const bool is_full = static_cast<double>(seen.num_waiting()) >= backlog;
    for (size_t lane = 0; lane < num_lanes_; ++lane) {
      int64_t first_free = kUnknown;
      bool is_writing = false, is_waiting = false;
      for (size_t number = lane; number < slots_.size(); number += num_lanes_) {
        const uint8_t state = seen.at(static_cast<size_t>(slots_[number]));
        is_writing |= state == Occupancy::kWriting;
        is_waiting |= state >= Occupancy::kFull;
        if (state == Occupancy::kFree && first_free < 0) first_free = static_cast<int64_t>(number);
      }
      if (first_free < 0 || (is_busy && (is_writing || (is_full && is_waiting)))) continue;
      const auto slot = static_cast<size_t>(slots_[static_cast<size_t>(first_free)]);
      if (!table_.claim(slot, Occupancy::kFree, Occupancy::kWriting, node_, std::nullopt)) continue;
      seen.grant(slot);
      granted_at_[lane] = is_writing ? kUnknown : now;
      granted.push_back(first_free);
    }
    return granted;
  }

  // Begins to receive a block of some segments and `nbytes` bytes; one that is not accepted is read and dropped.
  void begin(size_t count, size_t nbytes, bool is_accepted) {
    arrived_.clear();
    arriving_.clear();
    is_doubled_ = false;
    table_is_next_ = is_accepted;
    if (!is_accepted) {
      drop(nbytes);
      return;
    }
    const size_t of_segment = memory_.nbytes();
    if (count == 0 || nbytes / of_segment != count || nbytes % of_segment != 0) {
      refuse("a block of " + std::to_string(count) + " segments has " + std::to_string(nbytes) + " bytes, where each has " +
             std::to_string(of_segment));
    }
    rows_.resize(count * kTableColumns);
    states_.resize(count * memory_.state.nbytes);
    arriving_.add(reinterpret_cast<std::byte*>(rows_.data()), rows_.size() * sizeof(int64_t));
    arriving_.add(states_.data(), states_.size());
    rest_ = nbytes - arriving_.missing();
  }

  // Receives the bytes that have arrived; returns their number.
  size_t receive(int fd) {
    size_t total = arriving_.read(fd);
    if (table_is_next_ && arriving_.missing() == 0) {
      table_is_next_ = false;
      find_places();
      total += arriving_.read(fd);
    }
    return total;
  }

  size_t missing() const { return arriving_.missing() + (table_is_next_ ? rest_ : 0); }
  bool is_doubled() const { return is_doubled_; }

  // Writes the epochs, numbers and states of a whole block; returns the slots at home that it has filled.
  const std::vector<int64_t>& arrive(int64_t newest, int64_t now) {
    int64_t granted_at = kUnknown, steps = 0;
    double sum = 0.0, largest = -HUGE_VAL;
    for (size_t i = 0; i < arrived_.size(); ++i) {
      const int64_t slot = arrived_[i];
      *memory_.epoch.elements<int64_t>(slot) = rows_[i * kTableColumns + 1];
      *memory_.number.elements<int64_t>(slot) = rows_[i * kTableColumns + 2];
      std::copy_n(states_.data() + i * memory_.state.nbytes, memory_.state.nbytes, memory_.state.at(slot));
      // Lanes that step together begin when the last of them has its slot.
      granted_at = std::max(granted_at, granted_at_[static_cast<size_t>(rows_[i * kTableColumns]) % num_lanes_]);
      const auto* valid = memory_.valid.elements<uint8_t>(slot);
      const auto* version = memory_.version.elements<int64_t>(slot);
      for (size_t row = 0; row < memory_.length; ++row) {
        if (valid[row] == 0) continue;
        const auto lag = static_cast<double>(newest - version[row]);
        ++steps;
        sum += lag;
        largest = std::max(largest, lag);
      }
    }
    if (granted_at >= 0) note_time(now - granted_at);
    if (steps != 0) {
      steps_ += steps;
      lag_ = sum / static_cast<double>(steps);
      largest_lag_ = largest;
    }
    return arrived_;
  }

  // Whether a segment of the last block is of another run epoch.
  bool is_stale(int64_t epoch) const {
    for (size_t i = 0; i < arrived_.size(); ++i) {
      if (rows_[i * kTableColumns + 1] != epoch) return true;
    }
    return false;
  }

  int64_t segment_time() const { return segment_time_; }
  int64_t steps() const { return steps_; }
  double lag() const { return lag_; }
  double largest_lag() const { return largest_lag_; }

 private:
  static constexpr size_t kTableColumns = SegmentMemory::kTableColumns;
  static constexpr int64_t kUnknown = -1;
  static constexpr size_t kTimes = 5;  // last segments whose median time counts: one that is late changes nothing

  void drop(size_t nbytes) {
    dropped_.resize(nbytes);
    arriving_.add(dropped_.data(), nbytes);
  }

  void find_places() {
    bool is_granted = true;
    for (size_t i = 0; i < rows_.size(); i += kTableColumns) {
      const int64_t number = rows_[i];
      if (number < 0 || static_cast<size_t>(number) >= slots_.size()) {
        refuse("a block has slot " + std::to_string(number) + ", where a node has " + std::to_string(slots_.size()));
      }
      const int64_t slot = slots_[static_cast<size_t>(number)];
      const SlotWord word = table_.at(static_cast<size_t>(slot));
      is_granted = is_granted && word.state == Occupancy::kWriting && word.owner == node_;
      arrived_.push_back(slot);
    }
    arriving_.clear();
    if (!is_granted) {
      arrived_.clear();
      is_doubled_ = true;
      drop(rest_);
      return;
    }
    for (const OfSlots& column : memory_.columns) {
      for (int64_t slot : arrived_) arriving_.add(column.at(slot), column.nbytes);
    }
  }

  void note_time(int64_t nanoseconds) {
    if (times_.size() == kTimes) times_.erase(times_.begin());
    times_.push_back(nanoseconds);
    std::vector<int64_t> sorted = times_;
    std::ranges::sort(sorted);
    segment_time_ = sorted[(sorted.size() - 1) / 2];
  }

  [[noreturn]] static void refuse(const std::string& why) {
    throw std::system_error(EBADMSG, std::generic_category(), why);
  }

  SlotTable table_;
  SegmentMemory memory_;
  std::vector<int64_t> slots_;  // at home, by the node's numbers: lanes change fastest
  size_t num_lanes_;
  int32_t node_;

  std::vector<int64_t> granted_at_;  // by lane; kUnknown: it did not wait for its slot
  std::vector<int64_t> times_;       // of lanes that waited for their slots, in nanoseconds
  int64_t segment_time_ = 0;         // from the grant of a slot until it arrives full

  Moving arriving_;
  bool table_is_next_ = false, is_doubled_ = false;
  size_t rest_ = 0;  // bytes of the block after the table and the states
  std::vector<int64_t> rows_;
  std::vector<std::byte> states_, dropped_;
  std::vector<int64_t> arrived_;

  int64_t steps_ = 0;
  double lag_ = 0.0, largest_lag_ = 0.0;
};

}  // namespace penstock
