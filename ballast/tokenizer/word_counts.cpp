// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/word_counts.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "ballast/system/checksum.h"

namespace ballast::tokenizer {
namespace {

constexpr size_t kBlock = 1 << 16;

}  // namespace

void WordCounts::add(std::string_view word, uint64_t count) {
  add_hashed(word, checksum(word), count);
}

void WordCounts::add_all(const WordCounts& other) {
  for (const Entry& entry : other.entries_) add_hashed(entry.word, entry.hash, entry.count);
}

void WordCounts::add_hashed(std::string_view word, uint64_t hash, uint64_t count) {
  if (2 * entries_.size() >= slots_.size()) grow();
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    if (slots_[i] == 0) {
      if (entries_.size() + 1 >= std::numeric_limits<uint32_t>::max()) {
        throw std::length_error("over four billion distinct words");
      }
      entries_.push_back({keep(word), hash, count});
      slots_[i] = static_cast<uint32_t>(entries_.size());
      return;
    }
    Entry& entry = entries_[slots_[i] - 1];
    if (entry.hash == hash && entry.word == word) {
      entry.count += count;
      return;
    }
  }
}

void WordCounts::grow() {
  slots_.assign(std::max<size_t>(1024, 2 * slots_.size()), 0);
  const size_t mask = slots_.size() - 1;
  for (size_t index = 0; index < entries_.size(); ++index) {
    size_t i = entries_[index].hash & mask;
    while (slots_[i] != 0) i = (i + 1) & mask;
    slots_[i] = static_cast<uint32_t>(index + 1);
  }
}

std::string_view WordCounts::keep(std::string_view word) {
  if (word.size() > block_left_) {
    block_left_ = std::max(kBlock, word.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(block_left_));
    block_next_ = blocks_.back().get();
  }
  std::memcpy(block_next_, word.data(), word.size());
  const std::string_view kept(block_next_, word.size());
  block_next_ += word.size();
  block_left_ -= word.size();
  return kept;
}

}  // namespace ballast::tokenizer
