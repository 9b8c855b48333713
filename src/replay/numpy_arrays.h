// New NumPy arrays of any dtype and shape.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

namespace penstock {

namespace nb = nanobind;

// [rows, *tail], uninitialised.
inline nb::object empty_array(const std::vector<Py_ssize_t>& tail, size_t rows, nb::handle dtype) {
  // Looked up once and never released: the interpreter may be gone before C++ destroys its statics.
  static const auto* empty = new nb::object(nb::module_::import_("numpy").attr("empty"));
  const nb::object shape = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(tail.size()) + 1));
  PyTuple_SetItem(shape.ptr(), 0, PyLong_FromSize_t(rows));
  for (size_t i = 0; i < tail.size(); ++i) {
    PyTuple_SetItem(shape.ptr(), static_cast<Py_ssize_t>(i) + 1, PyLong_FromSsize_t(tail[i]));
  }
  return (*empty)(shape, dtype);
}

// One of the dtypes that batches need beside those of the fields.
inline nb::handle dtype(const char* name) {
  static const auto* dtypes = new nb::dict([] {
    nb::dict made;
    for (const char* each : {"int64", "uint64", "uint8", "float32", "float64", "bool"}) {
      made[each] = nb::module_::import_("numpy").attr("dtype")(each);
    }
    return made;
  }());
  return nb::handle(PyDict_GetItemString(dtypes->ptr(), name));
}

}  // namespace penstock
