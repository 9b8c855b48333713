// How frames lie in the values that callers give and get, and how they are taken apart and put together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "../shared_copy.h"
#include "schema.h"

namespace penstock {

// A value is [outer, depth, inner] bytes, and its frame d the [outer, inner] bytes at depth d.
class FrameLayout {
 public:
  // True where every frame is one piece of the value already.
  static bool whole(const FieldPlan& field) { return field.depth == 1 || field.outer == 1; }
  static size_t frame_nbytes(const FieldPlan& field) { return field.outer * field.inner; }

  // The frames of a value one after another.
  static void split(std::byte* frames, const FieldPlan& field, const std::byte* value) {
    if (whole(field)) {
      std::memcpy(frames, value, field.step_nbytes);
    } else if (!for_known_shape(field, [&]<size_t kInner, size_t kDepth>() {
                 split_known<kInner, kDepth>(frames, value, field.outer);
               })) {
      for (size_t d = 0; d < field.depth; ++d) {
        copy_strided(frames + d * frame_nbytes(field), field.inner, value + d * field.inner,
                     field.depth * field.inner, field);
      }
    }
  }

  // The value whose frames are given; nullptr stands for a frame of zeros.
  static void assemble(std::byte* value, const FieldPlan& field, const std::byte* const* frames) {
    const bool complete = std::all_of(frames, frames + field.depth, [](const std::byte* f) { return f != nullptr; });
    if (complete && !whole(field) && for_known_shape(field, [&]<size_t kInner, size_t kDepth>() {
          join_known<kInner, kDepth>(value, frames, field.outer);
        })) {
      return;
    }
    if (!complete) std::memset(value, 0, field.step_nbytes);
    for (size_t d = 0; d < field.depth; ++d) {
      if (frames[d] == nullptr) continue;
      std::byte* to = value + d * field.inner;
      if (whole(field)) {
        copy_shared(to, frames[d], field.inner * field.outer);
      } else {
        copy_strided(to, field.depth * field.inner, frames[d], field.inner, field);
      }
    }
  }

 private:
  // Interleaved elements of 1 or 4 bytes, 2 to 4 deep: with constants the compiler shuffles whole registers.
  template <class Run>
  static bool for_known_shape(const FieldPlan& field, Run run) {
    return field.inner == 1   ? for_known_depth<1>(field, run)
           : field.inner == 4 ? for_known_depth<4>(field, run)
                              : false;
  }

  template <size_t kInner, class Run>
  static bool for_known_depth(const FieldPlan& field, Run run) {
    switch (field.depth) {
      case 2: run.template operator()<kInner, 2>(); return true;
      case 3: run.template operator()<kInner, 3>(); return true;
      case 4: run.template operator()<kInner, 4>(); return true;
      default: return false;
    }
  }

  template <size_t kInner, size_t kDepth>
  static void split_known(std::byte* __restrict frames, const std::byte* __restrict value, size_t outer) {
    std::byte* to[kDepth];
    for (size_t d = 0; d < kDepth; ++d) to[d] = frames + d * outer * kInner;
    for (size_t o = 0; o < outer; ++o) {
      for (size_t d = 0; d < kDepth; ++d) std::memcpy(to[d] + o * kInner, value + (o * kDepth + d) * kInner, kInner);
    }
  }

  template <size_t kInner, size_t kDepth>
  static void join_known(std::byte* __restrict value, const std::byte* const* frames, size_t outer) {
    const std::byte* from[kDepth];
    std::copy_n(frames, kDepth, from);
    for (size_t o = 0; o < outer; ++o) {
      for (size_t d = 0; d < kDepth; ++d) copy_shared(value + (o * kDepth + d) * kInner, from[d] + o * kInner, kInner);
    }
  }

  // One frame: `outer` pieces of `inner` bytes, `step` bytes apart on either side.
  static void copy_strided(std::byte* to, size_t to_step, const std::byte* from, size_t from_step,
                           const FieldPlan& field) {
    for (size_t o = 0; o < field.outer; ++o) {
      copy_shared(to + o * to_step, from + o * from_step, field.inner);
    }
  }
};

}  // namespace penstock
