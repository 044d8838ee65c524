// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ballast/tokenizer/bpe_vocabulary.h"
#include "ballast/tokenizer/character_symbols.h"

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

// BPE of one pre-token: again and again the adjacent pair of lowest rank, the leftmost of several,
// becomes one token, until no pair merges.
class WordEncoder {
 public:
  // REQUIRES: it has a token for each byte, or starts from characters.
  explicit WordEncoder(const BpeVocabulary& vocabulary);

  // Appends the ids of `word`. Time: n^2 with a small constant for short words, n log n for long.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

  // The plain algorithm for any size, n^2: what encode() must equal.
  void encode_by_scan(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  // Appends what merges start from.
  void append_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  // Merges the symbols from ids[begin] on.
  void merge_by_scan(std::vector<TokenId>& ids, size_t begin) const;
  void merge_by_queue(std::vector<TokenId>& ids, size_t begin) const;

  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_{};
  std::optional<CharacterSymbols> characters_;  // none: symbols are bytes
  // Pre-tokens that stay whole, where merges are ignored for them.
  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> whole_;
};

}  // namespace ballast::tokenizer
