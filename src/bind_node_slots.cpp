// Python face of the slots at home that mirror those of a node.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "array_view.h"
#include "bindings.h"
#include "node_slots.h"

namespace penstock {
namespace {

// So many bytes are received or sent with the GIL: giving it up and taking it back would cost more.
constexpr size_t kMoveWithGil = 64 * 1024;

// Arrays of an arena, kept in place as long as slots are received into them.
class Arrays {
 public:
  Arrays(size_t num_slots, nb::handle columns) : num_slots_(num_slots) {
    for (nb::handle column : nb::borrow<nb::sequence>(columns)) memory_.columns.push_back(take(column, "columns"));
  }

  Arrays(Arrays&&) = default;
  Arrays(const Arrays&) = delete;

  OfSlots take(nb::handle array, const char* name, size_t itemsize = 0) {
    views_.push_back(std::make_unique<ArrayView>(array, name, Access::kWrite));
    const ArrayView& view = *views_.back();
    if (view.nbytes() % num_slots_ != 0 || (itemsize != 0 && view.nbytes() != 0 && view.itemsize() != itemsize)) {
      const std::string message = std::string(name) + " must have rows of each of " + std::to_string(num_slots_) +
                                  " slots, found " + view.description();
      throw nb::value_error(message.c_str());
    }
    return {view.bytes(), view.nbytes() / num_slots_};
  }

  SegmentMemory memory_{};

 private:
  size_t num_slots_;
  std::vector<std::unique_ptr<ArrayView>> views_;
};

struct BoundNodeSlots {
  BoundNodeSlots(Arrays&& arrays_of, NodeSlots&& slots_of) : arrays(std::move(arrays_of)), slots(std::move(slots_of)) {}
  BoundNodeSlots(const BoundNodeSlots&) = delete;

  Arrays arrays;
  NodeSlots slots;

