// A tree of sums over rows: draws rows in proportion to their leaves, and holds the total and the least of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>

#include "../region.h"

namespace penstock {

// Level 0 holds one leaf per row, a number that is not negative. A node of any other level holds the sum of its 16
// children and the least of them above zero; the top level is one node, the root. Nodes are always computed anew from
// their children, in one fixed order: nothing drifts however often leaves change, and equal leaves make equal trees.
//
// It has no lock: its user holds a mutex kept elsewhere to change it or to draw from it. If a process dies inside, each
// leaf is either old or new, and rebuild() brings the levels above into line.
class SumTree {
 public:
  static constexpr const char* kName = "SumTree";
  static constexpr size_t kWidth = 16;  // children of a node: two cache lines

  static size_t nbytes(size_t capacity) {
    if (capacity == 0 || capacity > kMaxCapacity) {
      throw std::invalid_argument("SumTree: capacity must be from 1 to " + std::to_string(kMaxCapacity) + ", found " +
                                  std::to_string(capacity));
    }
    size_t num_doubles = whole_blocks(capacity);
    size_t size = capacity;
    do {
      size = num_parents(size);
      num_doubles += 2 * whole_blocks(size);
    } while (size > 1);
    return sizeof(Header) + num_doubles * sizeof(double);
  }

  // All leaves are 0.
  static SumTree create(const Arena& arena, size_t offset, size_t capacity) {
    auto* header = new (region(arena, offset, nbytes(capacity), kName)) Header{};
    header->capacity = capacity;
    const SumTree tree(header);
    std::fill_n(tree.levels_[0].sums, whole_blocks(capacity), 0.0);
    for (size_t level = 1; level <= tree.top_; ++level) {
      std::fill_n(tree.levels_[level].sums, whole_blocks(tree.levels_[level].size), 0.0);
      std::fill_n(tree.levels_[level].leasts, whole_blocks(tree.levels_[level].size), kNone);
    }
    header->magic.store(Header::kMagic, std::memory_order_release);
    return tree;
  }

  static SumTree attach(const Arena& arena, size_t offset) {
    auto* header = existing<Header>(arena, offset, kName);
    region(arena, offset, nbytes(header->capacity), kName);
    return SumTree(header);
  }

  size_t capacity() const { return levels_[0].size; }

  // A leaf up to this value keeps the total finite with any other leaves.
  double largest_leaf() const { return std::numeric_limits<double>::max() / 2.0 / static_cast<double>(capacity()); }

  double total() const { return levels_[top_].sums[0]; }

  // The least leaf above zero; infinity when there is none.
  double least() const { return levels_[top_].leasts[0]; }

  double leaf(size_t row) const { return levels_[0].sums[row]; }

  // From 0 to largest_leaf(). The levels above are out of line until refresh().
  void set_leaf(size_t row, double value) { levels_[0].sums[row] = value; }

  // Computes everything above these rows anew. Any order is right; sorted rows share the work on common ancestors.
  void refresh(const uint64_t* rows, size_t count) {
    uint64_t nodes[kBatch];
    for (size_t done = 0; done < count; done += kBatch) {
      const size_t batch = std::min(count - done, kBatch);
      for (size_t i = 0; i < batch; ++i) prefetch_block(levels_[0].sums, rows[done + i] / kWidth);
      size_t num_nodes = recompute_parents<true>(1, rows + done, batch, nodes);
      for (size_t level = 2; level <= top_; ++level) {
        num_nodes = recompute_parents<false>(level, nodes, num_nodes, nodes);
      }
    }
  }

  // The same for the rows [begin, end).
  void refresh_range(size_t begin, size_t end) {
    if (begin >= end) return;
    for (size_t level = 1; level <= top_; ++level) {
      begin /= kWidth;
      end = num_parents(end);
      for (size_t node = begin; node < end; ++node) {
        if (level == 1) {
          recompute<true>(level, node);
        } else {
          recompute<false>(level, node);
        }
      }
    }
  }

  // The same for all rows.
  void rebuild() { refresh_range(0, capacity()); }

  // The leaves laid end to end, in the order of their rows, cover [0, total()): for each mass in there the row that
  // covers it. Never a row whose leaf is 0: a mass that rounding carries to or beyond a node's end goes to the node's
  // last child that is not 0. When all leaves are 0 the rows mean nothing, but they are rows of the tree.
  void draw(const double* masses, size_t count, uint64_t* rows) const {
    double left[kBatch];
    for (size_t done = 0; done < count; done += kBatch) {
      const size_t batch = std::min(count - done, kBatch);
      std::copy_n(masses + done, batch, left);
      std::fill_n(rows + done, batch, uint64_t{0});
      for (size_t level = top_; level > 1; --level) descend<true>(level, left, rows + done, batch);
      descend<false>(1, left, rows + done, batch);
    }
  }

 private:
  static constexpr size_t kMaxLevels = 11;
  static constexpr size_t kMaxCapacity = size_t{1} << 40;  // 16 ** (kMaxLevels - 1)
  static constexpr size_t kBatch = 256;                    // rows that go through the levels together
  static constexpr double kNone = std::numeric_limits<double>::infinity();

