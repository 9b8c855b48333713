// Python face of replay buffers: sampling, priorities, and the blocks that files are made of.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <tuple>

#include "../array_view.h"
#include "core.h"
#include "numpy_arrays.h"

namespace penstock {
namespace {

template <class Value>
Value get(nb::handle plan, const char* name) {
  return nb::cast<Value>(plan.attr(name));
}

std::vector<Py_ssize_t> lengths(nb::handle shape) {
  std::vector<Py_ssize_t> found;
  for (nb::handle length : shape) found.push_back(nb::cast<Py_ssize_t>(length));
  return found;
}

Schema schema_of(nb::handle plan) {
  Schema schema{};
  for (nb::handle field : plan.attr("fields")) {
    schema.fields.push_back(FieldPlan{
        .name = get<std::string>(field, "name"),
        .step_nbytes = get<size_t>(field, "step_nbytes"),
        .stored_nbytes = get<size_t>(field, "stored_nbytes"),
        .offset = get<size_t>(field, "offset"),
        .taken = static_cast<Taken>(get<uint8_t>(field, "taken")),
        .letter = get<std::string>(field, "letter")[0],
        .once = get<bool>(field, "once"),
        .frame_store = get<int>(field, "frame_store"),
        .outer = get<size_t>(field, "outer"),
        .depth = get<size_t>(field, "depth"),
        .inner = get<size_t>(field, "inner"),
    });
  }
  for (nb::handle store : plan.attr("frame_stores")) {
    const auto [capacity, nbytes] = nb::cast<std::tuple<size_t, size_t>>(store);
    schema.frame_stores.push_back({capacity, nbytes});
  }
  schema.record_nbytes = get<size_t>(plan, "record_nbytes");
  schema.episode_offset = get<size_t>(plan, "episode_offset");
  schema.discount_offset = get<size_t>(plan, "discount_offset");
  schema.steps_offset = get<size_t>(plan, "steps_offset");
  schema.n_step = get<size_t>(plan, "n_step");
  schema.gamma = get<double>(plan, "gamma");
  schema.length = get<size_t>(plan, "length");
  schema.period = get<size_t>(plan, "period");
  schema.reservoir = get<bool>(plan, "reservoir");
  schema.group = get<size_t>(plan, "group");
  schema.evicts = get<std::optional<double>>(plan, "eviction_alpha").has_value();
  return schema;
}

std::optional<PriorityPlan> priorities_of(nb::handle plan) {
  if (!get<bool>(plan, "prioritized")) return std::nullopt;
  return PriorityPlan{get<double>(plan, "alpha"), get<double>(plan, "eps"),
                      get<std::optional<double>>(plan, "eviction_alpha")};
}

Buffer buffer_of(nb::handle control, nb::handle data, nb::handle plan, bool is_new) {
  const auto make = is_new ? &Buffer::create : &Buffer::attach;
  return make(nb::cast<const Arena&>(control), nb::cast<const Arena&>(data), schema_of(plan),
              get<size_t>(plan, "capacity"), priorities_of(plan));
}

// The dict in which a batch is returned, with new arrays or the caller's own, for all fields or some.
class BatchOut {
 public:
  BatchOut(const ReplayCore& core, size_t rows, nb::handle out, nb::handle names = nb::none())
      : rows_(rows), out_(out) {
    const Schema& schema = core.buffer.schema();
    // Views must not move: PyBuffer_Release needs them where they were made.
    views_.reserve(core.faces.size() + 4);
    for (const FieldFace& face : core.faces) {
      const bool chosen = names.is_none() || nb::cast<bool>(names.attr("__contains__")(face.name));
      arrays_.fields.push_back(chosen ? add(face.name, face.batch_shape, face.dtype) : nullptr);
    }
    if (schema.n_step > 0) arrays_.discount = reinterpret_cast<float*>(add("discount", {}, dtype("float32")));
    if (schema.length > 0) {
      arrays_.mask = reinterpret_cast<bool*>(add("mask", {static_cast<Py_ssize_t>(schema.length)}, dtype("bool")));
    }
  }

  std::byte* add(const char* name, const std::vector<Py_ssize_t>& tail, nb::handle type) {
    return add(nb::str(name), tail, type);
  }

  std::byte* add(const nb::object& name, const std::vector<Py_ssize_t>& tail, nb::handle type) {
    nb::object array = out_.is_none() ? empty_array(tail, rows_, type) : given(name);
    const std::string shown = out_.is_none() ? "array" : "out[" + text(name) + "]";
    auto view = std::make_unique<ArrayView>(array, shown.c_str(), Access::kWrite);
    if (!out_.is_none()) check(*view, tail, type);
    std::byte* bytes = view->bytes();
    views_.push_back(std::move(view));
    batch_[name] = std::move(array);
    return bytes;
  }

