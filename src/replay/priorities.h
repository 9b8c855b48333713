// How likely each row is to be drawn: leaves of a sum tree that readers keep, from what writers leave beside the rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "../region.h"
#include "../robust_mutex.h"
#include "row_store.h"
#include "sum_tree.h"

namespace penstock {

struct PriorityPlan {
  double alpha, eps;
  std::optional<double> eviction_alpha;  // exponent that rows are evicted by; without, the oldest is overwritten
};

// Priorities of the rows of a RowStore, shared by any number of writers and readers, any of which may be killed at any
// instant. The leaf of a row is (priority + eps)^alpha, its chance of being drawn the leaf's share of all leaves.
//
// A writer stores the leaf beside the row while it has the row open. That is all it does: no lock, no tree, nothing
// after the commit. Readers take the mutex and *drain* before they draw: they look at the row of every id given out
// since the last drain, and take over the record they find committed there.
//
// Why no committed record is missed, whenever its writer commits and whichever process dies:
// - Every id is looked at once, because `drained` moves only over ids that were looked at.
// - If a look does not find its id, the block of 64 rows around it is marked as awaited, and looked at again by later
//   drains until that id or a later one is there. The reader remembers; a word from the writer is not needed, which
//   could also die with it between the commit and the word. Rows that dead writers left behind are awaited for a lap.
// - So a look needs no order with the commit: it sees it or it does not. It only must not pair the id of one record
//   with the leaf of the next. The word is read with acquire, so the leaf offered before that commit is seen; and read again
//   after an acquire fence, which meets the release fence in RowStore::open(): had the leaf come from a later writer,
//   that writer's word would be seen too.
//
// Why a new priority is never undone: a record is taken over only if `taken` does not name it yet, and update() names
// the record whose leaf it sets. The leaf is stored before the name, so a death between them takes over once more.
//
// After a death under the mutex the next holder counts and sums the leaves again, and looks at every row again.
//
// Where rows are evicted by priority, no id says which row is next. There writers do take the mutex, twice for each row:
// to draw the row that goes, from a second tree, and to commit, when they set both leaves themselves. So nothing is left
// to be drained, but after a death. A row in a writer's hands has no leaf in the second tree. Should the writer die, the
// row gets it back within a lap: each eviction looks at one row, in turn.
class Priorities {
 public:
  static constexpr const char* kName = "Priorities";

  static size_t nbytes(size_t capacity, bool evicts) { return Layout(capacity, evicts).nbytes; }

  // alpha, eps >= 0 and finite; with eviction_alpha both > 0.
  static Priorities create(const Arena& arena, size_t offset, size_t capacity, const PriorityPlan& plan) {
    const Layout layout(capacity, plan.eviction_alpha.has_value());
    auto* header = new (region(arena, offset, layout.nbytes, kName)) Header{};
    header->capacity = capacity;
    header->alpha = plan.alpha;
    header->eps = plan.eps;
    header->evicts = plan.eviction_alpha.has_value();
    header->eviction = header->evicts ? *plan.eviction_alpha / plan.alpha : 0.0;
    header->mutex.initialise();
    SumTree::create(arena, offset + layout.tree, capacity);
    if (header->evicts) SumTree::create(arena, offset + layout.evictions, capacity);
    Priorities(arena, offset, header).set_largest(kLargestAtFirst);
    header->magic.store(Header::kMagic, std::memory_order_release);
    return attach(arena, offset);
  }

  static Priorities attach(const Arena& arena, size_t offset) {
    auto* header = existing<Header>(arena, offset, kName);
    region(arena, offset, nbytes(header->capacity, header->evicts), kName);
    return Priorities(arena, offset, header);
  }

  // ---- writers

  // The priority of the record being written, between RowStore::open() and commit(). NaN: the largest given so far.
  void offer(size_t row, double priority) {
    const bool given = !std::isnan(priority);
    const double leaf = given ? leaf_of(priority) : header_->largest_leaf.load(std::memory_order_relaxed);
    offered_[row].store(leaf, std::memory_order_relaxed);
    if (given) raise_largest(priority, leaf);
  }