  struct alignas(kLine) Header {
    static constexpr uint64_t kMagic = magic_word("PsSums01");
    Magic magic;        // written by create()
    uint64_t capacity;  // written by create()
    // The levels follow, leaves first, each filled up to whole blocks of 16. Written by the mutex's holder.
  };

  struct Level {
    double* sums;
    double* leasts;  // of the leaves: the same as sums
    size_t size;
  };

  // Two neighbours, added or compared by one instruction on every 64-bit machine.
  typedef double Pair __attribute__((vector_size(16), may_alias));

  explicit SumTree(Header* header) {
    auto* next = reinterpret_cast<double*>(header + 1);
    levels_[0] = {next, next, header->capacity};
    next += whole_blocks(header->capacity);
    do {
      const size_t size = num_parents(levels_[top_].size);
      levels_[++top_] = {next, next + whole_blocks(size), size};
      next += 2 * whole_blocks(size);
    } while (levels_[top_].size > 1);
  }

  static constexpr size_t num_parents(size_t size) { return (size + kWidth - 1) / kWidth; }
  static constexpr size_t whole_blocks(size_t size) { return num_parents(size) * kWidth; }

  // The children of a node are one block.
  static void prefetch_block(const double* values, size_t node) {
    constexpr size_t kHalf = kWidth / 2;
    __builtin_prefetch(values + node * kWidth);
    __builtin_prefetch(values + node * kWidth + kHalf);
  }

  static const Pair& pair(const double* values) { return *reinterpret_cast<const Pair*>(values); }
  static Pair folded(const double* four) { return pair(four) + pair(four + 2); }

  static double sum_of_four(const double* four) {
    const Pair sums = folded(four);
    return sums[0] + sums[1];
  }

  static double sum_of_block(const double* block) {
    const Pair sums = (folded(block) + folded(block + 4)) + (folded(block + 8) + folded(block + 12));
    return sums[0] + sums[1];
  }

  template <bool kLeaves>
  static double least_of_block(const double* block) {
    constexpr Pair kNeither = {kNone, kNone};
    Pair least = kNeither;
    for (size_t i = 0; i < kWidth; i += 2) {
      Pair values = pair(block + i);
      if constexpr (kLeaves) values = values > 0.0 ? values : kNeither;  // nodes above leaves say it with kNone
      least = values < least ? values : least;
    }
    return std::min(least[0], least[1]);
  }

  template <bool kLeaves>
  void recompute(size_t level, size_t node) {
    const Level& children = levels_[level - 1];
    levels_[level].sums[node] = sum_of_block(children.sums + node * kWidth);
    levels_[level].leasts[node] = least_of_block<kLeaves>(children.leasts + node * kWidth);
  }

  // Recomputes the parents of these nodes, each run of equal ones once; writes their numbers and returns how many.
  template <bool kLeaves>
  size_t recompute_parents(size_t level, const uint64_t* children, size_t count, uint64_t* parents) {
    size_t written = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t parent = children[i] / kWidth;
      if (written > 0 && parents[written - 1] == parent) continue;
      parents[written++] = parent;
      recompute<kLeaves>(level, parent);
      prefetch_block(levels_[level].sums, parent / kWidth);
      prefetch_block(levels_[level].leasts, parent / kWidth);
    }
    return written;
  }

  // From nodes of a level, each with a mass left inside it, to the children that cover the masses.
  template <bool kPrefetch>
  void descend(size_t level, double* left, uint64_t* nodes, size_t count) const {
    const double* sums = levels_[level - 1].sums;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t first = nodes[i] * kWidth;
      nodes[i] = first + cover(sums + first, left[i]);
      if constexpr (kPrefetch) prefetch_block(levels_[level - 2].sums, nodes[i]);
    }
  }

  // The child in a block that covers `mass`, which becomes the mass inside that child. First among the four quarters of
  // the block, then in the quarter: counting comparisons instead of branching, which no processor could foresee here.
  static size_t cover(const double* block, double& mass) {
    const double end1 = sum_of_four(block);
    const double end2 = end1 + sum_of_four(block + 4);
    const double end3 = end2 + sum_of_four(block + 8);
    const double quarter_starts[] = {0.0, end1, end2, end3};
    const size_t quarter = size_t{mass >= end1} + size_t{mass >= end2} + size_t{mass >= end3};
    const double inside = mass - quarter_starts[quarter];

    const double* four = block + 4 * quarter;
    const double starts[] = {0.0, four[0], four[0] + four[1], four[0] + four[1] + four[2]};
    size_t child = size_t{inside >= starts[1]} + size_t{inside >= starts[2]} + size_t{inside >= starts[3]};
    mass = inside - starts[child];
    child += 4 * quarter;
    if (inside >= starts[3] + four[3]) [[unlikely]] {
      // Beyond the quarter's end, by rounding.
      child = 4 * quarter + 3;
      while (child > 0 && block[child] == 0.0) --child;
      mass = block[child];
    }
    return child;
  }

  std::array<Level, kMaxLevels> levels_{};
  size_t top_ = 0;
};

}  // namespace penstock
