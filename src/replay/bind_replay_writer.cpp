// Python face of writing: the values of one add() are all read and checked before the first of them is written.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include "../array_view.h"
#include "core.h"
#include "lanes.h"
#include "step_values.h"
#include "writer.h"

namespace penstock {
namespace {

class ReplayWriter {
 public:
  ReplayWriter(nb::object core_object, size_t lanes, uint64_t seed, nb::object convert)
      : core_object_(std::move(core_object)),
        core_(nb::cast<ReplayCore&>(core_object_)),
        num_lanes_(lanes),
        convert_(std::move(convert)),
        writer_(core_.buffer, seed),
        lanes_(core_.buffer.schema(), lanes, writer_.episode()) {
    const Schema& schema = core_.buffer.schema();
    for (size_t f = 0; f < schema.fields.size(); ++f) {
      const FieldFace& face = core_.faces[f];
      const auto itemsize = nb::cast<size_t>(face.dtype.attr("itemsize"));
      slots_.push_back({face.name, schema.fields[f].step_nbytes, itemsize, schema.fields[f].letter, face.shape,
                        face.dtype});
    }
    terminated_ = boundary(core_.terminated);
    truncated_ = boundary(core_.truncated);
    const auto numpy = nb::module_::import_("numpy");
    priorities_ = Slot{nb::str("priorities"), sizeof(double), sizeof(double), 'd', {}, numpy.attr("dtype")("float64")};
    mask_ = Slot{nb::str("mask"), 1, 1, '?', {}, numpy.attr("dtype")("bool")};
    straight_ = schema.plain() && schema.frame_stores.empty() && lanes == 1;
    make_room();
  }

  // The writer of a forked child: it writes the same fields, with nothing begun.
  explicit ReplayWriter(ReplayWriter& inherited)
      : core_object_(inherited.core_object_),
        core_(inherited.core_),
        num_lanes_(inherited.num_lanes_),
        convert_(inherited.convert_),
        writer_(core_.buffer, child_seed(inherited.writer_.random())),
        lanes_(core_.buffer.schema(), num_lanes_, writer_.episode()),
        straight_(inherited.straight_),
        slots_(inherited.slots_),
        terminated_(inherited.terminated_),
        truncated_(inherited.truncated_),
        priorities_(inherited.priorities_),
        mask_(inherited.mask_) {
    make_room();
  }

  // Writes steps [begin, end) of those given: from step 0 as a new addition, from a later one as a further part of it.
  // The id of the first row that this part finished, or None.
  nb::object add(nb::dict given, size_t begin, size_t end) {
    const auto alone = one_at_a_time(adding_);
    const Release release{held_};
    Steps steps = read_all(given);
    steps.cut(begin, std::min(end, steps.count));
    copying(steps.nbytes, [&] {
      begin_add();
      if (straight_) {
        write_rows(steps);
      } else {
        write_steps(steps);
      }
      writer_.end_add();
    });
    return finished(begin > 0);
  }

  // How many steps are given; raises all that add() would.
  size_t check(nb::dict given) {
    const auto alone = one_at_a_time(adding_);
    const Release release{held_};
    return read_all(given).count;
  }

  // How many rows add() of these steps would finish.
  size_t count_rows(nb::dict given, size_t begin, size_t end) {
    const auto alone = one_at_a_time(adding_);
    const Release release{held_};
    Steps steps = read_all(given);
    steps.cut(begin, std::min(end, steps.count));
    begin_add();
    std::vector<Lanes::Pending> pending;
    for (size_t lane = 0; lane < num_lanes_; ++lane) pending.push_back(lanes_.unfinished(lane));
    size_t rows = 0;
    for (size_t i = steps.begin; i < steps.count; ++i) {
      if (steps.mask != nullptr && !steps.mask[i]) continue;
      rows += lanes_.finishes(pending[num_lanes_ > 1 ? i : 0], is_set(terminated_, i) || is_set(truncated_, i));
    }
    return rows;
  }