  // Where rows are evicted by priority: opens one for the record that `id` was claimed for, drawn in proportion to its
  // leaf in the second tree by a number u in [0, 1). `id` becomes one that falls to the row. nullptr if it is not free.
  std::byte* evict(RowStore& store, const Writers& writers, uint32_t writer, double u, uint64_t& id) {
    const Held held = enter();
    drain(store, kPatience);
    if (const size_t row = store.row(id); evictions_->leaf(row) == 0.0 && store.is_free(row, writers)) {
      set_eviction(row, tree_.leaf(row));
      evictions_->refresh_range(row, row + 1);
    }
    if (evictions_->total() == 0.0) return nullptr;
    const double mass = u * evictions_->total();
    uint64_t row = 0;
    evictions_->draw(&mass, 1, &row);
    id = store.next_id(row, id);
    std::byte* record = store.open(row, id, writer, writers);
    set_leaf(row, 0.0);
    evictions_->set_leaf(row, 0.0);
    refresh(&row, 1);
    return record;
  }

  // And commits what was written there: from now on it can be drawn, and evicted. The priority is as of offer(). False
  // if the row was taken from the writer.
  bool commit(RowStore& store, size_t row, uint64_t id, uint32_t writer, double priority) {
    const Held held = enter();
    offer(row, priority);
    if (!store.commit(row, id, writer)) return false;
    take(row, id, offered_[row].load(std::memory_order_relaxed));
    refresh_range(row, row + 1);
    return true;
  }

  // The largest priority ever given, 1.0 at first.
  double largest() const { return header_->largest.load(std::memory_order_relaxed); }

  // Counts a priority that was given to a row elsewhere as one that was given here.
  void raise(double priority) { raise_largest(priority, leaf_of(priority)); }

  // ---- readers

  // As they were at a draw: sum of the leaves, smallest leaf > 0, number of leaves > 0.
  struct Totals {
    double total, least;
    size_t count;
  };

  // The sum of the leaves.
  double total(const RowStore& store) {
    const Held held = enter();
    drain(store, kPatience);
    return tree_.total();
  }

  // Draws `count` rows from numbers u[i] in [0, 1): one row from each of `count` equal shares of the total if
  // `stratified`, else each from all of it. False if there is nothing to draw. A row may be overwritten by the time it
  // is read, or have been before: rows that do not hold the id given here are for settle(), and another draw.
  bool draw(const RowStore& store, const double* u, size_t count, bool stratified, uint64_t* rows, uint64_t* ids,
            double* leaves, Totals& totals) {
    const Held held = enter();
    drain(store, kPatience);
    totals = {tree_.total(), tree_.least(), header_->count};
    if (totals.count == 0) return false;
    double* masses = leaves;
    const double share = totals.total / static_cast<double>(count);
    for (size_t i = 0; i < count; ++i) {
      masses[i] = stratified ? (static_cast<double>(i) + u[i]) * share : u[i] * totals.total;
    }
    tree_.draw(masses, count, rows);
    for (size_t i = 0; i < count; ++i) {
      ids[i] = taken_[rows[i]].load(std::memory_order_relaxed) - 1;
      leaves[i] = tree_.leaf(rows[i]);
    }
    return true;
  }

  // Rows that did not hold what was drawn get the leaf of what they hold now, or 0.
  void settle(const RowStore& store, const uint64_t* rows, size_t count) {
    const Held held = enter();
    for (size_t i = 0; i < count; ++i) look(store, rows[i]);
    refresh(rows, count);
  }

  // From now on the record cannot be drawn: something else that it needs is gone.
  void retire(size_t row, uint64_t id) {
    const Held held = enter();
    if (taken_[row].load(std::memory_order_relaxed) != id + 1) return;
    set_leaf(row, 0.0);
    if (evictions_) set_eviction(row, 0.0);
    refresh_range(row, row + 1);
  }

