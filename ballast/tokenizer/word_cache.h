// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ballast/tokenizer/tokenizer.h"

namespace ballast::tokenizer {

// Remembers the ids of short pre-tokens: a direct-mapped table of fixed size, so a new word takes
// the place of an older one. For one thread at a time.
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
    return slots_[(mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9 >> (64 - kBits)];
  }

 private:
  static constexpr int kBits = 15;  // 2 MB
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
};

}  // namespace ballast::tokenizer
