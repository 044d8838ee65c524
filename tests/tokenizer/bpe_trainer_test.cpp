// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/parallel.h"
#include "ballast/system/random.h"
#include "ballast/tokenizer/bpe_tokenizer.h"

namespace ballast::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

BpeVocabulary train(const std::vector<std::string>& texts, TokenId vocabulary_size) {
  BpeTrainer trainer;
  for (const std::string& text : texts) trainer.add(text);
  return dynamic_cast<const BpeTokenizer&>(*trainer.train(vocabulary_size)).vocabulary();
}

std::vector<std::string> merges_of(const BpeVocabulary& vocabulary) {
  std::vector<std::string> merges;
  for (const Merge& merge : vocabulary.merges) {
    merges.push_back(
        fmt::format("{} {}", vocabulary.tokens[merge.left], vocabulary.tokens[merge.right]));
  }
  return merges;
}

std::string random_words(uint64_t seed, size_t count) {
  RandomStream random(seed, "words");
  const size_t letters = 1 + seed % 5;
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    for (size_t n = 1 + random.below(12); n > 0; --n) {
      text.push_back(static_cast<char>('a' + random.below(letters)));
    }
    text.push_back(random.below(10) ? ' ' : '\n');
  }
  return text;
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  const BpeVocabulary vocabulary = train({"low low low lower lower newest"}, 257 + 4);
  // "lo" 5 times, then "low" 5, " low" 4; of the pairs that come twice (e r) has the smallest ids.
  EXPECT_THAT(merges_of(vocabulary), ElementsAre("l o", "lo w", "\u0120 low", "e r"));
  EXPECT_EQ(vocabulary.tokens.size(), 261U);
  EXPECT_EQ(vocabulary.tokens[0], "!");
  EXPECT_EQ(vocabulary.tokens[256], "lo");
  EXPECT_EQ(vocabulary.end_of_text, 260U);
  EXPECT_EQ(vocabulary.tokens[260], kEndOfText);
}

TEST(BpeTrainer, BreaksTiesBySmallerIds) {
  EXPECT_THAT(merges_of(train({"cd\nab\nef"}, 259)), ElementsAre("a b", "c d"));
  EXPECT_THAT(merges_of(train({"ab\nac"}, 258)), ElementsAre("a b"));
}

TEST(BpeTrainer, MergesARunFromTheLeft) {
  EXPECT_THAT(merges_of(train({"aaaaa"}, 260)), ElementsAre("a a", "aa a", "aa aaa"));
}

// Counts all pairs afresh before each merge.
BpeVocabulary train_plainly(const WordCounts& words, size_t num_merges) {
  BpeVocabulary vocabulary;
  std::map<uint8_t, TokenId> byte_ids;
  for (const uint8_t byte : byte_level_order()) {
    byte_ids[byte] = static_cast<TokenId>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(byte_level_alphabet()[byte]);
  }
  std::vector<std::vector<TokenId>> symbols;
  for (const auto& entry : words.entries()) {
    symbols.emplace_back();
    for (const char c : entry.word) symbols.back().push_back(byte_ids[static_cast<uint8_t>(c)]);
  }
  while (vocabulary.merges.size() < num_merges) {
    std::map<std::pair<TokenId, TokenId>, uint64_t> counts;
    for (size_t w = 0; w < symbols.size(); ++w) {
      for (size_t i = 0; i + 1 < symbols[w].size(); ++i) {
        counts[{symbols[w][i], symbols[w][i + 1]}] += words.entries()[w].count;
      }
    }
    const auto best = std::max_element(counts.begin(), counts.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    if (best == counts.end()) break;
    const auto [left, right] = best->first;
    const auto token = static_cast<TokenId>(vocabulary.tokens.size());
    vocabulary.tokens.push_back(vocabulary.tokens[left] + vocabulary.tokens[right]);
    vocabulary.merges.push_back({left, right, token});
    for (auto& word : symbols) {
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        if (word[i] != left || word[i + 1] != right) continue;
        word[i] = token;
        word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
      }
    }
  }
  return vocabulary;
}