  // How many rows end_episode() would finish.
  size_t count_rows_at_end(std::optional<int64_t> lane) {
    const auto alone = one_at_a_time(adding_);
    begin_add();
    size_t rows = 0;
    for (size_t each = 0; each < num_lanes_; ++each) {
      if (!lane || static_cast<size_t>(*lane) == each) rows += lanes_.finishes_at_end(lanes_.unfinished(each));
    }
    return rows;
  }

  nb::object end_episode(std::optional<int64_t> lane) {
    if (lane && static_cast<uint64_t>(*lane) >= num_lanes_) {
      const std::string message = "lane " + std::to_string(*lane) + " is not legal: lanes are 0 to " +
                                  std::to_string(num_lanes_ - 1);
      throw nb::index_error(message.c_str());
    }
    const auto alone = one_at_a_time(adding_);
    begin_add();
    if (straight_) {
      writer_.end_episode();
      length_ = 0;
    }
    for (size_t each = 0; each < num_lanes_ && !straight_; ++each) {
      if (!lane || static_cast<size_t>(*lane) == each) lanes_.end_episode(writer_, each);
    }
    writer_.end_add();
    return finished(false);
  }

  // Ids of the rows that the last add() or end_episode() finished, by all its parts.
  nb::object written() {
    const auto alone = one_at_a_time(adding_);
    begin_add();
    return new_array<int64_t>(written_);
  }

  size_t episode_length(size_t lane) const { return straight_ ? length_ : lanes_.pending(lane); }

 private:
  struct Release {
    HeldArrays& held;
    ~Release() { held.release(); }
  };

  // What one add() is given beside the values_ of the fields.
  struct Steps {
    size_t count = 0;
    size_t nbytes = 0;
    const double* priorities = nullptr;
    const bool* mask = nullptr;
    size_t begin = 0;  // of those to be written

    void cut(size_t from, size_t to) {
      begin = std::min(from, to);
      count = to;
    }
  };

  void make_room() {
    values_.resize(slots_.size());
    pointers_.resize(slots_.size());
    size_t scratch = 0;
    for (const Slot& slot : slots_) scratch += slot.itemsize;
    scratch_.resize(scratch + 4 * sizeof(double));
  }

  Steps read_all(nb::dict given) {
    scratch_used_ = 0;
    Steps steps;
    size_t known = 0;
    for (size_t s = 0; s < slots_.size(); ++s) {
      PyObject* value = PyDict_GetItemWithError(given.ptr(), slots_[s].name.ptr());
      if (value == nullptr) {
        if (s < core_.faces.size()) missing(slots_[s], given);
        values_[s] = {};  // a boundary signal that is not stored
        continue;
      }
      ++known;
      values_[s] = read(slots_[s], value);
      if (s == 0) steps.count = values_[0].steps;
      if (values_[s].steps != steps.count) unequal(s, steps.count);
      steps.nbytes += values_[s].nbytes;
    }
    if (num_lanes_ > 1 && steps.count != num_lanes_) wrong_lanes(steps.count);
    steps.priorities = read_priorities(given, steps.count, known);
    steps.mask = read_mask(given, steps.count, known);
    if (!core_.lenient && known != static_cast<size_t>(PyDict_Size(given.ptr()))) unknown(given);
    require_boundaries(given);
    return steps;
  }

  void begin_add() {
    if (writer_.begin_add()) return;
    lanes_ = Lanes(core_.buffer.schema(), num_lanes_, writer_.episode());
    length_ = 0;
    written_.clear();
  }

  // Where a boundary signal is found: among the fields, or in a slot of its own behind them.
  size_t boundary(const std::string& name) {
    if (name.empty()) return kNoSlot;
    for (size_t f = 0; f < slots_.size(); ++f) {
      if (nb::cast<std::string>(slots_[f].name) == name) return f;
    }
    slots_.push_back({nb::str(name.c_str()), 1, 1, '?', {}, nb::module_::import_("numpy").attr("dtype")("bool")});
    return slots_.size() - 1;
  }

