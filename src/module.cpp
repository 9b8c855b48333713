// penstock._native: the native core as a Python module. Python code imports it through penstock.ipc.
#include <nanobind/nanobind.h>

#include <cerrno>
#include <system_error>

#include "bindings.h"
#include "robust_mutex.h"

NB_MODULE(_native, module) {
  module.doc() = "Penstock's native core; import it through penstock.ipc.";
  // At exit other libraries may still hold objects of ours (actors of Ray do): users need no warning of that.
  nanobind::set_leak_warnings(false);
  // OSError picks its subclass (ProcessLookupError, ...) by errno.
  nanobind::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::system_error& error) {
      const nanobind::object arguments = nanobind::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, arguments.ptr());
    }
  });
  penstock::around_a_wait = [](bool (*wait)(void*), void* mutex) {
    const bool had_gil = !penstock::without_gil;
    if (had_gil) {
      const nanobind::gil_scoped_release released;
      if (wait(mutex)) return true;
    } else if (wait(mutex)) {
      return true;
    }
    const nanobind::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    return false;
  };
  penstock::bind_arena(module);
  penstock::bind_signals(module);
  penstock::bind_state(module);
  penstock::bind_node_slots(module);
  penstock::bind_rows(module);
  penstock::bind_networks(module);
  penstock::bind_replay(module);
  penstock::bind_sum_tree(module);
  penstock::bind_rate_limiter(module);
}