TEST(BpeTrainer, FindsTheMergesOfThePlainAlgorithm) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomStream random(seed, "trainer");
    WordCounts words;
    for (int i = 0; i < 40; ++i) {
      const std::string word = random_words(seed * 100 + i, 1);
      words.add(word.substr(0, word.size() - 1), 1 + random.below(5));
    }
    const BpeVocabulary fast = train_bpe(words, 257 + 80), plain = train_plainly(words, 80);
    ASSERT_EQ(fast.merges, plain.merges) << "seed " << seed;
    const std::set<std::string> distinct(fast.tokens.begin(), fast.tokens.end());
    ASSERT_EQ(distinct.size(), fast.tokens.size()) << "seed " << seed;
  }
}

TEST(BpeTrainer, DependsNeitherOnTheOrderOfTextsNorOnThreads) {
  std::vector<std::string> texts;
  for (uint64_t seed = 0; seed < 40; ++seed) texts.push_back(random_words(seed, 200));
  const BpeVocabulary expected = train(texts, 500);
  std::reverse(texts.begin(), texts.end());
  EXPECT_EQ(train(texts, 500), expected);
  BpeTrainer trainer;
  parallel_for(texts.size(), 4, [&](size_t i) { trainer.add(texts[i]); });
  EXPECT_EQ(dynamic_cast<const BpeTokenizer&>(*trainer.train(500)).vocabulary(), expected);
}

TEST(BpeTrainer, TrainsAgainAfterMoreText) {
  BpeTrainer trainer;
  trainer.add("ab ab");
  EXPECT_EQ(trainer.train(258)->token_bytes(256), "ab");
  trainer.add("cd cd cd cd");
  EXPECT_EQ(trainer.train(258)->token_bytes(256), "cd");
}

TEST(BpeTrainer, NeverMergesAcrossDocuments) {
  const BpeVocabulary vocabulary = train({"x<|endoftext|>x<|endoftext|>"}, 300);
  EXPECT_THAT(vocabulary.merges, ElementsAre());  // and end-of-text itself is no text
  EXPECT_EQ(vocabulary.tokens.size(), 257U);
}

TEST(BpeTrainer, GivesASmallerVocabularyWhereTheTextHasNoMorePairs) {
  EXPECT_EQ(train({"ab"}, 1000).tokens.size(), 258U);
  EXPECT_EQ(train({"ab"}, 257).tokens.size(), 257U);
}

TEST(BpeTrainer, TakesAMegabyteWithoutASpaceAndInvalidBytes) {
  std::string text = random_words(4, 150000);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  for (size_t i = 0; i < text.size(); i += 1000) text[i] = '\xff';
  ASSERT_GT(text.size(), size_t{900000});
  EXPECT_EQ(train({text}, 600).tokens.size(), 600U);
}

TEST(BpeTrainer, RefusesATooSmallVocabularyAndNoText) {
  BpeTrainer trainer;
  EXPECT_THAT([&] { trainer.train(300); }, ThrowsMessage<UserError>(HasSubstr("no text")));
  trainer.add("");
  EXPECT_THAT([&] { trainer.train(300); }, ThrowsMessage<UserError>(HasSubstr("no text")));
  trainer.add("text");
  EXPECT_THAT(
      [&] { trainer.train(256); },
      ThrowsMessage<UserError>(HasSubstr("256 tokens is too small: it takes at least 257")));
}

TEST(WordCounts, CountsEachWordOnceHoweverManyThereAre) {
  WordCounts counts, more;
  for (int i = 0; i < 30000; ++i) counts.add(fmt::format("word{}", i % 10000));
  for (int i = 5000; i < 15000; ++i) more.add(fmt::format("word{}", i), 2);
  const std::string large(100000, 'x');
  counts.add(large);
  counts.add("");
  counts.add_all(more);
  ASSERT_EQ(counts.entries().size(), 15002U);
  EXPECT_EQ(counts.entries()[0].word, "word0");
  EXPECT_EQ(counts.entries()[0].count, 3U);
  EXPECT_EQ(counts.entries()[9999].word, "word9999");
  EXPECT_EQ(counts.entries()[9999].count, 5U);
  EXPECT_EQ(counts.entries()[10000].word, large);
  EXPECT_EQ(counts.entries()[10001].word, "");
  EXPECT_EQ(counts.entries()[15001].word, "word14999");
  EXPECT_EQ(counts.entries()[15001].count, 2U);
}

}  // namespace
}  // namespace ballast::tokenizer