  StepValues read(const Slot& slot, nb::handle value) {
    if (slot.step_nbytes == slot.itemsize && store_number(value, slot.letter, scratch_.data() + scratch_used_)) {
      const std::byte* at = scratch_.data() + scratch_used_;
      scratch_used_ += slot.itemsize;
      return {at, slot.step_nbytes, 1};
    }
    const Py_buffer* view = held_.hold(value);
    if (view == nullptr || !same_letter(view->format, slot.letter) || static_cast<size_t>(view->itemsize) != slot.itemsize) {
      nb::object converted = convert_(value, slot.name, slot.dtype, core_.lenient);
      view = held_.hold(converted);
      if (view == nullptr) throw nb::value_error("a converted value is no array");
      held_.keep(std::move(converted));
    }
    const auto nbytes = static_cast<size_t>(view->len);
    const size_t steps = steps_in(slot, *view);
    return {static_cast<const std::byte*>(view->buf), nbytes, steps};
  }

  // How many steps an array holds: its shape must be that of one, with or without a leading number of steps.
  size_t steps_in(const Slot& slot, const Py_buffer& view) const {
    const auto nbytes = static_cast<size_t>(view.len);
    if (core_.lenient) {
      if (nbytes % slot.step_nbytes == 0) return nbytes / slot.step_nbytes;
    } else {
      const std::span<const Py_ssize_t> found(view.shape, static_cast<size_t>(view.ndim));
      if (num_lanes_ == 1 && std::ranges::equal(found, slot.shape)) return 1;
      if (found.size() == slot.shape.size() + 1 && std::ranges::equal(found.subspan(1), slot.shape)) {
        return static_cast<size_t>(found[0]);
      }
    }
    nb::list found;
    for (int i = 0; i < view.ndim; ++i) found.append(view.shape[i]);
    nb::list wanted;
    if (num_lanes_ > 1) wanted.append(num_lanes_);
    for (const Py_ssize_t length : slot.shape) wanted.append(length);
    const std::string what = num_lanes_ > 1 ? "one step of " + std::to_string(num_lanes_) + " lanes" : "one step";
    const std::string message = nb::cast<std::string>(slot.name) + " has shape " + text(found) + ", but " + what +
                                " is " + text(wanted) + (num_lanes_ > 1 ? "" : ": give that, or [k, ...] for k steps");
    throw nb::value_error(message.c_str());
  }

  const double* read_priorities(nb::dict given, size_t steps, size_t& known) {
    PyObject* value = PyDict_GetItemWithError(given.ptr(), priorities_.name.ptr());
    if (value == nullptr) return nullptr;
    ++known;
    if (value == Py_None) return nullptr;
    if (core_.buffer.priorities() == nullptr) {
      throw nb::type_error("priorities were given to a buffer that is not prioritized: leave them out, or make it with "
                           "sampler=Prioritized()");
    }
    StepValues found = read_flat(priorities_, value);
    const auto* numbers = reinterpret_cast<const double*>(found.bytes);
    given_priorities_.assign(numbers, numbers + found.steps);
    if (found.steps == 1) given_priorities_.assign(steps, numbers[0]);
    if (given_priorities_.size() != steps) {
      const std::string message = "found " + std::to_string(found.steps) + " priorities for " + std::to_string(steps) +
                                  " steps: give one for each, or one for all";
      throw nb::value_error(message.c_str());
    }
    require_legal(given_priorities_);
    return given_priorities_.data();
  }

  // A vector of any shape, such as [k, 1].
  StepValues read_flat(const Slot& slot, nb::handle value) {
    nb::object flat = nb::module_::import_("numpy").attr("ascontiguousarray")(value, slot.dtype).attr("reshape")(-1);
    const Py_buffer* view = held_.hold(flat);
    held_.keep(std::move(flat));
    const auto nbytes = static_cast<size_t>(view->len);
    return {static_cast<const std::byte*>(view->buf), nbytes, nbytes / slot.step_nbytes};
  }

  const bool* read_mask(nb::dict given, size_t steps, size_t& known) {
    if (core_.lenient) return nullptr;
    PyObject* value = PyDict_GetItemWithError(given.ptr(), mask_.name.ptr());
    if (value == nullptr) return nullptr;
    ++known;
    if (value == Py_None) return nullptr;
    const StepValues found = read(mask_, value);
    if (found.steps != steps) {
      const std::string message = "mask has " + std::to_string(found.steps) + " entries for " + std::to_string(steps) +
                                  " steps: give one for each";
      throw nb::value_error(message.c_str());
    }
    return reinterpret_cast<const bool*>(found.bytes);
  }

