// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/word_encoder.h"

#include <gtest/gtest.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "ballast/system/random.h"

namespace ballast::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

// The byte vocabulary with merges of token texts (ASCII), whose products get ids from 257 on.
BpeVocabulary with_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  BpeVocabulary vocabulary = byte_vocabulary();
  std::unordered_map<std::string, TokenId> ids;
  for (TokenId id = 0; id < vocabulary.tokens.size(); ++id) ids[vocabulary.tokens[id]] = id;
  for (const auto& [left, right] : merges) {
    const auto [product, is_new] =
        ids.emplace(left + right, static_cast<TokenId>(vocabulary.tokens.size()));
    if (is_new) vocabulary.tokens.push_back(left + right);
    vocabulary.merges.push_back({ids.at(left), ids.at(right), product->second});
  }
  return vocabulary;
}

Ids encode(const WordEncoder& encoder, std::string_view word) {
  Ids ids;
  encoder.encode(word, ids);
  return ids;
}

TEST(WordEncoder, MergesTheLowestRankFirstAndTheLeftmostOfSeveral) {
  const WordEncoder encoder(with_merges({{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(encode(encoder, "abc"), (Ids{'a', 257}));
  EXPECT_EQ(encode(encoder, "abab"), (Ids{258, 258}));
  EXPECT_EQ(encode(encoder, "aaa"), (Ids{259, 'a'}));
  EXPECT_EQ(encode(encoder, "aaaa"), (Ids{259, 259}));
  EXPECT_EQ(encode(encoder, "aab"), (Ids{'a', 258}));
  EXPECT_EQ(encode(encoder, "x"), (Ids{'x'}));
  EXPECT_EQ(encode(encoder, ""), Ids{});
}

TEST(WordEncoder, TakesAMergeThatBecomesPossibleLateThoughItsRankIsLow) {
  // (ab, c) has a lower rank than (a, b), which must come first: files may say so.
  const WordEncoder encoder(with_merges({{"a", "b"}, {"c", "d"}, {"ab", "c"}}));
  EXPECT_EQ(encode(encoder, "abcd"), (Ids{257, 258}));
  BpeVocabulary swapped = with_merges({{"a", "b"}, {"c", "d"}, {"ab", "c"}});
  std::swap(swapped.merges[0], swapped.merges[2]);
  EXPECT_EQ(encode(WordEncoder(swapped), "abcd"), (Ids{257, 258}));  // (c, d) now before (a, b)
  EXPECT_EQ(encode(WordEncoder(swapped), "abc"), (Ids{259}));
}

// Random merges over few letters, in random order: later ones may have lower ranks than their
// parts.
BpeVocabulary random_vocabulary(RandomStream& random, size_t num_merges) {
  std::vector<std::string> parts = {"a", "b", "c"};
  std::vector<std::pair<std::string, std::string>> merges;
  while (merges.size() < num_merges) {
    std::pair merge{parts[random.below(parts.size())], parts[random.below(parts.size())]};
    if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
    parts.push_back(merge.first + merge.second);
    merges.push_back(std::move(merge));
  }
  BpeVocabulary vocabulary = with_merges(merges);
  for (size_t i = vocabulary.merges.size(); i > 1; --i) {
    std::swap(vocabulary.merges[i - 1], vocabulary.merges[random.below(i)]);
  }
  return vocabulary;
}

TEST(WordEncoder, LongWordsGetTheIdsOfThePlainAlgorithm) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomStream random(seed, "words");
    const WordEncoder encoder(random_vocabulary(random, 1 + random.below(40)));
    std::string word(1 + random.below(400), 'a');
    for (char& c : word) c = static_cast<char>('a' + random.below(seed % 3 + 1));
    Ids expected;
    encoder.encode_by_scan(word, expected);
    ASSERT_EQ(encode(encoder, word), expected) << "seed " << seed << " word " << word;
  }
}

TEST(WordEncoder, AMegabyteWithoutASpaceIsNotQuadratic) {  // it would take hours
  const WordEncoder encoder(with_merges({{"a", "a"}, {"aa", "aa"}, {"aaaa", "aaaa"}, {"b", "a"}}));
  EXPECT_EQ(encode(encoder, std::string(1 << 20, 'a')).size(), size_t{1 << 17});
  std::string word(1 << 20, 'a');
  for (size_t i = 0; i < word.size(); i += 7) word[i] = 'b';
  const Ids ids = encode(encoder, word);
  EXPECT_EQ(ids[0], TokenId{'b'});
  EXPECT_EQ(ids.size(), 3 * (word.size() / 7 + 1));  // b aaaa aa, again and again
}

TEST(MergeTable, FindsEveryMergeAndNothingElse) {
  std::vector<Merge> merges;
  for (TokenId i = 0; i < 5000; ++i) merges.push_back({i * 7, i % 13, i + 100000});
  const MergeTable table(merges);
  for (TokenId i = 0; i < 5000; ++i) {
    EXPECT_EQ(table.find(i * 7, i % 13).rank, i);
    EXPECT_EQ(table.find(i * 7, i % 13).result, i + 100000);
    EXPECT_EQ(table.find(i * 7 + 1, i % 13).rank, MergeTable::kNoRank);
    EXPECT_EQ(table.find(i * 7, 13).rank, MergeTable::kNoRank);
  }
  EXPECT_EQ(MergeTable({}).find(0, 0).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace ballast::tokenizer
