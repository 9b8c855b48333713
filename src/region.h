// A part of an arena that holds one structure, known by its magic word.
#pragma once

#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "arena.h"

namespace penstock {

// Every structure starts on, and fills, whole cache lines: neighbours share none, and offsets can simply be added up.
inline constexpr size_t kLine = 64;

constexpr size_t whole_lines(size_t nbytes) { return (nbytes + kLine - 1) / kLine * kLine; }

// The first word of every structure. Written last by create(), checked first by attach().
using Magic = std::atomic<uint64_t>;

// Spells the eight letters of a magic word, so that a hex dump of an arena can be read.
constexpr uint64_t magic_word(const char (&letters)[9]) {
  uint64_t word = 0;
  for (int i = 7; i >= 0; --i) word = (word << 8) | static_cast<unsigned char>(letters[i]);
  return word;
}

// The bytes [offset, offset + nbytes) of the arena; throws std::invalid_argument if they are not all there.
inline std::byte* region(const Arena& arena, size_t offset, size_t nbytes, const char* what) {
  if (offset % kLine != 0) {
    throw std::invalid_argument(std::string(what) + ": offset " + std::to_string(offset) + " is not a multiple of " +
                                std::to_string(kLine) + "; round it up");
  }
  if (offset > arena.nbytes() || nbytes > arena.nbytes() - offset) {
    throw std::invalid_argument(std::string(what) + ": needs " + std::to_string(nbytes) + " bytes from offset " +
                                std::to_string(offset) + ", but the arena ends at " + std::to_string(arena.nbytes()) +
                                "; create a larger arena");
  }
  return arena.base() + offset;
}

// The header of a structure made by create(); throws std::invalid_argument if the memory holds something else.
template <class Header>
Header* existing(const Arena& arena, size_t offset, const char* what) {
  auto* header = reinterpret_cast<Header*>(region(arena, offset, sizeof(Header), what));
  const uint64_t found = header->magic.load(std::memory_order_acquire);
  if (found != Header::kMagic) {
    char words[64];
    std::snprintf(words, sizeof words, "0x%016" PRIx64 ", expected 0x%016" PRIx64, found, Header::kMagic);
    throw std::invalid_argument("there is no " + std::string(what) + " at offset " + std::to_string(offset) +
                                ": found magic word " + words + "; attach with the offset given to create()");
  }
  return header;
}

}  // namespace penstock