  const BatchArrays& arrays() const { return arrays_; }
  nb::dict take() { return std::move(batch_); }

 private:
  nb::object given(const nb::object& name) const {
    if (!PyDict_Check(out_.ptr()) || PyDict_Contains(out_.ptr(), name.ptr()) != 1) {
      const std::string message = "out has no " + text(name) + ": make it with allocate(batch_size)";
      throw nb::key_error(message.c_str());
    }
    return nb::borrow(PyDict_GetItem(out_.ptr(), name.ptr()));
  }

  void check(const ArrayView& view, const std::vector<Py_ssize_t>& tail, nb::handle type) const {
    const auto shape = view.shape();
    if (shape.size() == tail.size() + 1 && shape[0] == static_cast<Py_ssize_t>(rows_) &&
        std::ranges::equal(shape.subspan(1), tail) && view.dtype().equal(type)) {
      return;
    }
    nb::list wanted;
    wanted.append(rows_);
    for (const Py_ssize_t length : tail) wanted.append(length);
    const std::string message = view.name() + (" must be " + text(type)) + text(wanted) + ", found " +
                                view.description() + ": make it with allocate(batch_size)";
    throw nb::value_error(message.c_str());
  }

  size_t rows_;
  nb::handle out_;
  nb::dict batch_;
  BatchArrays arrays_;
  std::vector<std::unique_ptr<ArrayView>> views_;
};

// A batch of what `draw` finds, with ids, or with positions for callers that count in rows; None if it finds nothing.
template <class Draw>
nb::object drawn(ReplayCore& core, BatchOut& out, size_t batch_size, bool positions, Draw draw) {
  std::byte* numbers = positions ? out.add("indexes", {}, dtype("uint64")) : out.add("ids", {}, dtype("int64"));
  ReplayCore::Reader& reader = core.reader();
  const auto alone = one_at_a_time(reader.alone);
  const bool found = copying(batch_size * reader.sampler.gather().row_nbytes(out.arrays()), [&] {
    if (!draw(reader.sampler)) return false;
    const auto& chosen = positions ? reader.sampler.rows() : reader.sampler.ids();
    std::memcpy(numbers, chosen.data(), chosen.size() * sizeof(uint64_t));
    return true;
  });
  return found ? nb::object(out.take()) : nb::none();
}

size_t checked(int64_t batch_size) {
  if (batch_size >= 1) return static_cast<size_t>(batch_size);
  const std::string message = "batch_size=" + std::to_string(batch_size) + " is not legal: give 1 or more";
  throw nb::value_error(message.c_str());
}

nb::object sample_uniform(ReplayCore& core, int64_t rows, nb::handle out_arrays, bool positions) {
  const size_t batch_size = checked(rows);
  BatchOut out(core, batch_size, out_arrays);
  return drawn(core, out, batch_size, positions,
               [&](Sampler& sampler) { return sampler.uniform(batch_size, out.arrays()); });
}

// A batch by priority. After the draw look(sampler) is called, before another thread draws.
template <class Look>
nb::object sample_by_priority(ReplayCore& core, size_t batch_size, double beta, nb::handle out_arrays, bool positions,
                              Look look) {
  BatchOut out(core, batch_size, out_arrays);
  auto* weights = reinterpret_cast<float*>(out.add("weights", {}, dtype("float32")));
  return drawn(core, out, batch_size, positions, [&](Sampler& sampler) {
    if (!sampler.prioritized(batch_size, core.stratified, beta, core.by_batch, out.arrays(), weights)) return false;
    look(sampler);
    return true;
  });
}

nb::object sample(ReplayCore& core, int64_t rows, double beta, nb::handle out_arrays, bool positions) {
  if (core.buffer.priorities() == nullptr) return sample_uniform(core, rows, out_arrays, positions);
  const size_t batch_size = checked(rows);
  if (!(std::isfinite(beta) && beta >= 0)) {
    const std::string message = "beta=" + std::to_string(beta) + " is not legal: give a finite number, 0 or more";
    throw nb::value_error(message.c_str());
  }
  return sample_by_priority(core, batch_size, beta, out_arrays, positions, [](const Sampler&) {});
}

// A batch by priority, its leaves, and the sum and the least of those in the whole buffer; None if there is nothing.
nb::object draw(ReplayCore& core, int64_t rows, nb::handle out_arrays) {
  std::vector<double> leaves;
  double total = 0.0;
  double least = 0.0;
  nb::object batch = sample_by_priority(core, checked(rows), 0.0, out_arrays, false, [&](const Sampler& sampler) {
    leaves = sampler.leaves();
    total = sampler.total();
    least = sampler.least();
  });
  return batch.is_none() ? batch : nb::make_tuple(batch, new_array<double>(leaves), total, least);
}

// The rows that hold these ids, and the positions among them that are gone.
nb::tuple gather_rows(ReplayCore& core, nb::handle row_array, nb::handle id_array, nb::handle out_arrays,
                      nb::handle fields) {
  const ArrayView row_view(row_array, "rows");
  const ArrayView id_view(id_array, "ids");
  const auto rows = row_view.int64s();
  const auto ids = id_view.int64s();
  const size_t outside = std::ranges::count_if(rows, [&](int64_t row) {
    return static_cast<uint64_t>(row) >= core.buffer.rows().capacity();
  });
  if (rows.size() != ids.size() || outside != 0) throw nb::index_error("rows must lie in the buffer, one for each id");
  BatchOut out(core, rows.size(), out_arrays, fields);
  std::memcpy(out.add("ids", {}, dtype("int64")), ids.data(), ids.size_bytes());
  std::vector<int64_t> unread;
  ReplayCore::Reader& reader = core.reader();
  const auto alone = one_at_a_time(reader.alone);
  Gather& gather = reader.sampler.gather();
  copying(rows.size() * gather.row_nbytes(out.arrays()), [&] {
    const auto& missing = gather(reinterpret_cast<const uint64_t*>(rows.data()),
                                 reinterpret_cast<const uint64_t*>(ids.data()), nullptr, rows.size(), out.arrays());
    unread.assign(missing.begin(), missing.end());
  });
  return nb::make_tuple(out.take(), new_array<int64_t>(unread));
}

// Sets the scores of rows that still hold these ids; returns how many do not.
size_t update_scores(ReplayCore& core, nb::handle row_array, nb::handle id_array, nb::handle score_array) {
  const ArrayView row_view(row_array, "rows");
  const ArrayView id_view(id_array, "ids");
  const ArrayView score_view(score_array, "scores");
  const auto rows = row_view.int64s();
  const auto ids = id_view.int64s();
  if (score_view.letter() != 'f' || rows.size() != ids.size() || score_view.nbytes() != 4 * rows.size()) {
    throw nb::value_error("rows, ids and scores must be int64, int64 and float32, one of each for each row");
  }
  const auto* scores = reinterpret_cast<const float*>(score_view.bytes());
  size_t gone = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<uint64_t>(rows[i]);
    if (row < core.buffer.rows().capacity() && core.buffer.rows().committed(row) == static_cast<uint64_t>(ids[i])) {
      core.buffer.set_score(row, scores[i]);
    } else {
      ++gone;
    }
  }
  return gone;
}

nb::dict allocate(ReplayCore& core, int64_t rows) {
  BatchOut out(core, checked(rows), nb::none());
  out.add("ids", {}, dtype("int64"));
  if (core.buffer.priorities() != nullptr) out.add("weights", {}, dtype("float32"));
  return out.take();
}

// Rows and ids of all readable records, or only of those whose frames are there too, oldest first, with the episode of
// each.
nb::tuple live(ReplayCore& core, bool with_frames) {
  RowStore& store = core.buffer.rows();
  struct Row {
    int64_t id, row, episode;
  };
  std::vector<Row> found;
  {
    nb::gil_scoped_release released;
    for (size_t row = 0; row < core.buffer.rows_used(); ++row) {
      const uint64_t id = store.committed(row);
      if (id == RowStore::kNone) continue;
      int64_t episode = 0;
      copy_shared(&episode, store.record(row) + core.buffer.schema().episode_offset, sizeof episode);
      if (with_frames && !core.buffer.has_frames(store.record(row))) continue;
      if (store.unchanged(row, id)) found.push_back({static_cast<int64_t>(id), static_cast<int64_t>(row), episode});
    }
    std::ranges::sort(found, {}, &Row::id);
  }
  std::vector<int64_t> rows, ids, episodes;
  for (const Row& each : found) {
    rows.push_back(each.row);
    ids.push_back(each.id);
    episodes.push_back(each.episode);
  }
  return nb::make_tuple(new_array<int64_t>(rows), new_array<int64_t>(ids), new_array<int64_t>(episodes));
}

// ---- waiting

bool await_rows(ReplayCore& core, nb::object timeout) {
  Event& added = core.buffer.added();
  uint32_t seen = 0;
  return wait_until(
      Deadline(timeout.is_none() ? std::optional<double>() : nb::cast<double>(timeout)),
      [&] {
        seen = added.count();
        return core.buffer.rows().size() > 0;
      },
      [&](int64_t slice_ns) { added.sleep(seen, slice_ns); });
}

nb::dict counts(ReplayCore& core) {
  Buffer& buffer = core.buffer;
  uint64_t frames = 0;
  for (size_t store = 1; store < buffer.stores().size(); ++store) frames += buffer.stores()[store].written();
  nb::dict found;
  found["rows_added"] = buffer.rows().written();
  found["rows_skipped"] = buffer.counts().skipped.load();
  found["rows_redrawn"] = buffer.counts().redrawn.load();
  found["rows_without_frames"] = buffer.counts().without_frames.load();
  found["updates_late"] = buffer.counts().late.load();
  found["frames_stored"] = frames;
  return found;
}

}  // namespace

