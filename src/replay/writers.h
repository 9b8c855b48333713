// Writers: a number for each, and whether the process behind a number still lives.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <optional>
#include <string>
#include <unistd.h>

#include "../region.h"

namespace penstock {

// A process, distinguished from a later one with the same number by its start time. Zero: no process.
class ProcessIdentity {
 public:
  static uint64_t of_this_process() { return pack(getpid(), started(getpid()).value_or(kUnknown)); }

  // A zombie has written its last byte: it counts as dead. One whose start is unknown, here or there, counts as alive.
  static bool alive(uint64_t identity) {
    if (identity == 0) return false;
    const auto pid = static_cast<pid_t>(identity & kPidMask);
    const std::optional<uint64_t> start = started(pid);
    if (!start) return false;
    return *start == kUnknown || identity >> kPidBits == kUnknown || pack(pid, *start) == identity;
  }

 private:
  static constexpr int kPidBits = 24;
  static constexpr uint64_t kPidMask = (uint64_t{1} << kPidBits) - 1;
  static constexpr uint64_t kUnknown = 0;  // start that could not be read, as where no descriptor was free

  static uint64_t pack(pid_t pid, uint64_t start) { return start << kPidBits | static_cast<uint64_t>(pid); }

  // Clock ticks from boot to the start of a process; kUnknown, or nothing if the process has ended.
  static std::optional<uint64_t> started(pid_t pid) {
    char line[1024];
    std::snprintf(line, sizeof line, "/proc/%d/stat", static_cast<int>(pid));
    const int file = open(line, O_RDONLY | O_CLOEXEC);
    const ssize_t length = file < 0 ? -1 : read(file, line, sizeof line - 1);
    const bool has_ended = length < 0 && (errno == ENOENT || errno == ESRCH);
    if (file >= 0) close(file);
    if (has_ended) return std::nullopt;
    line[std::max<ssize_t>(length, 0)] = '\0';
    // The second field, the name, may hold anything but ends at the last parenthesis; the state follows as third.
    const char* after_name = std::strrchr(line, ')');
    char state = 'X';
    unsigned long long start = 0;
    if (after_name == nullptr ||
        std::sscanf(after_name + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu",
                    &state, &start) != 2) {
      return kUnknown;
    }
    return state == 'Z' || state == 'X' ? std::nullopt : std::optional<uint64_t>(start);
  }
};

// A table of the writers that are at work. A number is used again only after 62 others in the same place.
class Writers {
 public:
  static constexpr const char* kName = "Writers";
  static constexpr uint32_t kPlaces = 16'384;  // writers at once
  static constexpr int kNumberBits = 20;
  static constexpr uint32_t kNobody = 0;

  static size_t nbytes() { return whole_lines(sizeof(Header)); }

  static Writers create(const Arena& arena, size_t offset) {
    auto* header = new (region(arena, offset, nbytes(), kName)) Header{};
    header->magic.store(Header::kMagic, std::memory_order_release);
    return Writers(header);
  }

  static Writers attach(const Arena& arena, size_t offset) {
    return Writers(existing<Header>(arena, offset, kName));
  }

  // A number for a new writer of this process, in a place that is free or whose process died.
  uint32_t join() {
    const uint64_t me = ProcessIdentity::of_this_process();
    uint64_t living = me;  // found alive last: its places, side by side, are no reason to look again
    for (const bool among_the_dead : {false, true}) {
      for (uint32_t place = 0; place < kPlaces; ++place) {
        Place& found = header_->places[place];
        uint64_t process = found.process.load();
        if (process != 0 && (!among_the_dead || process == living)) continue;
        if (ProcessIdentity::alive(process)) {
          living = process;
          continue;
        }
        if (!found.process.compare_exchange_strong(process, me)) continue;
        // Until here rows that the one before left half-written seem to be written by us: others pass them by.
        const uint32_t turn = found.turn.load() % kTurns + 1;
        found.turn.store(turn);
        return turn * kPlaces + place;
      }
    }
    throw std::runtime_error("all " + std::to_string(kPlaces) + " places for writers are taken by live processes: " +
                             "let go of writers that are done, let one writer carry several lanes, or train with "
                             "fewer nodes, num_workers or num_envs_per_worker");
  }

  void leave(uint32_t number) { header_->places[number % kPlaces].process.store(0); }

  bool alive(uint32_t number) const {
    const Place& place = header_->places[number % kPlaces];
    if (place.turn.load() != number / kPlaces) return false;
    return ProcessIdentity::alive(place.process.load());
  }

 private:
  static constexpr uint32_t kTurns = (1U << kNumberBits) / kPlaces - 1;

  struct Place {
    std::atomic<uint64_t> process;  // with the place, or 0: written by it when it takes the place and when it leaves
    std::atomic<uint32_t> turn;     // which taker of the place it is, from 1: written by the taker
  };

  struct alignas(kLine) Header {
    static constexpr uint64_t kMagic = magic_word("PsWriter");
    Magic magic;  // written by create()
    Place places[kPlaces];
  };

  explicit Writers(Header* header) : header_(header) {}

  Header* header_;
};

}  // namespace penstock
