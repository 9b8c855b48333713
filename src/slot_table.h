// Ownership of slots: state, owner and generation of each, changed together by compare-and-swap.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <optional>
#include <vector>

#include "region.h"

namespace penstock {

struct SlotWord {
  uint8_t state;
  int32_t owner;        // -1: none
  uint32_t generation;  // how often the slot was freed, modulo 2^32

  // generation : 32 | owner + 1 : 24 | state : 8
  uint64_t packed() const {
    return uint64_t{generation} << 32 | uint64_t{static_cast<uint32_t>(owner + 1) & 0xFFFFFF} << 8 | state;
  }
  static SlotWord unpacked(uint64_t word) {
    return {static_cast<uint8_t>(word & 0xFF), static_cast<int32_t>(word >> 8 & 0xFFFFFF) - 1,
            static_cast<uint32_t>(word >> 32)};
  }
};

class SlotTable {
 public:
  static constexpr const char* kName = "SlotTable";
  static constexpr uint8_t kFree = 0;
  static constexpr uint8_t kNumStates = 4;  // FREE, WRITING, FULL, READING
  static constexpr int64_t kNobody = -1;
  static constexpr int64_t kMaxOwner = 0xFFFFFE;

  static size_t nbytes(size_t num_slots) {
    if (num_slots == 0 || num_slots > kMaxSlots) {
      throw std::invalid_argument("SlotTable: the number of slots must be from 1 to " + std::to_string(kMaxSlots) +
                                  ", found " + std::to_string(num_slots));
    }
    return whole_lines(sizeof(Header) + num_slots * sizeof(std::atomic<uint64_t>));
  }

  // Every slot starts free, without an owner, in generation 0.
  static SlotTable create(const Arena& arena, size_t offset, size_t num_slots) {
    auto* header = new (region(arena, offset, nbytes(num_slots), kName)) Header{};
    header->num_slots = num_slots;
    SlotTable table(header);
    for (size_t slot = 0; slot < num_slots; ++slot) {
      new (&table.words()[slot]) std::atomic<uint64_t>(SlotWord{kFree, kNobody, 0}.packed());
    }
    header->magic.store(Header::kMagic, std::memory_order_release);
    return table;
  }

  static SlotTable attach(const Arena& arena, size_t offset) {
    auto* header = existing<Header>(arena, offset, kName);
    region(arena, offset, nbytes(header->num_slots), kName);
    return SlotTable(header);
  }

  size_t size() const { return header_->num_slots; }

  SlotWord at(size_t slot) const { return SlotWord::unpacked(words()[slot].load()); }

  // Moves one slot from state to state and gives it to `owner`, if it is in `from` (and belongs to `from_owner`).
  bool claim(size_t slot, uint8_t from, uint8_t to, int32_t owner, std::optional<int32_t> from_owner) {
    std::atomic<uint64_t>& word = words()[slot];
    uint64_t seen = word.load();
    for (;;) {
      const SlotWord now = SlotWord::unpacked(seen);
      if (now.state != from || (from_owner && now.owner != *from_owner)) return false;
      const SlotWord next{to, owner, now.generation + (to == kFree ? 1U : 0U)};
      if (word.compare_exchange_weak(seen, next.packed())) return true;
    }
  }

  template <class Predicate>
  std::vector<int64_t> where(Predicate predicate) const {
    std::vector<int64_t> slots;
    for (size_t slot = 0; slot < size(); ++slot) {
      if (predicate(at(slot))) slots.push_back(static_cast<int64_t>(slot));
    }
    return slots;
  }

 private:
  static constexpr size_t kMaxSlots = size_t{1} << 32;
  static_assert(std::atomic<uint64_t>::is_always_lock_free);

  struct alignas(kLine) Header {
    static constexpr uint64_t kMagic = magic_word("PsSlots1");
    Magic magic;         // written by create()
    uint64_t num_slots;  // written by create()
    // The words follow. Each is written only by claim(), by any process.
  };

  explicit SlotTable(Header* header) : header_(header) {}

  std::atomic<uint64_t>* words() const { return reinterpret_cast<std::atomic<uint64_t>*>(header_ + 1); }

  Header* header_;
};

}  // namespace penstock
