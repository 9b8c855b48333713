// Python face of the weights block and the slot table.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <string>
#include <vector>

#include "array_view.h"
#include "bindings.h"
#include "slot_table.h"
#include "weights_block.h"

namespace penstock {
namespace {

void check_size(const WeightsBlock& block, const ArrayView& view) {
  if (view.nbytes() != block.size()) {
    const std::string message = std::string(view.name()) + " has " + std::to_string(view.nbytes()) +
                                " bytes, but the block holds " + std::to_string(block.size());
    throw nb::value_error(message.c_str());
  }
}

void publish(WeightsBlock& block, nb::handle data, int64_t version) {
  if (version < 0) {
    const std::string message = "version must not be negative, found " + std::to_string(version);
    throw nb::value_error(message.c_str());
  }
  const ArrayView view(data, "data");
  check_size(block, view);
  copying(block.size(), [&] { block.publish(view.bytes(), version); });
}

int64_t read_into(const WeightsBlock& block, nb::handle out) {
  const ArrayView view(out, "out", Access::kWrite);
  check_size(block, view);
  return copying(block.size(), [&] { return block.read_into(view.bytes()); });
}

uint8_t checked_state(int64_t state, const char* name) {
  if (state < 0 || state >= SlotTable::kNumStates) {
    const std::string message = std::string(name) + " must be a SlotState (0 to 3), found " + std::to_string(state);
    throw nb::value_error(message.c_str());
  }
  return static_cast<uint8_t>(state);
}

int32_t checked_owner(int64_t owner, const char* name) {
  if (owner < SlotTable::kNobody || owner > SlotTable::kMaxOwner) {
    const std::string message = std::string(name) + " must be from -1 (nobody) to " +
                                std::to_string(SlotTable::kMaxOwner) + ", found " + std::to_string(owner);
    throw nb::value_error(message.c_str());
  }
  return static_cast<int32_t>(owner);
}

size_t checked_slot(const SlotTable& table, int64_t slot) {
  if (slot < 0 || static_cast<size_t>(slot) >= table.size()) {
    const std::string message =
        "slot " + std::to_string(slot) + " is outside the table of " + std::to_string(table.size()) + " slots";
    throw nb::index_error(message.c_str());
  }
  return static_cast<size_t>(slot);
}

nb::object claim(SlotTable& table, nb::handle slots, int64_t from_state, int64_t to_state, int64_t owner,
                 std::optional<int64_t> from_owner) {
  const ArrayView view(slots, "slots");
  const std::span<const int64_t> numbers = view.int64s();
  const uint8_t from = checked_state(from_state, "from_state");
  const uint8_t to = checked_state(to_state, "to_state");
  const int32_t next_owner = checked_owner(owner, "owner");
  std::optional<int32_t> required_owner;
  if (from_owner) required_owner = checked_owner(*from_owner, "from_owner");
  for (int64_t slot : numbers) checked_slot(table, slot);

  const auto claimed = std::make_unique<bool[]>(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    claimed[i] = table.claim(static_cast<size_t>(numbers[i]), from, to, next_owner, required_owner);
  }
  return new_array<bool>({claimed.get(), numbers.size()});
}

nb::object in_state(const SlotTable& table, int64_t state) {
  const uint8_t wanted = checked_state(state, "state");
  return new_array<int64_t>(table.where([&](SlotWord word) { return word.state == wanted; }));
}

nb::object owned_by(const SlotTable& table, int64_t owner, int64_t state) {
  const int32_t wanted_owner = checked_owner(owner, "owner");
  const uint8_t wanted_state = checked_state(state, "state");
  return new_array<int64_t>(
      table.where([&](SlotWord word) { return word.owner == wanted_owner && word.state == wanted_state; }));
}

}  // namespace

void bind_state(nb::module_& module) {
  nb::class_<WeightsBlock>(module, "WeightsBlock", R"(The newest weights, as bytes with a version.

One writer, which never waits for readers; any number of readers, which never see half an update. A writer killed
inside ``publish`` leaves the version before it readable.)")
      .def_static("nbytes", &WeightsBlock::nbytes, nb::arg("size"),
                  "Bytes a block for ``size`` bytes takes in an arena.")
      .def_static("create", &WeightsBlock::create, nb::arg("arena"), nb::arg("offset"), nb::arg("size"),
                  nb::keep_alive<0, 1>(), "Make a block that holds nothing yet. ValueError if it does not fit.")
      .def_static("attach", &WeightsBlock::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the block made at ``offset``, by any process. ValueError if there is none.")
      .def_prop_ro("size", &WeightsBlock::size, "Bytes of one set of weights.")
      .def_prop_ro("version", &WeightsBlock::version, "The newest version, or -1 before the first publish.")
      .def("publish", &publish, nb::arg("data"), nb::arg("version"),
           nb::sig("def publish(self, data: bytes | numpy.ndarray, version: int) -> None"),
           R"(Make these bytes the newest weights. Only one process (the learner) may publish at a time.

Parameters
----------
data : contiguous buffer of exactly ``size`` bytes
version : int
    Not negative.)")
      .def("read_into", &read_into, nb::arg("out"), nb::sig("def read_into(self, out: numpy.ndarray) -> int"),
           R"(Copy the newest weights to ``out``, ``size`` bytes, and return their version.

Returns -1 and leaves ``out`` alone before the first publish. Starts again if a newer update overtakes the copy.)");

  nb::class_<SlotTable>(module, "SlotTable", R"(Who may touch which slot.

State (``SlotState``), owner (-1: nobody) and generation (how often the slot was freed) of a slot are one 64-bit
word, changed only by compare-and-swap: of several processes that claim a slot exactly one gets it.)")
      .def_static("nbytes", &SlotTable::nbytes, nb::arg("num_slots"), "Bytes a table takes in an arena.")
      .def_static("create", &SlotTable::create, nb::arg("arena"), nb::arg("offset"), nb::arg("num_slots"),
                  nb::keep_alive<0, 1>(), "Make a table of slots that are FREE, nobody's, in generation 0.")
      .def_static("attach", &SlotTable::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the table made at ``offset``, by any process. ValueError if there is none.")
      .def("claim", &claim, nb::arg("slots"), nb::arg("from_state"), nb::arg("to_state"), nb::arg("owner"),
           nb::arg("from_owner") = nb::none(),
           nb::sig("def claim(self, slots: numpy.ndarray, from_state: int, to_state: int, owner: int, "
                   "from_owner: int | None = None) -> numpy.ndarray"),
           R"(Move each slot that is in ``from_state`` to ``to_state`` and give it to ``owner``.

Parameters
----------
slots : int64 array
from_state, to_state : SlotState
    Moving to FREE raises the generation by one.
owner : int
    The new owner, from -1 (nobody) to 2**24 - 2.
from_owner : int, optional
    Move only slots that belong to this owner now.

Returns
-------
bool array
    For each entry of ``slots`` whether this call moved it.

Raises
------
IndexError
    If a slot is outside the table; then none was moved.)")
      .def("in_state", &in_state, nb::arg("state"), nb::sig("def in_state(self, state: int) -> numpy.ndarray"),
           "The slots in a state, ascending, int64.")
      .def("owned_by", &owned_by, nb::arg("owner"), nb::arg("state"),
           nb::sig("def owned_by(self, owner: int, state: int) -> numpy.ndarray"),
           "The slots in a state that belong to an owner, ascending, int64.")
      .def("state", [](const SlotTable& table, int64_t slot) { return table.at(checked_slot(table, slot)).state; },
           nb::arg("slot"), "The state of one slot, as a plain number.")
      .def("owner", [](const SlotTable& table, int64_t slot) { return table.at(checked_slot(table, slot)).owner; },
           nb::arg("slot"), "The owner of one slot, or -1.")
      .def("generation",
           [](const SlotTable& table, int64_t slot) { return table.at(checked_slot(table, slot)).generation; },
           nb::arg("slot"), "How often the slot was freed, modulo 2**32.")
      .def("__len__", &SlotTable::size);
}

}  // namespace penstock
