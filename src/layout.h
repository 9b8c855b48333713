// Layout of a computation's tensors in one block of memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "record.h"

namespace penstock {

inline constexpr size_t kElsewhere = std::numeric_limits<size_t>::max();

// Size of the memory in floats, and where each tensor begins in it; inputs and outputs lie elsewhere.
struct Layout {
  std::vector<size_t> begins;
  size_t size;
};

// Whether a step gives the same numbers in the same order.
inline bool is_reshaping(const Record& record, const Step& step) {
  const Shape& from = record.shapes[step.a];
  const bool is_same = step.operation == Operation::kCopy ||
                       (step.operation == Operation::kSwap && (from[0] == 1 || from[1] == 1)) ||
                       (step.operation == Operation::kTurn && (from[1] == 1 || from[2] == 1));
  return is_same && numbers_of(from) == numbers_of(record.shapes[step.out]);
}

// Gives each tensor its place in the memory. A result may take the place of a tensor that no later step reads, so that
// the memory in use stays in a core's own cache.
inline Layout lay_out(const Record& record) {
  constexpr size_t kNever = std::numeric_limits<size_t>::max();
  const size_t count = record.shapes.size();
  std::vector<size_t> last(count, 0), begins(count, kElsewhere);
  std::vector<bool> lies_elsewhere(count, false);
  for (size_t i = 0; i < record.steps.size(); ++i) record.each_read(record.steps[i], [&](int number) { last[number] = i; });
  for (size_t i = 0; i < record.inputs.size(); ++i) lies_elsewhere[i] = true;
  for (const int number : record.outputs) lies_elsewhere[number] = true;
  for (size_t number = 0; number < count; ++number)
    if (lies_elsewhere[number]) last[number] = kNever;
  // For each tensor, the one whose memory it uses: itself, or the one that it reshapes or overwrites.
  std::vector<int> place_of(count);
  for (size_t number = 0; number < count; ++number) place_of[number] = static_cast<int>(number);
  for (size_t i = 0; i < record.steps.size(); ++i) {
    const Step& step = record.steps[i];
    if (step.operation == Operation::kCall || step.a < 0 || lies_elsewhere[step.a] || lies_elsewhere[step.out]) continue;
    const int from = place_of[step.a];
    if (is_reshaping(record, step) || (step.operation == Operation::kPut && last[from] == i)) {
      place_of[step.out] = from;
      last[from] = std::max(last[from], last[step.out]);
    }
  }
  size_t size = 0;
  std::vector<std::pair<size_t, size_t>> free;  // places: count of numbers, beginning
  const auto count_of = [&](size_t number) { return (numbers_of(record.shapes[number]) + 15) / 16 * 16; };
  const auto take_place = [&](size_t number) {
    const auto found =
        std::find_if(free.begin(), free.end(), [&](const auto& place) { return place.first == count_of(number); });
    if (found != free.end()) {
      begins[number] = found->second;
      free.erase(found);
    } else {
      begins[number] = size;
      size += count_of(number);
    }
  };
  for (size_t i = 0; i < record.inputs.size(); ++i)
    if (record.inputs[i] != Kind::kFloat) take_place(i);
  for (size_t i = 0; i < record.steps.size(); ++i) {
    std::vector<int> used;
    record.each_written(record.steps[i], [&](int number) {
      if (!lies_elsewhere[number] && place_of[number] == number) take_place(number);
      used.push_back(place_of[number]);
    });
    record.each_read(record.steps[i], [&](int number) { used.push_back(place_of[number]); });
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (const int each : used)
      if (last[each] <= i) free.emplace_back(count_of(each), begins[each]);
  }
  Layout found{{}, size};
  for (const int place : place_of) found.begins.push_back(begins[place]);
  return found;
}

}  // namespace penstock
