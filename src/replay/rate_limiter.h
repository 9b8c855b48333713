// Keeps sampling and inserting in step: a fixed number of samples per inserted row, whichever side is faster.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>

#include "../clock.h"
#include "../futex.h"
#include "../region.h"

namespace penstock {

// The rule is Reverb's (arXiv:2102.04736), written around its centre. With I rows inserted and S samples taken, the
// surplus (I - min_size) * samples_per_insert - S is the number of samples due; it stays in [-tolerance, tolerance]:
// a sample of n may go if I >= min_size and surplus - n >= -tolerance, an insert of n if I + n <= min_size or
// surplus + n * samples_per_insert <= tolerance. A request larger than half the band is an error. So both sides are
// never held at once: a sample is held only while the surplus is below 0, an insert only while it is above.
//
// No lock: a request is checked and then counted by one compare-and-swap on its own side's counter. The other
// side's counter, which may move in between, only grows, and that only makes room; so the band holds at every
// instant, and a process killed at any instant blocks no other. It may leave one request counted and not done.
class RateLimiter {
 public:
  static constexpr const char* kName = "RateLimiter";
  static constexpr double kNoRatio = std::numeric_limits<double>::infinity();
  static constexpr uint64_t kMaxRequest = uint64_t{1} << 40;

  static constexpr size_t nbytes() { return whole_lines(sizeof(Header)); }

  // samples_per_insert kNoRatio: only min_size counts, tolerance does not.
  static RateLimiter create(const Arena& arena, size_t offset, double samples_per_insert, double tolerance,
                            uint64_t min_size) {
    if (!(samples_per_insert > 0)) {
      throw std::invalid_argument("samples_per_insert must be above 0, found " + number(samples_per_insert) +
                                  "; None lets only min_size count");
    }
    if (min_size < 1 || min_size > kMaxRequest) {
      throw std::invalid_argument("min_size must be from 1 to " + std::to_string(kMaxRequest) + ", found " +
                                  std::to_string(min_size));
    }
    // One row, worth samples_per_insert samples, and one sample must each fit in half the band.
    const double least = std::max(1.0, samples_per_insert);
    if (samples_per_insert == kNoRatio) {
      tolerance = kNoRatio;
    } else if (!(tolerance >= least && std::isfinite(tolerance))) {
      throw std::invalid_argument("tolerance must be at least " + number(least) +
                                  ", the larger of 1 and samples_per_insert, and finite, found " + number(tolerance) +
                                  ": in a narrower band inserting and sampling would block each other");
    }
    auto* header = new (region(arena, offset, nbytes(), kName)) Header{};
    header->samples_per_insert = samples_per_insert;
    header->tolerance = tolerance;
    header->min_size = min_size;
    header->magic.store(Header::kMagic, std::memory_order_release);
    return RateLimiter(header);
  }

  static RateLimiter attach(const Arena& arena, size_t offset) {
    return RateLimiter(existing<Header>(arena, offset, kName));
  }

  double samples_per_insert() const { return header_->samples_per_insert; }
  double tolerance() const { return header_->tolerance; }
  uint64_t min_size() const { return header_->min_size; }
  uint64_t inserts() const { return header_->inserts.load(); }
  uint64_t samples() const { return header_->samples.load(); }

  // Samples due less samples taken; infinite without a ratio.
  double surplus() const { return surplus(inserts(), samples()); }

  // Most rows that one request may have once min_size is reached; a writer of more asks several times.
  uint64_t largest_insert() const {
    if (!has_ratio()) return kMaxRequest;
    const double most = std::min(std::floor(tolerance() / samples_per_insert()), static_cast<double>(kMaxRequest));
    const bool rounded_up = most * samples_per_insert() > tolerance();
    return static_cast<uint64_t>(most) - (rounded_up ? 1 : 0);
  }

  // Counts n rows inserted (samples taken) if they may go now. Throws std::invalid_argument for more than half the
  // band, unless they only fill the buffer up to min_size.
  bool try_insert(uint64_t n) {
    uint64_t inserts = header_->inserts.load();
    do {
      if (!may_insert(inserts, n)) return false;
    } while (!header_->inserts.compare_exchange_weak(inserts, inserts + n));
    header_->inserted.signal_all();
    return true;
  }

  bool try_sample(uint64_t n) {
    uint64_t samples = header_->samples.load();
    do {
      if (!may_sample(samples, n)) return false;
    } while (!header_->samples.compare_exchange_weak(samples, samples + n));
    header_->sampled.signal_all();
    return true;
  }

