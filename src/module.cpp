// penstock._native: the native core as a Python module. Python code imports it through penstock.ipc.
#include <nanobind/nanobind.h>

#include <cerrno>
#include <system_error>

#include "bindings.h"
#include "robust_mutex.h"

NB_MODULE(_native, module) {
  module.doc() = "Penstock's native core; import it through penstock.ipc.";
  // OSError picks its subclass (ProcessLookupError, ...) by errno.
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      const nanobind::object arguments = nanobind::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });
  penstock::while_waiting_for_a_mutex = [] {
    const nanobind::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  };
  penstock::bind_arena(module);
  penstock::bind_signals(module);
  penstock::bind_state(module);
  penstock::bind_rows(module);
  penstock::bind_replay(module);
  penstock::bind_sum_tree(module);
  penstock::bind_rate_limiter(module);
}