  // Not compared by its bytes: there is a negative zero.
  template <class Float>
  static bool is_set(const std::byte* value, size_t nbytes) {
    for (size_t offset = 0; offset < nbytes; offset += sizeof(Float)) {
      Float number;
      std::memcpy(&number, value + offset, sizeof number);
      if (number != 0) return true;
    }
    return false;
  }

  bool is_set(size_t slot, size_t step) const {
    if (slot == kNoSlot || values_[slot].bytes == nullptr) return false;
    const size_t nbytes = slots_[slot].step_nbytes;
    const std::byte* value = values_[slot].bytes + step * nbytes;
    if (slots_[slot].letter == 'f') return is_set<float>(value, nbytes);
    if (slots_[slot].letter == 'd') return is_set<double>(value, nbytes);
    return std::any_of(value, value + nbytes, [](std::byte byte) { return byte != std::byte{0}; });
  }

  void write_rows(const Steps& steps) {
    ends_.resize(steps.count);
    for (size_t i = steps.begin; i < steps.count; ++i) ends_[i] = is_set(terminated_, i) || is_set(truncated_, i) ? 1 : 0;
    // One piece, unless a mask leaves out some.
    const size_t piece = steps.mask == nullptr ? steps.count - steps.begin : 1;
    for (size_t begin = steps.begin; begin < steps.count; begin += piece) {
      if (steps.mask != nullptr && !steps.mask[begin]) continue;
      for (size_t f = 0; f < core_.faces.size(); ++f) {
        pointers_[f] = values_[f].bytes + begin * slots_[f].step_nbytes;
      }
      writer_.write(pointers_.data(), piece, steps.priorities == nullptr ? nullptr : steps.priorities + begin,
                    reinterpret_cast<const bool*>(ends_.data() + begin));
      for (size_t i = begin; i < begin + piece; ++i) length_ = ends_[i] != 0 ? 0 : length_ + 1;
    }
  }

  void write_steps(const Steps& steps) {
    for (size_t i = steps.begin; i < steps.count; ++i) {
      if (steps.mask != nullptr && !steps.mask[i]) continue;
      for (size_t f = 0; f < core_.faces.size(); ++f) pointers_[f] = values_[f].bytes + i * slots_[f].step_nbytes;
      lanes_.step(writer_, num_lanes_ > 1 ? i : 0, pointers_.data(), is_set(terminated_, i), is_set(truncated_, i),
                  steps.priorities == nullptr ? std::nan("") : steps.priorities[i]);
    }
  }

  nb::object finished(bool goes_on) {
    const std::vector<uint64_t>& rows = writer_.written();
    if (!goes_on) written_.clear();
    written_.insert(written_.end(), rows.begin(), rows.end());
    return rows.empty() ? nb::none() : nb::object(nb::int_(rows.front()));
  }

  // ---- errors

  std::string names(size_t count) const {
    std::string listed;
    for (size_t s = 0; s < count; ++s) listed += (listed.empty() ? "" : ", ") + nb::cast<std::string>(slots_[s].name);
    return listed;
  }

  [[noreturn]] void missing(const Slot& slot, nb::handle given) const {
    const std::string message = nb::cast<std::string>(slot.name) + " is missing: every add() needs " +
                                names(core_.faces.size()) + "; found " + text(nb::list(given));
    throw nb::key_error(message.c_str());
  }

  [[noreturn]] void unknown(nb::handle given) const {
    for (nb::handle name : nb::list(given)) {
      const bool known = std::ranges::any_of(slots_, [&](const Slot& slot) { return slot.name.equal(name); }) ||
                         name.equal(priorities_.name) || name.equal(mask_.name);
      if (known) continue;
      const std::string message = text(name) + " is no field of this buffer: it knows " + names(slots_.size());
      throw nb::key_error(message.c_str());
    }
    throw nb::key_error("an unknown field");
  }