  // What the side that must wait watches: read the count, try, and only then sleep with the count read.
  Event& inserted() { return header_->inserted; }
  Event& sampled() { return header_->sampled; }

  // Sleep of a side that was refused; the time counts as its waiting time.
  void sleep_until_sampled(uint32_t seen, int64_t timeout_ns) { sleep(sampled(), seen, timeout_ns, insert_wait()); }
  void sleep_until_inserted(uint32_t seen, int64_t timeout_ns) { sleep(inserted(), seen, timeout_ns, sample_wait()); }

  // Nanoseconds that all inserting (sampling) processes have slept, in total.
  std::atomic<int64_t>& insert_wait() { return header_->insert_wait_ns; }
  std::atomic<int64_t>& sample_wait() { return header_->sample_wait_ns; }

  // Only while no process inserts or samples: the rule above needs counters that never fall.
  void set_counters(uint64_t inserts, uint64_t samples) {
    const double due = surplus(inserts, samples);
    const bool filling = samples == 0 && inserts <= min_size();
    if (has_ratio() && !filling && !(std::abs(due) <= tolerance())) {
      throw std::invalid_argument(
          std::to_string(inserts) + " inserts and " + std::to_string(samples) + " samples lie outside the band of " +
          "samples_per_insert=" + number(samples_per_insert()) + ", min_size=" + std::to_string(min_size()) +
          ", tolerance=" + number(tolerance()) + " (surplus " + number(due) +
          "): restore them into a limiter with the settings that they come from, or start again from 0");
    }
    header_->inserts.store(inserts);
    header_->samples.store(samples);
    header_->inserted.signal_all();
    header_->sampled.signal_all();
  }

 private:
  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsRate01");
    Magic magic;                // written by create()
    double samples_per_insert;  // written by create()
    double tolerance;           // written by create()
    uint64_t min_size;          // written by create()
    alignas(kLine) std::atomic<uint64_t> inserts;  // written by inserting processes
    Event inserted;                                // signalled by inserting processes, slept on by sampling ones
    std::atomic<int64_t> insert_wait_ns;           // written by inserting processes, after a sleep
    alignas(kLine) std::atomic<uint64_t> samples;  // written by sampling processes
    Event sampled;                                 // signalled by sampling processes, slept on by inserting ones
    std::atomic<int64_t> sample_wait_ns;           // written by sampling processes, after a sleep
  };

  explicit RateLimiter(Header* header) : header_(header) {}

  bool has_ratio() const { return samples_per_insert() != kNoRatio; }

  double surplus(uint64_t inserts, uint64_t samples) const {
    if (!has_ratio()) return kNoRatio;
    return (static_cast<double>(inserts) - static_cast<double>(min_size())) * samples_per_insert() -
           static_cast<double>(samples);
  }

  bool may_insert(uint64_t inserts, uint64_t n) const {
    if (!has_ratio() || inserts + n <= min_size()) return true;
    if (n > largest_insert()) refuse(n, "inserts", largest_insert(), "tolerance / samples_per_insert");
    return surplus(inserts, samples()) + static_cast<double>(n) * samples_per_insert() <= tolerance();
  }

  bool may_sample(uint64_t samples, uint64_t n) const {
    const auto wanted = static_cast<double>(n);
    if (wanted > tolerance()) refuse(n, "samples", static_cast<uint64_t>(tolerance()), "tolerance");
    const uint64_t inserts = header_->inserts.load();
    return inserts >= min_size() && surplus(inserts, samples) - wanted >= -tolerance();
  }

  // `most` is half the band, in requests of this kind; `formula` describes it.
  [[noreturn]] void refuse(uint64_t n, const char* requests, uint64_t most, const char* formula) const {
    throw std::invalid_argument(std::to_string(n) + " " + requests + " at once are too many: at samples_per_insert=" +
                                number(samples_per_insert()) + " and tolerance=" + number(tolerance()) +
                                " at most " + std::to_string(most) + " may go together (" + formula +
                                "), or both sides could wait for each other; ask for fewer at once, or make a limiter "
                                "with a larger tolerance");
  }

  static void sleep(Event& event, uint32_t seen, int64_t timeout_ns, std::atomic<int64_t>& waited) {
    const int64_t start_ns = now_ns();
    event.sleep(seen, timeout_ns);
    waited.fetch_add(now_ns() - start_ns);
  }

  static std::string number(double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.12g", value);
    return digits;
  }

  Header* header_;
};

}  // namespace penstock
