// Redistributed rewards for a chunk of each lane; episodes may span any number of chunks.
#pragma once

#include <cstddef>

namespace penstock {

// State of the episode that each lane is in, [lanes]: sums of its rewards and of its redistributed ones so
// far, and the quality of the predictions when it began.
struct Accounts {
  double *earned, *handed_out;
  float* quality;
};

// Arrays are [steps, lanes]: contributions, original rewards, and whether a row begins an episode, ends one, is a step.
struct Redistribution {
  size_t steps, lanes;
  const float *contribution, *reward;
  const bool *first, *terminated, *valid;

  // Writes the redistributed rewards and the quality used for each step, and updates the accounts.
  void run(float quality, const Accounts& accounts, float* redistributed, float* of_step) const {
    for (size_t lane = 0; lane < lanes; ++lane) {
      for (size_t begin = 0, end; begin < steps; begin = end) {
        for (end = begin + 1; end < steps && !first[end * lanes + lane];) ++end;
        if (first[begin * lanes + lane]) {
          accounts.earned[lane] = accounts.handed_out[lane] = 0.0;
          accounts.quality[lane] = quality;
        }
        hand_out(lane, begin, end, accounts, redistributed, of_step);
      }
    }
  }

 private:
  // The same for the rows from begin to end, which belong to one episode.
  void hand_out(size_t lane, size_t begin, size_t end, const Accounts& accounts, float* redistributed,
                float* of_step) const {
    double earned = 0.0, contributed = 0.0, given = 0.0;
    size_t count = 0;
    bool ends = false;
    for (size_t row = begin * lanes + lane; row < end * lanes; row += lanes) {
      if (!valid[row]) continue;
      earned += reward[row];
      contributed += contribution[row];
      ends |= terminated[row];
      ++count;
    }
    earned += accounts.earned[lane];
    const double missing = ends ? (earned - accounts.handed_out[lane] - contributed) / static_cast<double>(count) : 0.0;
    const float quality = accounts.quality[lane];
    for (size_t row = begin * lanes + lane; row < end * lanes; row += lanes) {
      const float handed = quality > 0.0f ? static_cast<float>(contribution[row] + missing) : reward[row];
      redistributed[row] = valid[row] ? handed : 0.0f;
      of_step[row] = valid[row] ? quality : 0.0f;
      given += redistributed[row];
    }
    accounts.earned[lane] = earned;
    accounts.handed_out[lane] += given;
  }
};

}  // namespace penstock
