// A counter that one side raises and the other waits for: "look, something changed".
#pragma once

#include <new>

#include "clock.h"
#include "futex.h"
#include "region.h"
#include "relax.h"

namespace penstock {

class Doorbell {
 public:
  static constexpr const char* kName = "Doorbell";

  static constexpr size_t nbytes() { return whole_lines(sizeof(Header)); }

  static Doorbell create(const Arena& arena, size_t offset) {
    auto* header = new (region(arena, offset, nbytes(), kName)) Header{};
    header->magic.store(Header::kMagic, std::memory_order_release);
    return Doorbell(header);
  }

  static Doorbell attach(const Arena& arena, size_t offset) {
    return Doorbell(existing<Header>(arena, offset, kName));
  }

  void ring() { header_->rings.signal_all(); }
  bool is_waited_for() const { return header_->rings.has_sleepers(); }
  uint32_t value() const { return header_->rings.count(); }
  void sleep(uint32_t seen, int64_t timeout_ns) { header_->rings.sleep(seen, timeout_ns); }

  // Watches the counter without sleeping, until it differs from `seen` or the time is over.
  void spin(uint32_t seen, int64_t timeout_ns) const {
    const int64_t end_ns = now_ns() + timeout_ns;
    while (value() == seen && now_ns() < end_ns) relax();
  }

 private:
  struct Header {
    static constexpr uint64_t kMagic = magic_word("PsBell01");
    Magic magic;  // written by create()
    Event rings;  // signalled by ringers, slept on by waiters
  };

  explicit Doorbell(Header* header) : header_(header) {}

  Header* header_;
};

}  // namespace penstock
