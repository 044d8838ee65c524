// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace ballast::tokenizer {
namespace {

WordCache::Key key_of(TokenId number) {
  const std::string word = std::to_string(number);
  return WordCache::key_of(word.data(), word.size(), word.data() + word.size());
}

// From the first to the last place of a thousand words.
ptrdiff_t bytes_of(WordCache& cache) {
  std::vector<const WordCache::Slot*> places;
  for (TokenId word = 0; word < 1000; ++word) places.push_back(&cache.slot(key_of(word)));
  const auto [first, last] = std::ranges::minmax(places);
  return (last - first + 1) * static_cast<ptrdiff_t>(sizeof(WordCache::Slot));
}

void put(WordCache& cache, TokenId words) {
  for (TokenId word = 0; word < words; ++word) {
    const std::vector<TokenId> ids(1 + word % WordCache::kMaxIds, word);
    const WordCache::Slot& slot = cache.put(key_of(word), ids);
    ASSERT_EQ(slot.key, key_of(word));
    ASSERT_TRUE(
        std::equal(ids.begin(), ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count));
  }
}

TEST(WordCache, TakesMemoryAsWordsComeUpToALimit) {
  WordCache cache;
  EXPECT_LE(bytes_of(cache), 32 << 10);
  put(cache, 200);
  EXPECT_LE(bytes_of(cache), 32 << 10);
  put(cache, 200'000);
  EXPECT_GT(bytes_of(cache), 1 << 20);
  EXPECT_LE(bytes_of(cache), 2 << 20);
}

TEST(WordCache, WordsStayWhereItGrows) {
  WordCache cache;
  put(cache, 5000);
  int found = 0;
  for (TokenId word = 0; word < 5000; ++word) {
    const WordCache::Slot& slot = cache.slot(key_of(word));
    if (slot.key != key_of(word)) continue;
    ++found;
    EXPECT_EQ(slot.count, 1 + word % WordCache::kMaxIds);
    EXPECT_EQ(slot.ids[0], word);
  }
  EXPECT_GT(found, 3500);  // the others had to give their place to a word
}

}  // namespace
}  // namespace ballast::tokenizer
