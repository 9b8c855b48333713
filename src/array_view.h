// NumPy arrays seen from C++ through the buffer protocol, which costs about a tenth of a microsecond per array.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

namespace penstock {

namespace nb = nanobind;

enum class Access { kRead, kWrite };

// The result of str(), for error messages.
inline std::string text(nb::handle object) { return nb::str(object).c_str(); }

inline std::string class_name(nb::handle object) {
  const nb::object name = object.type().attr("__name__");
  return text(name);
}

// A C-contiguous array, kept alive and in place as long as the view lives.
class ArrayView {
 public:
  // `name` is the argument's name, for errors: ValueError unless the array is contiguous, writable and
  // made of numbers, TypeError for something other than an array.
  ArrayView(nb::handle array, const char* name, Access access = Access::kRead) : array_(array), name_(name) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (access == Access::kWrite ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) fail(access);
  }
  ~ArrayView() { PyBuffer_Release(&view_); }
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  std::byte* bytes() const { return static_cast<std::byte*>(view_.buf); }
  size_t nbytes() const { return static_cast<size_t>(view_.len); }
  size_t itemsize() const { return static_cast<size_t>(view_.itemsize); }
  std::span<const Py_ssize_t> shape() const { return {view_.shape, static_cast<size_t>(view_.ndim)}; }
  const char* name() const { return name_; }
  const char* format() const { return view_.format == nullptr ? "B" : view_.format; }

  // TypeError for a buffer of another kind, such as a memoryview.
  nb::object dtype() const {
    if (!nb::hasattr(array_, "dtype")) refuse();
    return array_.attr("dtype");
  }

  // The element type's letter, for types of one letter in native byte order; 0 for all others.
  char letter() const { return format()[0] != '\0' && format()[1] == '\0' ? format()[0] : '\0'; }

  // The elements as int64, or ValueError. NumPy has two names for the same type: long and long long.
  std::span<const int64_t> int64s() const {
    if (letter() != 'l' && letter() != 'q') {
      const std::string message = std::string(name_) + " must be an int64 array, found " + description();
      throw nb::value_error(message.c_str());
    }
    return {static_cast<const int64_t*>(view_.buf), nbytes() / sizeof(int64_t)};
  }

  // "float32[128, 4]", for errors.
  std::string description() const { return describe(array_); }

 private:
  static std::string describe(nb::handle array) {
    if (!nb::hasattr(array, "dtype") || !nb::hasattr(array, "shape")) {
      return "a buffer of type " + class_name(array);
    }
    const nb::object dtype = array.attr("dtype");
    const nb::object shape = array.attr("shape");
    return text(dtype) + text(nb::list(shape));
  }

  [[noreturn]] void refuse() const {
    const std::string message = std::string(name_) + " must be a NumPy array, found " + class_name(array_);
    throw nb::type_error(message.c_str());
  }

  [[noreturn]] void fail(Access access) const {
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(PyExc_BufferError)) {
      PyErr_Clear();
      refuse();
    }
    const nb::python_error reason;  // takes over the error that is set
    const std::string message = std::string(name_) + " must be a " + (access == Access::kWrite ? "writable " : "") +
                                "C-contiguous array of plain numbers, found " + describe(array_) + ": " +
                                text(reason.value());
    throw nb::value_error(message.c_str());
  }

  Py_buffer view_{};
  nb::handle array_;
  const char* name_;
};

// A new one-dimensional NumPy array holding a copy of the elements. Made by calling np.empty, which is several times
// quicker than handing the memory over through DLPack.
template <class Element>
nb::object new_array(std::span<const Element> elements) {
  constexpr bool is_bool = std::is_same_v<Element, bool>, is_double = std::is_same_v<Element, double>;
  static_assert(is_bool || is_double || std::is_same_v<Element, int64_t>);
  // Looked up once and never released: the interpreter may be gone before C++ destroys its statics.
  static const auto* empty = new nb::object(nb::module_::import_("numpy").attr("empty"));
  static const auto* dtype = new nb::object(
      nb::module_::import_("numpy").attr("dtype")(is_bool ? "bool" : is_double ? "float64" : "int64"));
  nb::object array = (*empty)(elements.size(), *dtype);
  if (!elements.empty()) {
    std::memcpy(ArrayView(array, "array", Access::kWrite).bytes(), elements.data(), elements.size_bytes());
  }
  return array;
}

}  // namespace penstock
