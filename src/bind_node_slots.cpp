// Python face of the slots at home that mirror those of a node.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "array_view.h"
#include "bindings.h"
#include "node_slots.h"

namespace penstock {
namespace {

// Number of bytes up to which a call keeps the GIL, because releasing and reacquiring it would take longer.
constexpr size_t kMoveWithGil = 64 * 1024;

// The memory of segments in arrays of an arena, which are kept in place.
struct BoundMemory {
  SegmentMemory memory{};
  size_t num_slots;
  std::vector<std::unique_ptr<ArrayView>> views{};

  BoundMemory(size_t slots, nb::handle columns, nb::handle valid, nb::handle version, nb::handle epoch,
              nb::handle number, nb::handle states, size_t segment_length)
      : num_slots(slots) {
    if (num_slots == 0) throw nb::value_error("num_slots must not be 0");
    for (nb::handle column : nb::borrow<nb::sequence>(columns)) memory.columns.push_back(take(column, "columns"));
    memory.valid = take(valid, "valid", 1);
    memory.version = take(version, "version", sizeof(int64_t));
    memory.epoch = take(epoch, "epoch", sizeof(int64_t));
    memory.number = take(number, "number", sizeof(int64_t));
    memory.state = take(states, "memory");
    memory.length = segment_length;
    if (segment_length > memory.valid.nbytes || segment_length * sizeof(int64_t) > memory.version.nbytes) {
      throw nb::value_error("segment_length must be no more than the rows of a slot");
    }
  }
  BoundMemory(const BoundMemory&) = delete;

  OfSlots take(nb::handle array, const char* name, size_t itemsize = 0) {
    views.push_back(std::make_unique<ArrayView>(array, name, Access::kWrite));
    const ArrayView& view = *views.back();
    if (view.nbytes() % num_slots != 0 || (itemsize != 0 && view.itemsize() != itemsize)) {
      const std::string message = std::string(name) + " must have rows of each of " + std::to_string(num_slots) +
                                  " slots, found " + view.description();
      throw nb::value_error(message.c_str());
    }
    return {view.bytes(), view.nbytes() / num_slots};
  }