  [[noreturn]] void unequal(size_t slot, size_t steps) const {
    const std::string message = nb::cast<std::string>(slots_[slot].name) + " holds " +
                                std::to_string(values_[slot].steps) + " steps, but " +
                                nb::cast<std::string>(slots_[0].name) + " holds " + std::to_string(steps) +
                                ": give the same number of each";
    throw nb::value_error(message.c_str());
  }

  [[noreturn]] void wrong_lanes(size_t found) const {
    const std::string message = "found values for " + std::to_string(found) + " lanes, but this writer has " +
                                std::to_string(num_lanes_) + ": give every lane a value, and mask= to leave some out";
    throw nb::value_error(message.c_str());
  }

  void require_boundaries(nb::handle given) const {
    if (core_.lenient || core_.buffer.schema().plain() || values_[terminated_].bytes != nullptr) return;
    const std::string message = core_.terminated + " is missing: rows of several steps end with the episode, so every " +
                                "add() needs it (and " + core_.truncated + ", if episodes can be cut); found " +
                                text(nb::list(given));
    throw nb::key_error(message.c_str());
  }

  static constexpr size_t kNoSlot = SIZE_MAX;

  nb::object core_object_;
  ReplayCore& core_;
  size_t num_lanes_;
  nb::object convert_;
  BufferWriter writer_;
  Lanes lanes_;
  std::timed_mutex adding_;  // threads may share a writer
  bool straight_ = false;
  size_t length_ = 0;  // of the current episode, where no lane counts it
  std::vector<Slot> slots_;  // the fields, then boundary signals that are not stored
  size_t terminated_ = kNoSlot, truncated_ = kNoSlot;
  Slot priorities_, mask_;
  HeldArrays held_;
  std::vector<StepValues> values_;
  std::vector<const std::byte*> pointers_;
  std::vector<std::byte> scratch_;
  size_t scratch_used_ = 0;
  std::vector<double> given_priorities_;
  std::vector<uint8_t> ends_;
  std::vector<int64_t> written_;  // by all parts of the last addition; the writer_ knows those of the last part
};

// What Python holds: the writer of whichever process it is in.
class WriterOfProcess {
 public:
  WriterOfProcess(nb::object core, size_t lanes, uint64_t seed, nb::object convert)
      : writer_(std::make_unique<ReplayWriter>(std::move(core), lanes, seed, std::move(convert))) {}

  // Calls a method of it.
  template <auto method, class... Args>
  static auto call(WriterOfProcess& self, Args... args) {
    ReplayWriter& writer = self.writer_.get([](ReplayWriter& inherited) {
      return std::make_unique<ReplayWriter>(inherited);
    });
    return (writer.*method)(std::move(args)...);
  }

 private:
  PerProcess<ReplayWriter> writer_;
};

}  // namespace

void bind_replay_writer(nb::module_& module) {
  using Face = WriterOfProcess;
  using Lane = std::optional<int64_t>;
  nb::class_<Face>(module, "ReplayWriter",
                   "Writes the steps of one or several lanes; ``penstock.replay.Writer`` is its face.")
      .def(nb::init<nb::object, size_t, uint64_t, nb::object>(), nb::arg("core"), nb::arg("lanes"), nb::arg("seed"),
           nb::arg("convert"))
      .def("add", &Face::call<&ReplayWriter::add, nb::dict, size_t, size_t>, nb::arg("steps"), nb::arg("begin") = 0,
           nb::arg("end") = SIZE_MAX)
      .def("check", &Face::call<&ReplayWriter::check, nb::dict>, nb::arg("steps"))
      .def("count_rows", &Face::call<&ReplayWriter::count_rows, nb::dict, size_t, size_t>, nb::arg("steps"),
           nb::arg("begin"), nb::arg("end"))
      .def("count_rows_at_end", &Face::call<&ReplayWriter::count_rows_at_end, Lane>, nb::arg("lane").none() = nb::none())
      .def("end_episode", &Face::call<&ReplayWriter::end_episode, Lane>, nb::arg("lane").none() = nb::none())
      .def("written", &Face::call<&ReplayWriter::written>)
      .def("episode_length", &Face::call<&ReplayWriter::episode_length, size_t>, nb::arg("lane") = 0);
}

}  // namespace penstock
