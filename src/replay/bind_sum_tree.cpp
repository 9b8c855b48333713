// Python face of the sum tree. All calls keep the GIL: threads of one process cannot meet inside the tree.
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "../array_view.h"
#include "../bindings.h"
#include "../rows.h"
#include "sum_tree.h"

namespace penstock {
namespace {

std::string text(double value) { return penstock::text(nb::float_(value)); }

std::string entry(size_t i, const ArrayView& view) {
  return " (entry " + std::to_string(i) + " of " + view.name() + ")";
}

std::span<const double> float64s(const ArrayView& view) {
  if (view.letter() != 'd') {
    const std::string message = std::string(view.name()) + " must be a float64 array, found " + view.description();
    throw nb::value_error(message.c_str());
  }
  return {reinterpret_cast<const double*>(view.bytes()), view.nbytes() / sizeof(double)};
}

// The numbers of existing rows.
std::span<const uint64_t> checked_rows(const SumTree& tree, const ArrayView& view) {
  const std::span<const int64_t> rows = view.int64s();
  const size_t bad = first_outside(rows.data(), rows.size(), tree.capacity());
  if (bad != rows.size()) {
    const std::string message = "row " + std::to_string(rows[bad]) + entry(bad, view) +
                                " is outside the tree: rows are 0 to " + std::to_string(tree.capacity() - 1);
    throw nb::index_error(message.c_str());
  }
  return {reinterpret_cast<const uint64_t*>(rows.data()), rows.size()};
}

nb::object leaf(const SumTree& tree, nb::handle rows_array) {
  const ArrayView view(rows_array, "rows");
  const std::span<const uint64_t> rows = checked_rows(tree, view);
  nb::object leaves = nb::module_::import_("numpy").attr("empty")(rows.size());
  const ArrayView out(leaves, "leaves", Access::kWrite);
  auto* values = reinterpret_cast<double*>(out.bytes());
  for (size_t i = 0; i < rows.size(); ++i) values[i] = tree.leaf(rows[i]);
  return leaves;
}

void update(SumTree& tree, nb::handle rows_array, nb::handle values_array) {
  const ArrayView rows_view(rows_array, "rows");
  const ArrayView values_view(values_array, "values");
  const std::span<const uint64_t> rows = checked_rows(tree, rows_view);
  const std::span<const double> values = float64s(values_view);
  if (rows.size() != values.size()) {
    const std::string message = "values must have one entry for each of rows: found " + values_view.description() +
                                " for rows " + rows_view.description();
    throw nb::value_error(message.c_str());
  }
  const double largest = tree.largest_leaf();
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] >= 0.0 && values[i] <= largest)) {
      const std::string message = "value " + text(values[i]) + entry(i, values_view) + " is not from 0 to " +
                                  text(largest) + ", the largest with which every total is finite";
      throw nb::value_error(message.c_str());
    }
  }
  for (size_t i = 0; i < rows.size(); ++i) tree.set_leaf(rows[i], values[i]);
  tree.refresh(rows.data(), rows.size());
}

nb::object draw(const SumTree& tree, nb::handle masses_array) {
  const ArrayView view(masses_array, "masses");
  const std::span<const double> masses = float64s(view);
  const double total = tree.total();
  if (total == 0.0) throw nb::value_error("all leaves are 0, so no row can be drawn: update() some first");
  for (size_t i = 0; i < masses.size(); ++i) {
    if (!(masses[i] >= 0.0 && masses[i] <= total)) {
      const std::string message =
          "mass " + text(masses[i]) + entry(i, view) + " is not from 0 to total, which is " + text(total);
      throw nb::value_error(message.c_str());
    }
  }
  std::vector<uint64_t> rows(masses.size());
  tree.draw(masses.data(), masses.size(), rows.data());
  return new_array<int64_t>({reinterpret_cast<const int64_t*>(rows.data()), rows.size()});
}

}  // namespace

void bind_sum_tree(nb::module_& module) {
  nb::class_<SumTree>(module, "SumTree", R"(Rows with a leaf each, drawn in proportion to their leaves.

A tree of sums, 16 children to a node, in float64. Nodes are computed anew from their children whenever a leaf changes,
so the total never drifts. Reading and changing it is for one process at a time: the caller sees to that. If one died
inside, ``rebuild()``.)")
      .def_static("nbytes", &SumTree::nbytes, nb::arg("capacity"), "Bytes a tree takes in an arena.")
      .def_static("create", &SumTree::create, nb::arg("arena"), nb::arg("offset"), nb::arg("capacity"),
                  nb::keep_alive<0, 1>(), "Make a tree whose leaves are all 0. ValueError if it does not fit.")
      .def_static("attach", &SumTree::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the tree made at ``offset``, by any process. ValueError if there is none.")
      .def_prop_ro("capacity", &SumTree::capacity, "Number of rows.")
      .def_prop_ro("total", &SumTree::total, "Sum of all leaves.")
      .def_prop_ro("least", &SumTree::least, "The least leaf above 0; infinity when there is none.")
      .def_prop_ro("largest_leaf", &SumTree::largest_leaf, "The largest leaf with which every total is finite.")
      .def("leaf", &leaf, nb::arg("rows"), nb::sig("def leaf(self, rows: numpy.ndarray) -> numpy.ndarray"),
           "The leaves of these rows, int64 ``[n]``, as float64 ``[n]``. IndexError if a row is outside the tree.")
      .def("update", &update, nb::arg("rows"), nb::arg("values"),
           nb::sig("def update(self, rows: numpy.ndarray, values: numpy.ndarray) -> None"),
           R"(Change the leaves of these rows. Sorted rows are the quickest; of equal rows the last value stays.

Parameters
----------
rows : int64 array ``[n]``
values : float64 array ``[n]``
    From 0 (never drawn) to ``largest_leaf``.

Raises
------
IndexError
    If a row is outside the tree.
ValueError
    If a value is out of range, or dtypes or lengths do not fit. Nothing is changed when an error is raised.)")
      .def("draw", &draw, nb::arg("masses"), nb::sig("def draw(self, masses: numpy.ndarray) -> numpy.ndarray"),
           R"(The rows that cover these masses: leaves laid end to end in the order of their rows cover [0, total).

Parameters
----------
masses : float64 array ``[n]``
    From 0 to ``total``; ``total * (arange(n) + uniform(n)) / n`` is a stratified draw (arXiv:1511.05952, appendix
    B.2.1). Where rounding carries a mass to ``total``, the last row that is not 0 gets it.

Returns
-------
int64 array ``[n]``
    Never a row whose leaf is 0.

Raises
------
ValueError
    If a mass is out of range, or all leaves are 0.)")
      .def("rebuild", &SumTree::rebuild,
           "Compute every node from the leaves, for when a process died while changing them.");
}

}  // namespace penstock