  std::vector<int64_t> checked(nb::handle slots) const {
    const ArrayView view(slots, "slots");
    const auto numbers = view.int64s();
    for (int64_t slot : numbers) {
      if (slot < 0 || static_cast<size_t>(slot) >= num_slots) {
        const std::string message =
            "slot " + std::to_string(slot) + " is outside the memory of " + std::to_string(num_slots) + " slots";
        throw nb::index_error(message.c_str());
      }
    }
    return {numbers.begin(), numbers.end()};
  }
};

void make_node_slots(NodeSlots* self, const SlotTable& table, const BoundMemory& bound, nb::handle slots,
                     size_t num_lanes, int32_t node) {
  std::vector<int64_t> found = bound.checked(slots);
  if (num_lanes == 0 || found.size() % num_lanes != 0 || table.size() != bound.num_slots) {
    throw nb::value_error("slots must be as many for each lane, and the table and the memory must have the same slots");
  }
  new (self) NodeSlots(table, bound.memory, std::move(found), num_lanes, node);
}

size_t send(const BoundMemory& bound, int fd, nb::bytes header, nb::handle slots, double timeout) {
  const std::vector<int64_t> found = bound.checked(slots);
  const std::span head{static_cast<const std::byte*>(header.data()), header.size()};
  const auto patience = static_cast<int>(std::ceil(timeout * 1e3));
  nb::gil_scoped_release released;
  return bound.memory.send(fd, head, found, patience);
}

size_t receive(NodeSlots& slots, int fd) {
  if (slots.missing() <= kMoveWithGil) return slots.receive(fd);
  nb::gil_scoped_release released;
  return slots.receive(fd);
}

// Moves bytes between a connection and buffers without waiting; their number.
size_t move(int fd, nb::handle buffers, Access access, size_t (Moving::*call)(int)) {
  std::vector<std::unique_ptr<ArrayView>> views;
  Moving moving;
  for (nb::handle buffer : nb::borrow<nb::sequence>(buffers)) {
    views.push_back(std::make_unique<ArrayView>(buffer, "buffers", access));
    moving.add(views.back()->bytes(), views.back()->nbytes());
  }
  if (moving.missing() <= kMoveWithGil) return (moving.*call)(fd);
  nb::gil_scoped_release released;
  return (moving.*call)(fd);
}

}  // namespace

void bind_node_slots(nb::module_& module) {
  nb::class_<Occupancy>(module, "Occupancy", "States of all slots of a table, read once for the grants to all nodes.")
      .def(nb::init<const SlotTable&>(), nb::arg("table"))
      .def_prop_ro("num_free", &Occupancy::num_free, "Number of free slots.");

  nb::class_<BoundMemory>(module, "SegmentMemory", R"(Memory of segments in the slots of an arena.

Parameters
----------
num_slots : int
    Number of slots.
columns : list of array
    Columns of the arena in the order in which they travel, each with as many rows for every slot.
valid, version : array
    Columns, bool and int64, whose steps are counted.
epoch, number, memory : array
    Run epoch and number of the segment in each slot, int64, and the memory state at its begin, float32.
segment_length : int
    Steps of a segment, which are the first rows of its slot.)")
      .def(nb::init<size_t, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, size_t>(),
           nb::arg("num_slots"), nb::arg("columns"), nb::arg("valid"), nb::arg("version"), nb::arg("epoch"),
           nb::arg("number"), nb::arg("memory"), nb::arg("segment_length"))
      .def_prop_ro("nbytes", [](const BoundMemory& bound) { return bound.memory.nbytes(); },
                   "Bytes of one segment in a block.")
      .def("send", &send, nb::arg("fd"), nb::arg("header"), nb::arg("slots"), nb::arg("timeout"),
           R"(Send a header and a block of the segments in some slots (int64 array); return the number of bytes.

A block is a row of slot, run epoch and number for each segment, their memory states, and then each column.

Raises
------
TimeoutError
    The connection takes nothing for ``timeout`` seconds.
OSError
    The connection is broken.)");

  nb::class_<NodeSlots>(module, "NodeSlots", R"(Slots at home that mirror those of a node.

The node knows them by numbers from 0 on: those of the first turn of its lanes, those of the second, and so on.

Parameters
----------
table : SlotTable
    States of all slots at home.
memory : SegmentMemory
    Their memory.
slots : int64 array
    Slots at home by the node's numbers.
num_lanes, node : int
    Lanes of the node, and its number, which owns the granted slots.)")
      .def("__init__", &make_node_slots, nb::arg("table"), nb::arg("memory"), nb::arg("slots"), nb::arg("num_lanes"),
           nb::arg("node"), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>())
      .def("grant",
           [](NodeSlots& slots, Occupancy& seen, double backlog, int64_t now) {
             return new_array<int64_t>(slots.grant(seen, backlog, now));
           },
           nb::arg("seen"), nb::arg("backlog"), nb::arg("now"),
           nb::sig("def grant(self, seen: Occupancy, backlog: float, now: int) -> numpy.ndarray"),
           R"(Claim free slots for the node, at most one for each lane, at a time in nanoseconds.

While ``backlog`` segments are open, a lane is granted its next slot only when it has filled the one before; while as
many wait, only when none of its own waits.

Returns
-------
int64 array
    The node's numbers of the slots.)")
      .def("begin", &NodeSlots::begin,
           nb::arg("count"), nb::arg("nbytes"), nb::arg("is_accepted"),
           R"(Begin to receive a block of ``count`` segments in ``nbytes`` bytes; one that is not accepted is dropped.

Raises
------
OSError
    With errno EBADMSG, here and in ``receive``: these are not the bytes of a block for this node.)")
      .def("receive", &receive, nb::arg("fd"),
           R"(Take the bytes of the block that a connection has, without waiting; return their number.

Raises
------
ConnectionResetError
    The other end has closed the connection.)")
      .def_prop_ro("missing", &NodeSlots::missing,
                   "Number of bytes of the block that have not come.")
      .def_prop_ro("is_doubled", &NodeSlots::is_doubled,
                   "Whether the block was for slots that were not granted: then it is dropped.")
      .def("arrive",
           [](NodeSlots& slots, int64_t newest, int64_t now) {
             return new_array<int64_t>(slots.arrive(newest, now));
           },
           nb::arg("newest"), nb::arg("now"), nb::sig("def arrive(self, newest: int, now: int) -> numpy.ndarray"),
           R"(Write what a whole block says of its segments, and count their steps.

Parameters
----------
newest : int
    Version of the newest weights, for the policy lag.
now : int
    Time in nanoseconds.

Returns
-------
int64 array
    Slots at home that the block has filled.)")
      .def("is_stale", &NodeSlots::is_stale,
           nb::arg("epoch"), "Whether a segment of the last block is of another run epoch.")
      .def_prop_ro("segment_time", &NodeSlots::segment_time,
                   "Nanoseconds from the grant of a slot until it arrives full: the median of the last five.")
      .def_prop_ro("steps", &NodeSlots::steps,
                   "Valid steps that have arrived.")
      .def_prop_ro("lag", &NodeSlots::lag,
                   "Mean policy lag of the steps of the last block.")
      .def_prop_ro("largest_lag", &NodeSlots::largest_lag,
                   "Largest policy lag of the steps of the last block.");

  module.def(
      "read_now",
      [](int fd, nb::handle buffers) { return move(fd, buffers, Access::kWrite, &Moving::read); },
      nb::arg("fd"), nb::arg("buffers"),
      R"(Fill buffers with bytes that a connection has, without waiting; return their number.

Raises
------
OSError
    The connection is broken, or closed by the other end.)");
  module.def(
      "write_now", [](int fd, nb::handle buffers) { return move(fd, buffers, Access::kRead, &Moving::write); },
      nb::arg("fd"), nb::arg("buffers"),
      R"(Send the bytes of buffers, as many as a connection takes without waiting; return their number.

Raises
------
OSError
    The connection is broken.)");
}

}  // namespace penstock