ReplayCore::ReplayCore(nb::object control_arena, nb::object data_arena, nb::handle plan, bool is_new,
                       size_t num_threads, uint64_t seed)
    : control(std::move(control_arena)),
      data(std::move(data_arena)),
      buffer(buffer_of(control, data, plan, is_new)),
      terminated(get<std::string>(plan, "terminated")),
      truncated(get<std::string>(plan, "truncated")),
      lenient(get<bool>(plan, "lenient")),
      by_batch(get<bool>(plan, "by_batch")),
      stratified(get<bool>(plan, "stratified")),
      num_threads_(num_threads),
      reader_(std::make_unique<Reader>(buffer, num_threads, seed)) {
  for (nb::handle field : plan.attr("fields")) {
    nb::object name = field.attr("name");
    PyObject* interned = name.release().ptr();
    PyUnicode_InternInPlace(&interned);
    faces.push_back({nb::steal(interned), field.attr("dtype"), lengths(field.attr("shape")),
                     lengths(field.attr("batch_shape"))});
  }
}

void bind_replay(nb::module_& module) {
  nb::class_<ReplayCore> face(module, "ReplayCore",
                              "A replay buffer in two arenas; ``penstock.replay.ReplayBuffer`` is its face.");
  face.def(nb::init<nb::object, nb::object, nb::handle, bool, size_t, uint64_t>(), nb::arg("control"), nb::arg("data"),
           nb::arg("plan"), nb::arg("is_new"), nb::arg("num_threads"), nb::arg("seed"))
      .def_static(
          "sizes",
          [](nb::handle plan) {
            const auto sizes =
                Buffer::sizes(schema_of(plan), get<size_t>(plan, "capacity"), get<bool>(plan, "prioritized"));
            return std::make_tuple(sizes.control, sizes.data);
          },
          nb::arg("plan"))
      .def("sample", &sample, nb::arg("batch_size"), nb::arg("beta"), nb::arg("out").none() = nb::none(),
           nb::arg("positions") = false)
      .def("sample_uniform", &sample_uniform, nb::arg("batch_size"), nb::arg("out").none() = nb::none(),
           nb::arg("positions") = false)
      .def("draw", &draw, nb::arg("batch_size"), nb::arg("out").none() = nb::none())
      .def("gather", &gather_rows, nb::arg("rows"), nb::arg("ids"), nb::arg("out").none() = nb::none(),
           nb::arg("fields").none() = nb::none())
      .def("allocate", &allocate, nb::arg("batch_size"))
      .def("live", &live, nb::arg("with_frames") = false)
      .def("update_scores", &update_scores, nb::arg("rows"), nb::arg("ids"), nb::arg("scores"))
      .def("await_rows", &await_rows, nb::arg("timeout").none())
      .def("clear", [](ReplayCore& core) { core.buffer.clear(); })
      .def("counts", &counts)
      .def_prop_ro("size", [](ReplayCore& core) { return core.buffer.rows().size(); })
      .def_prop_ro("num_claimed", [](ReplayCore& core) { return core.buffer.rows().claimed(); })
      .def_prop_ro("capacity", [](ReplayCore& core) { return core.buffer.rows().capacity(); })
      .def_prop_ro("epoch", [](ReplayCore& core) { return core.buffer.epoch(); })
      .def_prop_ro("oldest", [](ReplayCore& core) { return core.buffer.rows().oldest(); })
      .def_prop_ro("prioritized", [](ReplayCore& core) { return core.buffer.priorities() != nullptr; });
  bind_replay_priorities(face);
  bind_replay_files(face);
  bind_replay_writer(module);
}

}  // namespace penstock