  // Sets finite priorities >= 0; of equal ids the last counts. Ids that are no longer in their rows are passed over:
  // returns how many.
  size_t update(const RowStore& store, const int64_t* ids, const double* priorities, size_t count) {
    std::vector<double> leaves(count);
    std::vector<uint64_t> rows(count);
    for (size_t i = 0; i < count; ++i) {
      leaves[i] = leaf_of(priorities[i]);
      rows[i] = store.row(static_cast<uint64_t>(ids[i]));
    }
    const Held held = enter();
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      const auto id = static_cast<uint64_t>(ids[i]);
      if (ids[i] < 0 || store.committed(rows[i]) != id) continue;
      raise_largest(priorities[i], leaves[i]);
      take(rows[i], id, leaves[i]);
      rows[kept++] = rows[i];
    }
    refresh(rows.data(), kept);
    return count - kept;
  }

  // After RowStore::clear().
  void clear(const RowStore& store) {
    const Held held = enter();
    drain(store, kPatience);
    set_largest(kLargestAtFirst);
  }

  // ---- files

  // Every row's leaf, and the id of the record it is of: [capacity] each.
  void read_all(const RowStore& store, double* leaves, uint64_t* ids) {
    const Held held = enter();
    drain(store, SIZE_MAX);
    for (size_t row = 0; row < capacity_; ++row) {
      leaves[row] = tree_.leaf(row);
      ids[row] = taken_[row].load(std::memory_order_relaxed) - 1;
    }
  }

  // Puts back what read_all() gave, into a buffer that is not in use. The next drain looks at ids from `drained` on: a
  // record that it finds in a row that `ids` gave to another gets the leaf of the largest priority.
  void put_all(const double* leaves, const uint64_t* ids, double largest, uint64_t drained) {
    const Held held = enter();
    set_largest(largest);
    for (size_t row = 0; row < capacity_; ++row) {
      offered_[row].store(leaf_of(largest), std::memory_order_relaxed);
      tree_.set_leaf(row, leaves[row]);
      if (evictions_) set_eviction(row, leaves[row]);
      taken_[row].store(ids[row] + 1, std::memory_order_release);
    }
    recount();
    header_->drained = drained;
  }

