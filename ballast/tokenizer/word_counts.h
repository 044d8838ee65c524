// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace ballast::tokenizer {

// How often each distinct word occurs. Memory: the words' bytes and about 45 bytes a word.
class WordCounts {
 public:
  struct Entry {
    std::string_view word;  // lives as long as the WordCounts
    uint64_t hash = 0;
    uint64_t count = 0;
  };

  void add(std::string_view word, uint64_t count = 1);
  void add_all(const WordCounts& other);
  // In the order of first appearance.
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add_hashed(std::string_view word, uint64_t hash, uint64_t count);
  std::string_view keep(std::string_view word);
  void grow();

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_;  // index of an entry + 1, 0: empty; size a power of two
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_left_ = 0;
  char* block_next_ = nullptr;
};

}  // namespace ballast::tokenizer
