// Python face of the rate limiter.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "../bindings.h"
#include "rate_limiter.h"

namespace penstock {
namespace {

using Timeout = std::optional<double>;

constexpr size_t kRateLimiterNbytes = RateLimiter::nbytes();

uint64_t checked(int64_t n) {
  if (n >= 1 && static_cast<uint64_t>(n) <= RateLimiter::kMaxRequest) return static_cast<uint64_t>(n);
  const std::string message =
      "n must be from 1 to " + std::to_string(RateLimiter::kMaxRequest) + ", found " + std::to_string(n);
  throw nb::value_error(message.c_str());
}

uint64_t counter(int64_t value, const char* name) {
  if (value >= 0) return static_cast<uint64_t>(value);
  const std::string message = std::string(name) + " must not be negative, found " + std::to_string(value);
  throw nb::value_error(message.c_str());
}

bool await_insert(RateLimiter& limiter, int64_t n, Timeout timeout) {
  const uint64_t count = checked(n);
  uint32_t seen = 0;
  return wait_until(
      Deadline(timeout),
      [&] {
        seen = limiter.sampled().count();
        return limiter.try_insert(count);
      },
      [&](int64_t slice_ns) { limiter.sleep_until_sampled(seen, slice_ns); });
}

bool await_sample(RateLimiter& limiter, int64_t n, Timeout timeout) {
  const uint64_t count = checked(n);
  uint32_t seen = 0;
  return wait_until(
      Deadline(timeout),
      [&] {
        seen = limiter.inserted().count();
        return limiter.try_sample(count);
      },
      [&](int64_t slice_ns) { limiter.sleep_until_inserted(seen, slice_ns); });
}

double seconds(const std::atomic<int64_t>& nanoseconds) { return static_cast<double>(nanoseconds.load()) * 1e-9; }

}  // namespace

void bind_rate_limiter(nb::module_& module) {
  nb::class_<RateLimiter>(module, "RateLimiter", R"(Two counters in shared memory that are kept in step.

Lock-free: a process killed at any instant holds nobody up. ``penstock.replay.RateLimiter`` is its friendlier face.
Every timeout is in seconds: 0 does not wait, None waits for ever. Waits release the GIL and serve signals.)")
      .def_ro_static("nbytes", &kRateLimiterNbytes, "Bytes a rate limiter takes in an arena.")
      .def_static(
          "create",
          [](const Arena& arena, size_t offset, double samples_per_insert, double tolerance, int64_t min_size) {
            return RateLimiter::create(arena, offset, samples_per_insert, tolerance, counter(min_size, "min_size"));
          },
          nb::arg("arena"), nb::arg("offset"), nb::arg("samples_per_insert"), nb::arg("tolerance"),
          nb::arg("min_size"), nb::keep_alive<0, 1>(),
          R"(Make a limiter with both counters 0; samples_per_insert inf: only min_size counts.

Raises
------
ValueError
    If a setting is out of range or the limiter does not fit at ``offset``.)")
      .def_static("attach", &RateLimiter::attach, nb::arg("arena"), nb::arg("offset"), nb::keep_alive<0, 1>(),
                  "Find the limiter made at ``offset``, by any process. ValueError if there is none.")
      .def(
          "try_insert", [](RateLimiter& limiter, int64_t n) { return limiter.try_insert(checked(n)); }, nb::arg("n"),
          "Count n rows inserted if they may go now; whether they did. ValueError if they exceed the tolerance.")
      .def(
          "try_sample", [](RateLimiter& limiter, int64_t n) { return limiter.try_sample(checked(n)); }, nb::arg("n"),
          "Count n samples taken if they may go now; whether they did. ValueError if they exceed the tolerance.")
      .def("await_insert", &await_insert, nb::arg("n"), nb::arg("timeout").none(),
           "The same as try_insert, waiting until they may go; False when the time is over.")
      .def("await_sample", &await_sample, nb::arg("n"), nb::arg("timeout").none(),
           "The same as try_sample, waiting until they may go; False when the time is over.")
      .def(
          "set_counters",
          [](RateLimiter& limiter, int64_t inserts, int64_t samples) {
            limiter.set_counters(counter(inserts, "inserts"), counter(samples, "samples"));
          },
          nb::arg("inserts"), nb::arg("samples"), R"(Set both counters, while nobody inserts or samples.

Raises
------
ValueError
    If a counter is negative, or together they lie outside the band.)")
      .def_prop_ro("samples_per_insert", &RateLimiter::samples_per_insert, "The ratio kept; inf if there is none.")
      .def_prop_ro("tolerance", &RateLimiter::tolerance, "How far the surplus may be from 0, in samples.")
      .def_prop_ro("min_size", &RateLimiter::min_size, "Rows to insert before the first sample.")
      .def_prop_ro("largest_insert", &RateLimiter::largest_insert,
                   "Most rows that one request may have once min_size is reached.")
      .def_prop_ro("inserts", &RateLimiter::inserts, "Rows inserted so far, by all processes.")
      .def_prop_ro("samples", &RateLimiter::samples, "Samples taken so far, by all processes.")
      .def_prop_ro("surplus", nb::overload_cast<>(&RateLimiter::surplus, nb::const_),
                   "(inserts - min_size) * samples_per_insert - samples: samples due, less those taken.")
      .def_prop_ro(
          "insert_wait", [](RateLimiter& limiter) { return seconds(limiter.insert_wait()); },
          "Seconds that inserts have waited, added up over processes.")
      .def_prop_ro(
          "sample_wait", [](RateLimiter& limiter) { return seconds(limiter.sample_wait()); },
          "Seconds that samples have waited, added up over processes.");
}

}  // namespace penstock
