// Python face of the arena, and of what a process tells the kernel about itself.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "arena.h"
#include "array_view.h"
#include "bindings.h"
#include "process.h"

namespace penstock {
namespace {

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* arena = nb::inst_ptr<Arena>(nb::handle(self));
  return PyBuffer_FillInfo(view, self, arena->base(), static_cast<Py_ssize_t>(arena->nbytes()), 0, flags);
}

PyType_Slot arena_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

// NumPy makes the array from the arena's buffer, so the array keeps the arena alive.
nb::object array(nb::handle self, size_t offset, nb::handle shape, nb::handle dtype_like) {
  const auto& arena = nb::cast<const Arena&>(self);
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object dtype = numpy.attr("dtype")(dtype_like);
  if (nb::cast<bool>(dtype.attr("hasobject"))) {
    throw nb::value_error("an arena holds plain numbers, not Python objects: dtype object cannot be shared");
  }
  const auto alignment = nb::cast<size_t>(dtype.attr("alignment"));
  if (offset % alignment != 0) {
    const std::string message = "offset " + std::to_string(offset) + " is not a multiple of " +
                                std::to_string(alignment) + ", the alignment of " + text(dtype);
    throw nb::value_error(message.c_str());
  }
  size_t nbytes = nb::cast<size_t>(dtype.attr("itemsize"));
  const nb::object lengths = nb::isinstance<nb::int_>(shape) ? nb::object(nb::make_tuple(shape)) : nb::borrow(shape);
  for (nb::handle length : lengths) {
    const auto count = nb::cast<Py_ssize_t>(length);
    if (count < 0 || __builtin_mul_overflow(nbytes, static_cast<size_t>(count), &nbytes)) {
      const std::string message = "shape " + text(shape) + " is no shape of an array";
      throw nb::value_error(message.c_str());
    }
  }
  if (offset > arena.nbytes() || nbytes > arena.nbytes() - offset) {
    const std::string message = "an array " + text(dtype) + text(shape) + " of " + std::to_string(nbytes) +
                                " bytes at offset " + std::to_string(offset) + " does not fit: the arena ends at " +
                                std::to_string(arena.nbytes());
    throw nb::value_error(message.c_str());
  }
  return numpy.attr("ndarray")(shape, dtype, self, offset);
}

}  // namespace

void bind_arena(nb::module_& module) {
  nb::class_<Arena>(module, "Arena", nb::type_slots(arena_slots), R"(One anonymous block of shared memory.

Nothing has a name, so nothing can be left behind: the memory is gone when the last process that holds it is.
Its size is reserved at once and sealed. Processes share it by descriptor: inherited over fork, or sent over a
Unix socket (``multiprocessing.reduction``, ``socket.send_fds``). Structures are placed in it at offsets that are
multiples of 64; their ``nbytes`` is one too.)")
      .def_static("create", &Arena::create, nb::arg("nbytes"), nb::call_guard<nb::gil_scoped_release>(),
                  R"(Reserve a new arena, all zero.

Raises
------
OSError
    With errno ENOSPC if there is no room. Call ``require_memory`` first: on most machines too large a
    reservation is not refused but answered by the kernel's OOM killer.)")
      .def_static("create_on_disk", &Arena::create_on_disk, nb::arg("directory"), nb::arg("nbytes"),
                  nb::call_guard<nb::gil_scoped_release>(),
                  R"(Reserve a new arena, all zero, in a file without a name on the disk of ``directory``.

The kernel keeps in memory what it has room for. The file is gone with the last process that holds it.

Raises
------
OSError
    With errno ENOSPC if the disk has no room; EOPNOTSUPP if its file system knows no anonymous files (``O_TMPFILE``).)")
      .def_static("attach", &Arena::attach, nb::arg("fd"), R"(Map the arena behind an inherited or received descriptor.

Takes ownership of ``fd``: it is closed together with the arena, so pass ``os.dup(fd)`` to keep your own.

Raises
------
OSError
    If ``fd`` is not an open descriptor of mappable memory.
ValueError
    If it holds no bytes.)")
      .def_prop_ro("fd", &Arena::fd, "The descriptor other processes attach to; owned by the arena.")
      .def_prop_ro("nbytes", &Arena::nbytes, "Size in bytes, as given to ``create``.")
      .def("array", &array, nb::arg("offset"), nb::arg("shape"), nb::arg("dtype"),
           nb::sig("def array(self, offset: int, shape: int | tuple[int, ...], dtype: object) -> numpy.ndarray"),
           R"(A C-contiguous array over the arena's bytes from ``offset`` on; it keeps the arena alive.

Raises
------
ValueError
    If the array does not fit, is not aligned for its dtype, or would hold Python objects.)");

  module.def(
      "set_parent_death_signal",
      [](int signum, int expected_parent_pid) {
        if (!set_parent_death_signal(signum, expected_parent_pid)) {
          throw std::system_error(ESRCH, std::generic_category(),
                                  "the parent, process " + std::to_string(expected_parent_pid) + ", is gone already");
        }
      },
      nb::arg("signum"), nb::arg("expected_parent_pid"),
      R"(Ask the kernel to send ``signum`` to this process when its parent dies.

"Parent" is the *thread* that forked this process: let it live as long as its children should.

Raises
------
ProcessLookupError
    If the parent is not (any more) ``expected_parent_pid``: it died before the request, so no signal will come.
OSError
    If ``signum`` is no signal.)");
}

}  // namespace penstock
