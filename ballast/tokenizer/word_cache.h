// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

// Remembers the ids of short pre-tokens: a direct-mapped table, where a new word takes the place of
// an older one. It grows with the words up to 2 MB, so that a short text takes little memory. For
// one thread at a time.
class WordCache {
 public:
  static constexpr size_t kMaxBytes = 15, kMaxIds = 11;

  // A word of 1 to 15 bytes, with zeros after it and its size in the last byte.
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key&) const = default;
  };
  struct alignas(64) Slot {  // one cache line
    Key key;                 // all zero: empty
    uint32_t count = 0;
    std::array<TokenId, kMaxIds> ids{};
  };

  // REQUIRES: 1 <= size <= kMaxBytes, word + size <= end. Reads no byte at or after `end`.
  static Key key_of(const char* word, size_t size, const char* end) {
    static_assert(std::endian::native == std::endian::little);
    Key key;
    if (end - word >= 16) {
      std::memcpy(&key, word, 16);
      key.low &= size < 8 ? (uint64_t{1} << 8 * size) - 1 : ~uint64_t{0};
      key.high &= size < 8 ? 0 : (uint64_t{1} << 8 * (size - 8)) - 1;
    } else {
      std::memcpy(&key, word, size);
    }
    key.high |= uint64_t{size} << 56;
    return key;
  }

  // The only place where `key` can be: a hit if slot.key == key.
  Slot& slot(const Key& key) {
    const uint64_t mixed = (key.low ^ std::rotl(key.high, 23)) * 0x9E3779B97F4A7C15;
    return slots_[(mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 >> shift_];
  }

  // Remembers a word that was no hit. REQUIRES: ids.size() <= kMaxIds.
  const Slot& put(const Key& key, std::span<const TokenId> ids) {
    if (++puts_ > slots_.size() / 2 && slots_.size() < kMostSlots) grow();
    Slot& place = slot(key);
    place.key = key;
    place.count = static_cast<uint32_t>(ids.size());
    std::copy(ids.begin(), ids.end(), place.ids.begin());
    return place;
  }

 private:
  static constexpr int kFewestBits = 9, kGrowthBits = 3, kMostBits = 15;
  static constexpr size_t kMostSlots = size_t{1} << kMostBits;

  void grow() {
    const std::vector<Slot> old = std::move(slots_);
    slots_ = std::vector<Slot>(old.size() << kGrowthBits);
    shift_ -= kGrowthBits;
    for (const Slot& kept : old)
      if (kept.key != Key()) slot(kept.key) = kept;
  }

  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFewestBits);
  int shift_ = 64 - kFewestBits;
  size_t puts_ = 0;
};

}  // namespace ballast::tokenizer