  static void make(BoundNodeSlots* self, const SlotTable& table, nb::handle columns, nb::handle valid,
                   nb::handle version, nb::handle epoch, nb::handle number, nb::handle memory, size_t segment_length,
                   nb::handle slots, size_t num_lanes, int32_t node) {
    Arrays arrays(table.size(), columns);
    SegmentMemory& places = arrays.memory_;
    places.valid = arrays.take(valid, "valid", 1);
    places.version = arrays.take(version, "version", sizeof(int64_t));
    places.epoch = arrays.take(epoch, "epoch", sizeof(int64_t));
    places.number = arrays.take(number, "number", sizeof(int64_t));
    places.state = arrays.take(memory, "memory");
    places.length = segment_length;
    const ArrayView view(slots, "slots");
    const auto numbers = view.int64s();
    std::vector<int64_t> found(numbers.begin(), numbers.end());
    const bool are_slots = std::ranges::all_of(
        found, [&](int64_t slot) { return slot >= 0 && static_cast<size_t>(slot) < table.size(); });
    if (num_lanes == 0 || found.size() % num_lanes != 0 || !are_slots || segment_length > places.valid.nbytes ||
        segment_length * sizeof(int64_t) > places.version.nbytes) {
      throw nb::value_error("slots must be numbers of the table's slots, as many for each lane; and segment_length "
                            "no more than the rows of a slot");
    }
    NodeSlots made(table, places, std::move(found), num_lanes, node);
    new (self) BoundNodeSlots(std::move(arrays), std::move(made));
  }
};

size_t receive(BoundNodeSlots& bound, int fd) {
  if (bound.slots.missing() <= kMoveWithGil) return bound.slots.receive(fd);
  nb::gil_scoped_release released;
  return bound.slots.receive(fd);
}

// Moves bytes between a connection and buffers, in one call of the system that does not wait; -1: not now.
ssize_t move(int fd, nb::handle buffers, const char* what, Access access, ssize_t (*call)(int, const iovec*, int)) {
  std::vector<std::unique_ptr<ArrayView>> views;
  std::vector<iovec> parts;
  size_t nbytes = 0;
  for (nb::handle buffer : nb::borrow<nb::sequence>(buffers)) {
    if (parts.size() == IOV_MAX) break;
    views.push_back(std::make_unique<ArrayView>(buffer, "buffers", access));
    parts.push_back({views.back()->bytes(), views.back()->nbytes()});
    nbytes += views.back()->nbytes();
  }
  ssize_t moved = 0;
  int error = 0;
  const auto make = [&] {
    do moved = call(fd, parts.data(), static_cast<int>(parts.size()));
    while (moved < 0 && errno == EINTR);
    error = errno;
  };
  if (nbytes <= kMoveWithGil) {
    make();
  } else {
    nb::gil_scoped_release released;
    make();
  }
  if (moved < 0 && error != EAGAIN && error != EWOULDBLOCK) {
    throw std::system_error(error, std::generic_category(), what);
  }
  return moved;
}

}  // namespace

void bind_node_slots(nb::module_& module) {
  nb::class_<Occupancy>(module, "Occupancy", "States of all slots of a table, read once for the grants to all nodes.")
      .def(nb::init<const SlotTable&>(), nb::arg("table"))
      .def_prop_ro("num_free", &Occupancy::num_free, "Number of free slots.");

  nb::class_<BoundNodeSlots>(module, "NodeSlots", R"(Slots at home that mirror those of a node.

The node knows them by numbers from 0 on: those of the first turn of its lanes, those of the second, and so on.

Parameters
----------
table : SlotTable
    States of all slots at home.
columns : list of array
    Columns of the arena in the order in which they travel, each with as many rows for every slot.
valid, version : array
    Columns, bool and int64, whose steps are counted.
epoch, number, memory : array
    Run epoch and number of the segment in each slot, int64, and the memory state at its begin, float32.
segment_length : int
    Steps of a segment, which are the first rows of its slot.
slots : int64 array
    Slots at home by the node's numbers.
num_lanes, node : int
    Lanes of the node, and its number, which owns the granted slots.)")
      .def("__init__", &BoundNodeSlots::make, nb::arg("table"), nb::arg("columns"), nb::arg("valid"),
           nb::arg("version"), nb::arg("epoch"), nb::arg("number"), nb::arg("memory"), nb::arg("segment_length"),
           nb::arg("slots"), nb::arg("num_lanes"), nb::arg("node"), nb::keep_alive<1, 2>())
      .def("grant",
           [](BoundNodeSlots& bound, Occupancy& seen, double backlog, int64_t now) {
             return new_array<int64_t>(bound.slots.grant(seen, backlog, now));
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
      .def("begin", [](BoundNodeSlots& bound, size_t count, size_t nbytes,
                       bool is_accepted) { bound.slots.begin(count, nbytes, is_accepted); },
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
      .def_prop_ro("missing", [](const BoundNodeSlots& bound) { return bound.slots.missing(); },
                   "Number of bytes of the block that have not come.")
      .def_prop_ro("is_doubled", [](const BoundNodeSlots& bound) { return bound.slots.is_doubled(); },
                   "Whether the block was for slots that were not granted: then it is dropped.")
      .def("arrive",
           [](BoundNodeSlots& bound, int64_t newest, int64_t now) {
             return new_array<int64_t>(bound.slots.arrive(newest, now));
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
      .def("is_stale", [](const BoundNodeSlots& bound, int64_t epoch) { return bound.slots.is_stale(epoch); },
           nb::arg("epoch"), "Whether a segment of the last block is of another run epoch.")
      .def_prop_ro("segment_time", [](const BoundNodeSlots& bound) { return bound.slots.segment_time(); },
                   "Nanoseconds from the grant of a slot until it arrives full: the median of the last five.")
      .def_prop_ro("steps", [](const BoundNodeSlots& bound) { return bound.slots.steps(); },
                   "Valid steps that have arrived.")
      .def_prop_ro("lag", [](const BoundNodeSlots& bound) { return bound.slots.lag(); },
                   "Mean policy lag of the steps of the last block.")
      .def_prop_ro("largest_lag", [](const BoundNodeSlots& bound) { return bound.slots.largest_lag(); },
                   "Largest policy lag of the steps of the last block.");

  module.def(
      "read_now",
      [](int fd, nb::handle buffers) { return move(fd, buffers, "receiving", Access::kWrite, &readv); },
      nb::arg("fd"), nb::arg("buffers"),
      R"(Fill buffers with bytes that a connection has; return their number, -1 if it has none now, and 0 at its end.

Raises
------
OSError
    The connection is broken.)");
  module.def(
      "write_now", [](int fd, nb::handle buffers) { return move(fd, buffers, "sending", Access::kRead, &writev); },
      nb::arg("fd"), nb::arg("buffers"),
      R"(Send the bytes of buffers, as many as a connection takes now; return their number, -1 if it takes none.

Raises
------
OSError
    The connection is broken.)");
}

}  // namespace penstock
