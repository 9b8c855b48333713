// Python face of what files are made of: blocks of records, counters, leaves.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>

#include "../array_view.h"
#include "core.h"
#include "numpy_arrays.h"

namespace penstock {
namespace {

RowStore& store_at(ReplayCore& core, size_t store) { return core.buffer.stores().at(store); }

nb::object ids(ReplayCore& core, size_t store_number, size_t begin, size_t end) {
  RowStore& store = store_at(core, store_number);
  std::vector<int64_t> found;
  for (size_t row = begin; row < std::min(end, store.capacity()); ++row) {
    found.push_back(static_cast<int64_t>(store.committed(row)));  // kNone becomes -1
  }
  return new_array<int64_t>(found);
}

nb::tuple read_block(ReplayCore& core, size_t store_number, size_t begin, size_t end) {
  RowStore& store = store_at(core, store_number);
  end = std::min(end, store.capacity());
  const nb::object records =
      empty_array({static_cast<Py_ssize_t>(store.record_nbytes())}, end > begin ? end - begin : 0, dtype("uint8"));
  const ArrayView view(records, "records", Access::kWrite);
  std::vector<int64_t> found;
  {
    nb::gil_scoped_release released;
    for (size_t row = begin; row < end; ++row) {
      std::byte* to = view.bytes() + (row - begin) * store.record_nbytes();
      const uint64_t id = store.committed(row);
      if (id != RowStore::kNone) copy_shared(to, store.record(row), store.record_nbytes());
      const bool whole = id != RowStore::kNone && store.unchanged(row, id);
      if (!whole) std::memset(to, 0, store.record_nbytes());
      found.push_back(whole ? static_cast<int64_t>(id) : -1);
    }
  }
  return nb::make_tuple(new_array<int64_t>(found), records);
}

void put_block(ReplayCore& core, size_t store_number, size_t begin, nb::handle id_array, nb::handle records) {
  RowStore& store = store_at(core, store_number);
  const ArrayView id_view(id_array, "ids");
  const ArrayView record_view(records, "records");
  const auto numbers = id_view.int64s();
  if (begin + numbers.size() > store.capacity() || record_view.nbytes() != numbers.size() * store.record_nbytes()) {
    throw nb::value_error("a block must fit the store, with one record for each id");
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] >= 0) {  // otherwise, memory that was never touched stays untouched
      std::memcpy(store.record(begin + i), record_view.bytes() + i * store.record_nbytes(), store.record_nbytes());
    }
    store.put(begin + i, static_cast<uint64_t>(numbers[i]));
  }
}

std::tuple<uint64_t, uint64_t, uint64_t, uint64_t> counters(ReplayCore& core, size_t store) {
  const auto found = store_at(core, store).counters();
  return {found.claimed, found.base, found.written, found.cleared};
}

void set_counters(ReplayCore& core, size_t store, std::tuple<uint64_t, uint64_t, uint64_t, uint64_t> values) {
  const auto [claimed, base, written, cleared] = values;
  store_at(core, store).set_counters({claimed, base, written, cleared});
  core.buffer.begin_epoch();
}

nb::tuple read_priorities(ReplayCore& core) {
  const size_t capacity = core.buffer.rows().capacity();
  const nb::object leaves = empty_array({}, capacity, dtype("float64"));
  const nb::object numbers = empty_array({}, capacity, dtype("int64"));
  core.buffer.priorities()->read_all(core.buffer.rows(),
                                     reinterpret_cast<double*>(ArrayView(leaves, "leaves", Access::kWrite).bytes()),
                                     reinterpret_cast<uint64_t*>(ArrayView(numbers, "ids", Access::kWrite).bytes()));
  return nb::make_tuple(leaves, numbers, core.buffer.priorities()->largest());
}

void put_priorities(ReplayCore& core, nb::handle leaf_array, nb::handle id_array, double largest) {
  const ArrayView leaves(leaf_array, "leaves");
  const ArrayView numbers(id_array, "ids");
  const size_t nbytes = core.buffer.rows().capacity() * sizeof(double);
  if (leaves.nbytes() != nbytes || numbers.nbytes() != nbytes) {
    throw nb::value_error("leaves and ids must have one entry for each row of the buffer");
  }
  core.buffer.priorities()->put_all(reinterpret_cast<const double*>(leaves.bytes()),
                                    reinterpret_cast<const uint64_t*>(numbers.bytes()), largest, 0);
}

nb::bytes generator_state(ReplayCore& core) {
  ReplayCore::Reader& reader = core.reader();
  const auto alone = one_at_a_time(reader.alone);
  const Random::State& state = reader.sampler.random().state();
  return nb::bytes(state.data(), sizeof state);
}

void set_generator_state(ReplayCore& core, nb::bytes bytes) {
  Random::State state;
  if (bytes.size() != sizeof state) throw nb::value_error("the state of a generator is 32 bytes");
  std::memcpy(state.data(), bytes.c_str(), sizeof state);
  ReplayCore::Reader& reader = core.reader();
  const auto alone = one_at_a_time(reader.alone);
  reader.sampler.random().set_state(state);
}

}  // namespace

void bind_replay_files(nb::class_<ReplayCore>& face) {
  face.def_prop_ro("num_stores", [](ReplayCore& core) { return core.buffer.stores().size(); })
      .def("store_shape",
           [](ReplayCore& core, size_t store) {
             return std::make_tuple(store_at(core, store).capacity(), store_at(core, store).record_nbytes());
           })
      .def("ids", &ids, nb::arg("store"), nb::arg("begin"), nb::arg("end"))
      .def("read_block", &read_block, nb::arg("store"), nb::arg("begin"), nb::arg("end"))
      .def("put_block", &put_block, nb::arg("store"), nb::arg("begin"), nb::arg("ids"), nb::arg("records"))
      .def("counters", &counters, nb::arg("store"))
      .def("set_counters", &set_counters, nb::arg("store"), nb::arg("values"))
      .def("read_priorities", &read_priorities)
      .def("put_priorities", &put_priorities, nb::arg("leaves"), nb::arg("ids"), nb::arg("largest"))
      .def("last_save", [](ReplayCore& core) { return core.buffer.last_save().load(); })
      .def("set_last_save", [](ReplayCore& core, uint64_t number) { core.buffer.last_save().store(number); })
      .def("episode_starts", [](ReplayCore& core) { return core.buffer.episode_starts().load(); })
      .def("set_episode_starts", [](ReplayCore& core, uint64_t count) { core.buffer.episode_starts().store(count); })
      .def("generator_state", &generator_state)
      .def("set_generator_state", &set_generator_state, nb::arg("state"));
}

}  // namespace penstock
