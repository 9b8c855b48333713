// Python face of priority updates.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "../array_view.h"
#include "core.h"
#include "numpy_arrays.h"

namespace penstock {
namespace {

// Priorities as float64, converted by NumPy where they are something else.
class PriorityValues {
 public:
  explicit PriorityValues(nb::handle given)
      : array_(nb::module_::import_("numpy").attr("ascontiguousarray")(given, dtype("float64"))),
        view_(array_, "priorities") {
    require_legal(span());
  }

  std::span<const double> span() const {
    return {reinterpret_cast<const double*>(view_.bytes()), view_.nbytes() / sizeof(double)};
  }

 private:
  nb::object array_;
  ArrayView view_;
};

void check_count(size_t priorities, size_t rows) {
  if (priorities == rows) return;
  const std::string message = "found " + std::to_string(priorities) + " priorities for " + std::to_string(rows) +
                              " rows: give one for each";
  throw nb::value_error(message.c_str());
}

// Whole numbers as int64, converted by NumPy where they are of another dtype.
nb::object whole_numbers(nb::handle given, const char* name, bool lenient) {
  const nb::object numpy = nb::module_::import_("numpy");
  nb::object array = numpy.attr("ascontiguousarray")(given);
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (!lenient && kind != "i" && kind != "u" && nb::cast<size_t>(array.attr("size")) != 0) {
    const std::string message = std::string(name) + " must be whole numbers, found " + text(array.attr("dtype"));
    throw nb::type_error(message.c_str());
  }
  return numpy.attr("ascontiguousarray")(array, dtype("int64"));
}

size_t update(ReplayCore& core, nb::handle ids, nb::handle given) {
  const nb::object numbers = whole_numbers(ids, "ids", core.lenient);
  const ArrayView view(numbers, "ids");
  const PriorityValues priorities(given);
  check_count(priorities.span().size(), view.int64s().size());
  size_t late = 0;
  copying(view.nbytes(), [&] {
    late = core.buffer.priorities()->update(core.buffer.rows(), view.int64s().data(), priorities.span().data(),
                                            priorities.span().size());
  });
  core.buffer.counts().late.fetch_add(late, std::memory_order_relaxed);
  return late;
}

// Updates the records that are in these rows now, except those with ids from `newest` on.
size_t update_positions(ReplayCore& core, nb::handle positions, nb::handle given, uint64_t newest) {
  const nb::object numbers = whole_numbers(positions, "indexes", core.lenient);
  const ArrayView view(numbers, "indexes");
  const auto rows = view.int64s();
  const PriorityValues priorities(given);
  check_count(priorities.span().size(), rows.size());
  std::vector<int64_t> ids;
  ids.reserve(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (static_cast<uint64_t>(rows[i]) >= core.buffer.rows().capacity()) {
      const std::string message = "indexes[" + std::to_string(i) + "] is " + std::to_string(rows[i]) +
                                  ": rows are 0 to " + std::to_string(core.buffer.rows().capacity() - 1);
      throw nb::index_error(message.c_str());
    }
    const uint64_t id = core.buffer.rows().committed(static_cast<size_t>(rows[i]));
    // An id that no row can hold is passed over and counted like one that is gone.
    ids.push_back(id >= newest ? static_cast<int64_t>(RowStore::kMaxId) : static_cast<int64_t>(id));
  }
  size_t late = 0;
  copying(view.nbytes(), [&] {
    late = core.buffer.priorities()->update(core.buffer.rows(), ids.data(), priorities.span().data(), ids.size());
  });
  core.buffer.counts().late.fetch_add(late, std::memory_order_relaxed);
  return late;
}

// A finite priority >= 0.
void raise_largest(ReplayCore& core, nb::handle given) {
  const PriorityValues priorities(given);
  for (const double priority : priorities.span()) core.buffer.priorities()->raise(priority);
}

}  // namespace

void bind_replay_priorities(nb::class_<ReplayCore>& face) {
  face.def("update", &update, nb::arg("ids"), nb::arg("priorities"))
      .def("update_positions", &update_positions, nb::arg("positions"), nb::arg("priorities"),
           nb::arg("newest") = RowStore::kMaxId)
      .def("raise_largest", &raise_largest, nb::arg("priorities"))
      .def_prop_ro("total", [](ReplayCore& core) { return core.buffer.priorities()->total(core.buffer.rows()); })
      .def_prop_ro("largest_priority", [](ReplayCore& core) { return core.buffer.priorities()->largest(); });
}

}  // namespace penstock
