// Drawing a batch of rows, and drawing again those that were overwritten meanwhile.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "gather.h"
#include "random.h"

namespace penstock {

class Sampler {
 public:
  Sampler(Buffer& buffer, Threads& threads, uint64_t seed) : buffer_(buffer), gather_(buffer, threads), random_(seed) {}

  Random& random() { return random_; }
  Gather& gather() { return gather_; }

  // What the last draw gave, [count].
  const std::vector<uint64_t>& rows() const { return rows_; }
  const std::vector<uint64_t>& ids() const { return ids_; }
  // The same of a draw by priority: leaves, and the sum and the least of those in the whole buffer.
  const std::vector<double>& leaves() const { return leaves_; }
  double total() const { return total_; }
  double least() const { return least_; }

  // Each row with equal probability. False if there is none that can be read.
  bool uniform(size_t count, const BatchArrays& batch) {
    start(count);
    if (!draw_uniform(0, count)) return false;
    return gather_all(count, batch, [&] {
      for (const size_t place : places_) {
        if (!draw_uniform(place, place + 1)) return false;
      }
      return true;
    });
  }

  // Each row in proportion to its leaf. Weights (N P(i))^-beta, divided by the largest of the whole buffer, or of the
  // batch. False if no row has a priority above 0.
  bool prioritized(size_t count, bool stratified, double beta, bool by_batch, const BatchArrays& batch,
                   float* weights) {
    start(count);
    leaves_.resize(count);
    for (size_t i = 0; i < count; ++i) uniforms_[i] = random_.uniform();
    Priorities& priorities = *buffer_.priorities();
    Priorities::Totals totals{};
    if (!priorities.draw(buffer_.rows(), uniforms_.data(), count, stratified, rows_.data(), ids_.data(), leaves_.data(),
                         totals)) {
      return false;
    }
    const bool complete = gather_all(count, batch, [&] {
      retire(priorities);
      for (const size_t place : places_) {
        const double uniform = random_.uniform();
        if (!priorities.draw(buffer_.rows(), &uniform, 1, false, &rows_[place], &ids_[place], &leaves_[place], totals)) {
          return false;
        }
      }
      return true;
    });
    if (!complete) return false;
    total_ = totals.total;
    least_ = totals.least;
    weigh(count, beta, by_batch ? *std::min_element(leaves_.begin(), leaves_.end()) : totals.least, weights);
    return true;
  }

 private:
  static constexpr size_t kTries = 64;
  static constexpr size_t kRounds = 10'000;

  void start(size_t count) {
    rows_.resize(count);
    ids_.resize(count);
    uniforms_.resize(count);
  }

  // Rows for places [begin, end). Few are unreadable at any time, so drawing again is quick; if not, look everywhere.
  bool draw_uniform(size_t begin, size_t end) {
    RowStore& store = buffer_.rows();
    const size_t used = buffer_.rows_used();
    if (used == 0) return false;
    for (size_t i = begin; i < end; ++i) {
      rows_[i] = random_.below(used);
      store.prefetch_word(rows_[i]);
    }
    for (size_t i = begin; i < end; ++i) {
      ids_[i] = store.committed(rows_[i]);
      for (size_t tries = 0; ids_[i] == RowStore::kNone && tries < kTries; ++tries) {
        rows_[i] = random_.below(used);
        ids_[i] = store.committed(rows_[i]);
      }
      if (ids_[i] == RowStore::kNone && !draw_among_readable(i, used)) return false;
    }
    return true;
  }

  bool draw_among_readable(size_t place, size_t used) {
    RowStore& store = buffer_.rows();
    std::vector<uint64_t> readable;
    for (size_t row = 0; row < used; ++row) {
      if (store.committed(row) != RowStore::kNone) readable.push_back(row);
    }
    if (readable.empty()) return false;
    rows_[place] = readable[random_.below(readable.size())];
    ids_[place] = store.committed(rows_[place]);
    return true;
  }

  // Gathers what was drawn; redraw() then draws anew for the places_ that could not be read, until none is left.
  template <class Redraw>
  bool gather_all(size_t count, const BatchArrays& batch, Redraw redraw) {
    places_ = gather_(rows_.data(), ids_.data(), nullptr, count, batch);
    for (size_t round = 0; !places_.empty(); ++round) {
      if (round == kRounds) return false;  // whole buffers whose frames were overwritten
      count_unread();
      if (!redraw()) return false;
      some_rows_.clear();
      some_ids_.clear();
      for (const size_t place : places_) {
        some_rows_.push_back(rows_[place]);
        some_ids_.push_back(ids_[place]);
      }
      const auto& unread = gather_(some_rows_.data(), some_ids_.data(), places_.data(), places_.size(), batch);
      for (size_t k = 0; k < unread.size(); ++k) places_[k] = places_[unread[k]];
      places_.resize(unread.size());
    }
    return true;
  }

  void count_unread() {
    const auto is_there = [&](size_t place) { return buffer_.rows().committed(rows_[place]) == ids_[place]; };
    buffer_.counts().redrawn.fetch_add(places_.size(), std::memory_order_relaxed);
    const auto without_frames = static_cast<uint64_t>(std::ranges::count_if(places_, is_there));
    buffer_.counts().without_frames.fetch_add(without_frames, std::memory_order_relaxed);
  }

  // A row that is gone gets the priority of what lies there now; one that is there but lost its frames gets none.
  void retire(Priorities& priorities) {
    some_rows_.clear();
    for (const size_t place : places_) {
      if (buffer_.rows().committed(rows_[place]) == ids_[place]) {
        priorities.retire(rows_[place], ids_[place]);
      } else {
        some_rows_.push_back(rows_[place]);
      }
    }
    priorities.settle(buffer_.rows(), some_rows_.data(), some_rows_.size());
  }

  // (N P(i))^-beta over the largest of them: N and the total cancel out.
  void weigh(size_t count, double beta, double least, float* weights) const {
    for (size_t i = 0; i < count; ++i) {
      const double ratio = leaves_[i] / least;
      // In float it takes half the time.
      const bool fits = ratio < std::numeric_limits<float>::max();
      const float weight = fits ? std::pow(static_cast<float>(ratio), static_cast<float>(-beta))
                                : static_cast<float>(std::pow(ratio, -beta));
      weights[i] = std::min(1.0F, weight);
    }
  }

  Buffer& buffer_;
  Gather gather_;
  Random random_;
  std::vector<uint64_t> rows_, ids_, some_rows_, some_ids_;
  std::vector<double> uniforms_, leaves_;
  double total_ = 0.0, least_ = 0.0;
  std::vector<size_t> places_;
};

}  // namespace penstock
