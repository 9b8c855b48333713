// What callers give to add(): numbers and arrays, read without a copy where they are of the right dtype.
#pragma once

#include <nanobind/nanobind.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace penstock {

namespace nb = nanobind;

// One value of an add(): steps of a field in a row, in the caller's array or, for a Python number, in the scratch.
struct StepValues {
  const std::byte* bytes = nullptr;
  size_t nbytes = 0;
  size_t steps = 0;
};

// Keeps the arrays of one add() in place. Reused from add to add, so that nothing is allocated.
class HeldArrays {
 public:
  ~HeldArrays() { release(); }

  // The view of a C-contiguous array in `array`, or nullptr.
  const Py_buffer* hold(nb::handle array) {
    if (used_ == views_.size()) views_.push_back(std::make_unique<Py_buffer>());
    Py_buffer* view = views_[used_].get();
    if (PyObject_GetBuffer(array.ptr(), view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
      PyErr_Clear();
      return nullptr;
    }
    ++used_;
    return view;
  }

  void keep(nb::object object) { objects_.push_back(std::move(object)); }

  void release() {
    while (used_ > 0) PyBuffer_Release(views_[--used_].get());
    objects_.clear();
  }

 private:
  std::vector<std::unique_ptr<Py_buffer>> views_;
  size_t used_ = 0;
  std::vector<nb::object> objects_;
};

inline bool same_letter(const char* format, char letter) {
  if (format == nullptr) return letter == 'B';
  if (format[0] == '\0' || format[1] != '\0') return false;
  // NumPy has two names for the same type: long and long long.
  const auto plain = [](char given) { return given == 'q' ? 'l' : given == 'Q' ? 'L' : given; };
  return plain(format[0]) == plain(letter);
}

// Stores a Python number as a value of one element if it certainly fits; everything else is left to NumPy.
inline bool store_number(nb::handle number, char letter, std::byte* to) {
  const auto put = [&](auto value) {
    std::memcpy(to, &value, sizeof value);
    return true;
  };
  if (PyFloat_Check(number.ptr())) {
    const double value = PyFloat_AsDouble(number.ptr());
    if (letter == 'd') return put(value);
    if (letter == 'f' && (std::abs(value) <= std::numeric_limits<float>::max() || !std::isfinite(value))) {
      return put(static_cast<float>(value));
    }
    return false;
  }
  if (PyBool_Check(number.ptr()) && letter == '?') return put(number.is(nb::handle(Py_True)));
  if (!PyLong_Check(number.ptr())) return false;
  const long long whole = PyLong_AsLongLong(number.ptr());
  if (whole == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return false;
  }
  const auto put_if_fits = [&](auto as_type) {
    using Type = decltype(as_type);
    return std::in_range<Type>(whole) && put(static_cast<Type>(whole));
  };
  switch (letter) {
    case 'f': return put(static_cast<float>(whole));
    case 'd': return put(static_cast<double>(whole));
    case 'b': return put_if_fits(int8_t{});
    case 'B': return put_if_fits(uint8_t{});
    case 'h': return put_if_fits(int16_t{});
    case 'H': return put_if_fits(uint16_t{});
    case 'i': return put_if_fits(int32_t{});
    case 'I': return put_if_fits(uint32_t{});
    case 'l':
    case 'q': return put_if_fits(int64_t{});
    case 'L':
    case 'Q': return put_if_fits(uint64_t{});
    default: return false;
  }
}

// What an add() may be given under one name.
struct Slot {
  nb::object name;
  size_t step_nbytes;
  size_t itemsize;
  char letter;
  std::vector<Py_ssize_t> shape;
  nb::object dtype;
};

}  // namespace penstock
