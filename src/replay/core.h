// The replay buffer as Python sees it: what its binding files share.
#pragma once

#include <nanobind/nanobind.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../bindings.h"
#include "buffer.h"
#include "per_process.h"
#include "sampler.h"
#include "threads.h"

namespace penstock {

// Properties of a field that NumPy needs, beside the plan.
struct FieldFace {
  nb::object name, dtype;
  std::vector<Py_ssize_t> shape;        // of one step
  std::vector<Py_ssize_t> batch_shape;  // of one row
};

// Seed of the generator that a forked child draws from in place of its parent's.
inline uint64_t child_seed(Random& inherited) { return inherited.next() ^ ProcessIdentity::of_this_process(); }

struct ReplayCore {
  ReplayCore(nb::object control, nb::object data, nb::handle plan, bool is_new, size_t num_threads, uint64_t seed);

  nb::object control, data;  // keep the arenas alive
  Buffer buffer;
  std::vector<FieldFace> faces;
  std::string terminated, truncated;  // names of the boundary signals; "" for none
  bool lenient;                       // takes what cpprb took: any shape of the right size, any dtype
  bool by_batch, stratified;          // how weights are normalised, how rows are drawn by priority

  // What this process reads with; a forked child draws from a stream of its own.
  struct Reader {
    Reader(Buffer& buffer, size_t num_threads, uint64_t seed) : threads(num_threads), sampler(buffer, threads, seed) {}
    Threads threads;
    Sampler sampler;
    std::timed_mutex alone;  // held while the sampler works: threads may share a buffer
  };
  Reader& reader() {
    return reader_.get([this](Reader& inherited) {
      return std::make_unique<Reader>(buffer, num_threads_, child_seed(inherited.sampler.random()));
    });
  }

 private:
  size_t num_threads_;
  PerProcess<Reader> reader_;
};

// Throws a ValueError that names the first illegal priority.
inline void require_legal(std::span<const double> priorities) {
  for (size_t i = 0; i < priorities.size(); ++i) {
    if (std::isfinite(priorities[i]) && priorities[i] >= 0) continue;
    const std::string message = "priorities[" + std::to_string(i) + "] is " + std::to_string(priorities[i]) +
                                ": priorities must be finite and not negative";
    throw nb::value_error(message.c_str());
  }
}

// Bound in files of their own: priorities, what files are made of, and writing.
void bind_replay_priorities(nb::class_<ReplayCore>& face);
void bind_replay_files(nb::class_<ReplayCore>& face);
void bind_replay_writer(nb::module_& module);

}  // namespace penstock