 private:
  using Held = std::lock_guard<RobustMutex>;
  static constexpr double kLargestAtFirst = 1.0;
  static constexpr size_t kBlock = 64;     // rows per mark
  static constexpr size_t kPatience = 64;  // awaited blocks that a drain looks at, about: the others wait for the next

  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsPrior1");
    Magic magic;        // written by create()
    uint64_t capacity;  // written by create()
    double alpha, eps;  // written by create()
    bool evicts;        // written by create()
    double eviction;    // a row's leaf to this power is that of the second tree: written by create()
    alignas(kLine) std::atomic<double> largest;  // raised by writers and update(): the leaf first
    std::atomic<double> largest_leaf;
    // All below, `taken_` and the tree: written by the holder of the mutex.
    alignas(kLine) RobustMutex mutex;
    uint64_t drained;  // ids below have been looked at
    uint64_t base;     // the store's, when it was last looked at
    uint64_t count;    // leaves > 0
    uint64_t awaited;  // blocks that are marked
    uint64_t next;     // word of marks where the next drain begins
    // Then: marks, a bit per block; per row the leaf offered, written by the row's writer while it is open; per row 1 +
    // the id of the record that its leaf is of, 0 if none; the tree; the second tree, if rows are evicted by priority.
  };

  struct Layout {
    Layout(size_t capacity, bool evicts)
        : num_marks((capacity + kBlock * 64 - 1) / (kBlock * 64)),
          marks(whole_lines(sizeof(Header))),
          offered(marks + whole_lines(num_marks * sizeof(uint64_t))),
          taken(offered + whole_lines(capacity * sizeof(double))),
          tree(taken + whole_lines(capacity * sizeof(uint64_t))),
          evictions(tree + SumTree::nbytes(capacity)),
          nbytes(evictions + (evicts ? SumTree::nbytes(capacity) : 0)) {}
    size_t num_marks;                                       // words
    size_t marks, offered, taken, tree, evictions, nbytes;  // offsets
  };

  Priorities(const Arena& arena, size_t offset, Header* header)
      : Priorities(arena, offset, header, Layout(header->capacity, header->evicts)) {}
  Priorities(const Arena& arena, size_t offset, Header* header, const Layout& layout)
      : header_(header),
        capacity_(header->capacity),
        num_marks_(layout.num_marks),
        marks_(reinterpret_cast<uint64_t*>(reinterpret_cast<std::byte*>(header) + layout.marks)),
        offered_(reinterpret_cast<std::atomic<double>*>(reinterpret_cast<std::byte*>(header) + layout.offered)),
        taken_(reinterpret_cast<std::atomic<uint64_t>*>(reinterpret_cast<std::byte*>(header) + layout.taken)),
        tree_(SumTree::attach(arena, offset + layout.tree)) {
    if (header->evicts) evictions_ = SumTree::attach(arena, offset + layout.evictions);
  }

  // Between the smallest normal number and what all rows can have without their sum overflowing; 0 only for 0.
  double leaf_of(double priority) const {
    const double base = priority + header_->eps;
    return base == 0.0 ? 0.0 : std::clamp(std::pow(base, header_->alpha), DBL_MIN, tree_.largest_leaf());
  }

  void raise_largest(double priority, double leaf) {
    raise(header_->largest_leaf, leaf);
    raise(header_->largest, priority);
  }
  static void raise(std::atomic<double>& largest, double value) {
    double seen = largest.load(std::memory_order_relaxed);
    while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  void set_largest(double priority) {
    header_->largest_leaf.store(leaf_of(priority), std::memory_order_relaxed);
    header_->largest.store(priority, std::memory_order_relaxed);
  }

  // ---- under the mutex

  Held enter() {
    if (header_->mutex.lock()) {
      recount();
      header_->drained = 0;
    }
    return Held(header_->mutex, std::adopt_lock);
  }

  // From the leaves alone, with nothing awaited.
  void recount() {
    std::fill_n(marks_, num_marks_, 0);
    header_->awaited = 0;
    header_->count = 0;
    for (size_t row = 0; row < capacity_; ++row) header_->count += tree_.leaf(row) > 0.0;
    tree_.rebuild();
    if (evictions_) evictions_->rebuild();
  }

  void refresh(const uint64_t* rows, size_t count) {
    tree_.refresh(rows, count);
    if (evictions_) evictions_->refresh(rows, count);
  }
  void refresh_range(size_t begin, size_t end) {
    tree_.refresh_range(begin, end);
    if (evictions_) evictions_->refresh_range(begin, end);
  }

  // The caller has to refresh its ancestors.
  bool set_leaf(size_t row, double leaf) {
    const double before = tree_.leaf(row);
    if (before == leaf) return false;
    tree_.set_leaf(row, leaf);
    header_->count += static_cast<uint64_t>(leaf > 0.0) - static_cast<uint64_t>(before > 0.0);
    return true;
  }

  // A row that cannot be drawn has the same chance of eviction as one of priority 0.
  void set_eviction(size_t row, double leaf) {
    const double chance = std::pow(std::max(leaf, leaf_of(0.0)), header_->eviction);
    evictions_->set_leaf(row, std::clamp(chance, DBL_MIN, evictions_->largest_leaf()));
  }

  bool take(size_t row, uint64_t id, double leaf) {
    const bool changed = set_leaf(row, leaf);
    if (evictions_) set_eviction(row, leaf);
    taken_[row].store(id + 1, std::memory_order_release);
    return changed;
  }

  struct Look {
    uint64_t id;   // of the record found, or RowStore::kNone
    bool changed;  // whether the leaf is another than before
  };

  // Makes the leaf that of the record in the row.
  Look look(const RowStore& store, size_t row) {
    const uint64_t id = store.committed(row);
    if (id == RowStore::kNone) return {id, set_leaf(row, 0.0)};
    if (taken_[row].load(std::memory_order_relaxed) == id + 1) return {id, false};
    const double leaf = offered_[row].load(std::memory_order_relaxed);
    if (!store.unchanged(row, id)) return {RowStore::kNone, set_leaf(row, 0.0)};
    return {id, take(row, id, leaf)};
  }

  // Looks at `count` successive rows for the ids from `first` on; those not found are awaited. `count` within a lap.
  void look_for(const RowStore& store, size_t row, uint64_t first, size_t count) {
    const uint64_t base = store.base();
    bool changed = false;
    for (size_t i = 0; i < count; ++i) {
      const Look found = look(store, row + i);
      changed |= found.changed;
      const bool here = found.id != RowStore::kNone && found.id >= first + i;
      if (!here && first + i >= base) await((row + i) / kBlock);
    }
    if (changed) refresh_range(row, row + count);
  }

  void await(size_t block) {
    uint64_t& marks = marks_[block / 64];
    const uint64_t mark = uint64_t{1} << block % 64;
    header_->awaited += (marks & mark) == 0;
    marks |= mark;
  }

  void drain(const RowStore& store, size_t patience) {
    // After RowStore::clear() every leaf is outdated.
    if (const uint64_t base = store.base(); base != header_->base) {
      header_->drained = 0;
      header_->base = base;
    }
    if (evictions_) {
      if (header_->drained == 0) look_at_all(store);
      return;
    }
    look_again(store, patience);
    const uint64_t claimed = store.claimed();
    uint64_t id = std::max(header_->drained, claimed > capacity_ ? claimed - capacity_ : 0);
    while (id < claimed) {
      const size_t row = store.row(id);
      const size_t count = std::min<uint64_t>(claimed - id, capacity_ - row);
      look_for(store, row, id, count);
      id += count;
    }
    header_->drained = claimed;
  }

  void look_at_all(const RowStore& store) {
    for (size_t row = 0; row < capacity_; ++row) look(store, row);
    refresh_range(0, capacity_);
    header_->drained = 1;
  }

  void look_again(const RowStore& store, size_t patience) {
    const uint64_t drained = header_->drained;
    size_t left = std::min<size_t>(header_->awaited, patience);
    size_t& next = header_->next;
    while (left > 0) {
      uint64_t marked = std::exchange(marks_[next], 0);
      const auto blocks = static_cast<size_t>(std::popcount(marked));
      header_->awaited -= blocks;
      left -= std::min(left, blocks);
      for (; marked != 0; marked &= marked - 1) {
        const size_t block = next * 64 + static_cast<size_t>(std::countr_zero(marked));
        look_again_at(store, block * kBlock, std::min(capacity_, (block + 1) * kBlock), drained);
      }
      next = (next + 1) % num_marks_;
    }
  }

  // Each row is to hold the last id below `drained` that falls to it.
  void look_again_at(const RowStore& store, size_t begin, size_t end, uint64_t drained) {
    const uint64_t lap = drained - drained % capacity_;
    const size_t turn = std::clamp<size_t>(drained - lap, begin, end);
    look_for(store, begin, lap + begin, turn - begin);
    if (lap >= capacity_) look_for(store, turn, lap - capacity_ + turn, end - turn);
  }

  Header* header_;
  size_t capacity_;
  size_t num_marks_;
  uint64_t* marks_;
  std::atomic<double>* offered_;
  std::atomic<uint64_t>* taken_;
  SumTree tree_;
  std::optional<SumTree> evictions_;
};

}  // namespace penstock
