// Python face of the ring and the doorbell.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "array_view.h"
#include "bindings.h"
#include "doorbell.h"
#include "idle_core.h"
#include "ring.h"

namespace penstock {
namespace {

using Timeout = std::optional<double>;

struct RingClosed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How many of the values were pushed before the time was over.
size_t push(Ring& ring, std::span<const int64_t> values, Timeout timeout) {
  size_t pushed = 0;
  uint32_t seen = 0;
  wait_until(
      Deadline(timeout),
      [&] {
        seen = ring.pops().count();
        pushed += ring.try_push(values.data() + pushed, values.size() - pushed);
        if (pushed < values.size() && ring.closed()) {
          if (pushed == 0) throw RingClosed("the ring is closed: nothing can be pushed any more");
          return true;
        }
        return pushed == values.size();
      },
      [&](int64_t slice_ns) { ring.pops().sleep(seen, slice_ns); });
  return pushed;
}

// Pops at least `least` items into `out`, unless the time is over; the number popped.
size_t pop(Ring& ring, std::span<int64_t> out, Timeout timeout, size_t least = 1) {
  size_t popped = 0;
  uint32_t seen = 0;
  wait_until(
      Deadline(timeout),
      [&] {
        seen = ring.pushes().count();
        // Read before popping: a ring that is found empty after it was closed stays empty.
        const bool closed = ring.closed();
        popped = ring.try_pop(out.data(), out.size(), least);
        if (popped == 0 && closed) throw RingClosed("the ring is closed and empty: nothing will come any more");
        return popped != 0;
      },
      [&](int64_t slice_ns) { ring.pushes().sleep(seen, slice_ns); });
  return popped;
}

bool push_one(Ring& ring, int64_t value, Timeout timeout) { return push(ring, {&value, 1}, timeout) == 1; }

size_t push_many(Ring& ring, nb::handle values, Timeout timeout) {
  const ArrayView view(values, "values");
  return push(ring, view.int64s(), timeout);
}

std::optional<int64_t> pop_one(Ring& ring, Timeout timeout) {
  int64_t value = 0;
  return pop(ring, {&value, 1}, timeout) == 1 ? std::optional(value) : std::nullopt;
}

nb::object pop_many(Ring& ring, size_t max_items, Timeout timeout, size_t least) {
  if (max_items == 0) throw nb::value_error("max_items must be at least 1, found 0");
  std::vector<int64_t> items(std::min(max_items, ring.capacity()));
  if (least == 0 || least > items.size()) {
    throw nb::value_error("least must be from 1 to max_items, and at most the capacity");
  }
  const size_t popped = pop(ring, items, timeout, least);
  return new_array<int64_t>(std::span(items).first(popped));
}

constexpr size_t kDoorbellNbytes = Doorbell::nbytes();

uint32_t wait(Doorbell& bell, int64_t seen_value, Timeout timeout, double spin) {
  const auto seen = static_cast<uint32_t>(seen_value);
  if (bell.value() != seen) return bell.value();
  const Deadline deadline(timeout);
  if (spin > 0 && !deadline.passed() && a_core_is_idle()) {
    nb::gil_scoped_release released;
    bell.spin(seen, std::min(static_cast<int64_t>(std::min(spin, 1.0) * 1e9), deadline.slice_ns()));
  }
  wait_until(
      deadline, [&] { return bell.value() != seen; }, [&](int64_t slice_ns) { bell.sleep(seen, slice_ns); });
  return bell.value();
}

// Waking another process takes a system call, during which it may take this core: other threads continue meanwhile.
void ring(Doorbell& bell) {
  if (!bell.is_waited_for()) return bell.ring();
  nb::gil_scoped_release released;
  bell.ring();
}

}  // namespace

void bind_signals(nb::module_& module) {
  nb::exception<RingClosed>(module, "RingClosed");

  nb::class_<Ring>(module, "Ring", R"(A bounded first-in-first-out queue of 64-bit integers between processes.

Many producers, many consumers. Any of them may be killed at any instant, also inside a call, without blocking the
others: a push or pop then happened wholly or not at all, and only what the dead process had popped is lost with it.
Every timeout is in seconds: 0 does not wait, None waits for ever. Waits release the GIL and serve signals.)")
      .def_static("nbytes", &Ring::nbytes, nb::arg("capacity"), "Bytes a ring of this capacity takes in an arena.")
      .def_static("create", &Ring::create, nb::arg("arena"), nb::arg("offset"), nb::arg("capacity"),
                  nb::keep_alive<0, 1>(), "Make an empty ring. ValueError if it does not fit at ``offset``.")
      .def_static("attach", &Ring::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the ring made at ``offset``, by any process. ValueError if there is none.")
      .def("push", &push_one, nb::arg("value"), nb::arg("timeout") = 0.0,
           R"(Append one value; whether there was room in time.

Raises
------
RingClosed
    If the ring is closed.)")
      .def("push_many", &push_many, nb::arg("values"), nb::arg("timeout") = 0.0,
           nb::sig("def push_many(self, values: numpy.ndarray, timeout: float | None = 0.0) -> int"),
           R"(Append an int64 array from its start on; the number of values there was room for in time.

The values of one call may be interleaved with others' only if they did not fit at once.

Raises
------
RingClosed
    If the ring is closed and none of the values was appended.)")
      .def("pop", &pop_one, nb::arg("timeout") = 0.0,
           R"(Take the oldest value, or None if there was none in time.

Raises
------
RingClosed
    If the ring is closed and empty.)")
      .def("pop_many", &pop_many, nb::arg("max_items"), nb::arg("timeout") = 0.0, nb::arg("least") = 1,
           nb::sig("def pop_many(self, max_items: int, timeout: float | None = 0.0, least: int = 1) -> numpy.ndarray"),
           R"(Wait for ``least`` values and take up to ``max_items``; int64 array, empty if fewer came in time.

Raises
------
RingClosed
    If the ring is closed and empty.)")
      .def("clear", &Ring::clear, "Throw away all values that are in the ring.")
      .def("close", &Ring::close, "Let nothing more in and wake everybody; values inside may still be popped.")
      .def_prop_ro("closed", &Ring::closed, "Whether close() was called, by any process.")
      .def_prop_ro("capacity", &Ring::capacity, "How many values there is room for.")
      .def("__len__", &Ring::size);

  nb::class_<Doorbell>(module, "Doorbell", R"(A counter in shared memory that one side raises and the other sleeps on.

Ringing makes a system call only if somebody sleeps.)")
      .def_ro_static("nbytes", &kDoorbellNbytes, "Bytes a doorbell takes in an arena.")
      .def_static("create", &Doorbell::create, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Make a doorbell with value 0. ValueError if it does not fit at ``offset``.")
      .def_static("attach", &Doorbell::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the doorbell made at ``offset``, by any process. ValueError if there is none.")
      .def("ring", &ring, "Raise the value by one and wake all who wait.")
      .def_prop_ro("value", &Doorbell::value, "How often it was rung, modulo 2**32.")
      .def("wait", &wait, nb::arg("seen"), nb::arg("timeout"), nb::arg("spin") = 0.0,
           R"(Wait until the value differs from ``seen``; return the current value.

Read ``value`` first, then look for work, then wait with the value read: no ring in between is missed.

Parameters
----------
seen : int
    The value already dealt with.
timeout : float or None
    Seconds after which to return anyway; None waits for ever.
spin : float
    Seconds, 0.1 at most, to watch the counter before sleeping, if a core is idle for it: quicker to react, and nobody
    else would have used the core.)");

  module.def("fence", [] { std::atomic_thread_fence(std::memory_order_seq_cst); },
             R"(Keep the order of plain loads and stores around this call, as every other process sees them.

For words and rows that are written through NumPy: write the rows, fence, write the word that says so; on the other
side read the word, fence, read the rows.)");
}

}  // namespace penstock
