// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/tokenizer/bpe_vocabulary.h"

namespace ballast::tokenizer {

// (left, right) -> rank and result of the merge: an open-addressing table, at most half full.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  struct Entry {
    uint32_t rank = kNoRank;
    TokenId result = 0;
  };

  explicit MergeTable(std::span<const Merge> merges);
  Entry find(TokenId left, TokenId right) const {  // kNoRank: they do not merge
    const uint64_t key = uint64_t{left} << 32 | right;
    for (size_t i = key * kMultiplier >> shift_;; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.key == key || slot.entry.rank == kNoRank) return slot.entry;
    }
  }

 private:
  static constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
  struct Slot {
    uint64_t key = 0;
    Entry entry;
  };
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

// Byte-level BPE of one pre-token: again and again the adjacent pair of lowest rank, the leftmost
// of several, becomes one token, until no pair merges.
class WordEncoder {
 public:
  explicit WordEncoder(const BpeVocabulary& vocabulary);  // REQUIRES: it has a token for each byte

  // Appends the ids of `word`. Time: n^2 with a small constant for short words, n log n for long.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

  // The plain algorithm for any size, n^2: what encode() must equal.
  void encode_by_scan(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  void encode_by_queue(std::string_view word, std::vector<TokenId>& ids) const;

  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_{};
};

}  // namespace ballast::tokenizer
