// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/system/random.h"
#include "ballast/tokenizer/bpe_trainer.h"
#include "ballast/tokenizer/pretokenizer.h"

namespace ballast::tokenizer {
namespace {

using Ids = std::vector<TokenId>;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

Ids encode(const Tokenizer& tokenizer, std::string_view text) {
  Ids ids;
  tokenizer.encode(text, ids);
  return ids;
}

// Text with words of many lengths, numbers, punctuation, several scripts and invalid bytes.
std::string random_text(uint64_t seed, size_t size) {
  static const std::vector<std::string> parts = {"the ",
                                                 "an",
                                                 "tokenization",
                                                 " ",
                                                 "\n",
                                                 "'ll",
                                                 "12",
                                                 "!",
                                                 "\xff",
                                                 "\u00e9",
                                                 "\u6f22\u5b57",
                                                 "\U0001F600",
                                                 "antidisestablishmentarianism",
                                                 "\r\n",
                                                 "<|endoftext|>",
                                                 "<|",
                                                 "\xe4\xb8",
                                                 "a"};
  RandomStream random(seed, "text");
  std::string text;
  while (text.size() < size) text += parts[random.below(parts.size())];
  return text;
}

std::unique_ptr<Tokenizer> trained(TokenId vocabulary_size) {
  BpeTrainer trainer;
  trainer.add(random_text(1, 20000));
  return trainer.train(vocabulary_size);
}

TEST(BpeTokenizer, DecodeUndoesEncodeOnAnyBytes) {
  const auto tokenizer = trained(400);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomStream random(seed, "bytes");
    std::string noise(random.below(200), '\0');
    for (char& c : noise) c = static_cast<char>(random.bits());
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, noise)), noise);
    const std::string text = random_text(seed, 300);
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
}

// What encode() must give: no cache, no buffer, the plain algorithm word by word.
Ids encode_plainly(const BpeTokenizer& tokenizer, std::string_view text) {
  const WordEncoder words(tokenizer.vocabulary());
  Ids ids;
  while (!text.empty()) {
    const std::string_view document = text.substr(0, text.find(kEndOfText));
    const char* const end = document.data() + document.size();
    for (const char *begin = document.data(), *next; begin < end; begin = next) {
      next = pretoken_end(begin, end);
      words.encode_by_scan({begin, next}, ids);
    }
    if (document.size() < text.size()) ids.push_back(tokenizer.end_of_text());
    text.remove_prefix(std::min(text.size(), document.size() + kEndOfText.size()));
  }
  return ids;
}

TEST(BpeTokenizer, GivesTheIdsOfThePlainAlgorithmWhateverItHasSeenBefore) {
  const auto tokenizer = trained(400);
  const auto& bpe = dynamic_cast<const BpeTokenizer&>(*tokenizer);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string text = random_text(seed, 50 * seed);
    ASSERT_EQ(encode(bpe, text), encode_plainly(bpe, text)) << "seed " << seed;
  }
  for (size_t size = 1; size < 40; ++size) {  // words around the sizes that the cache keeps
    std::string text(2 * size + 1, 'n');
    text[size] = ' ';
    ASSERT_EQ(encode(bpe, text), encode_plainly(bpe, text));
    ASSERT_EQ(encode(bpe, text), encode_plainly(bpe, text));  // from the cache
  }
}

TEST(BpeTokenizer, TellsApartWordsThatDifferOnlyByZeroBytes) {
  const auto tokenizer = trained(300);
  for (size_t zeros = 0; zeros < 20; ++zeros) {
    std::string text(1 + zeros, '\0');
    text[0] = '!';
    EXPECT_EQ(encode(*tokenizer, text).size(), text.size());
    text.append(20, ' ');
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
}

TEST(BpeTokenizer, MayBeUsedByManyThreads) {
  const auto tokenizer = trained(400);
  const std::string text = random_text(7, 20000);
  const Ids expected = encode(*tokenizer, text);
  std::vector<Ids> results(8);
  {
    std::vector<std::jthread> threads;
    for (Ids& result : results) {
      threads.emplace_back([&] {
        for (int round = 0; round < 5; ++round) result = encode(*tokenizer, text);
      });
    }
  }
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(BpeTokenizer, AppendsToTheIdsThatAreThere) {
  const auto tokenizer = load_tokenizer("bytes");
  Ids ids = {7};
  tokenizer->encode("a", ids);
  trained(300)->encode("", ids);
  EXPECT_THAT(ids, ElementsAre(7, 'a'));
}

TEST(BpeTokenizer, RefusesAnIdOutOfRange) {
  const auto tokenizer = trained(300);
  EXPECT_EQ(tokenizer->token_bytes(299), kEndOfText);
  EXPECT_THAT(
      [&] {
        tokenizer->decode({0, 300});
      },
      ThrowsMessage<UserError>(HasSubstr("token id 300 is out of range")));
  EXPECT_THAT([] { load_tokenizer("bytes")->token_bytes(257); },
              ThrowsMessage<UserError>(HasSubstr("token id 257 is out of range")));
}

BpeVocabulary with_added(const std::vector<std::pair<std::string, bool>>& tokens) {
  BpeVocabulary vocabulary = byte_vocabulary();
  for (const auto& [content, normalized] : tokens) {
    vocabulary.added.push_back({static_cast<TokenId>(vocabulary.tokens.size()), normalized, false});
    vocabulary.tokens.push_back(content);
  }
  return vocabulary;
}

TEST(AddedTokens, TheLeftmostWinsAndOfThoseTheLongest) {
  const BpeTokenizer tokenizer(with_added({{"ab", false}, {"abc", false}, {"bcd", false}}));
  EXPECT_THAT(encode(tokenizer, "abcd"), ElementsAre(258, 'd'));
  EXPECT_THAT(encode(tokenizer, "bcd"), ElementsAre(259));
  EXPECT_THAT(encode(tokenizer, "xab"), ElementsAre('x', 257));
  EXPECT_THAT(encode(tokenizer, "aab"), ElementsAre('a', 257));
  EXPECT_THAT(encode(tokenizer, "abab"), ElementsAre(257, 257));
  EXPECT_THAT(encode(tokenizer, "a<|endoftext|>b"), ElementsAre('a', 256, 'b'));
}

TEST(AddedTokens, NormalizedOnesAreSoughtInWhatTheOthersLeave) {
  const BpeTokenizer tokenizer(with_added({{"abc", true}, {"bc", false}}));
  EXPECT_THAT(encode(tokenizer, "abc"), ElementsAre('a', 258));
  const BpeTokenizer swapped(with_added({{"abc", false}, {"bc", true}}));
  EXPECT_THAT(encode(swapped, "abcbc"), ElementsAre(257, 258));
}

TEST(AddedTokens, EndTheTextForThePreTokenizer) {
  BpeVocabulary vocabulary = byte_vocabulary();
  vocabulary.tokens.push_back("\u0120\u0120");  // two spaces
  vocabulary.merges.push_back({' ', ' ', 257});
  const BpeTokenizer tokenizer(vocabulary);
  EXPECT_THAT(encode(tokenizer, "a  b"), ElementsAre('a', ' ', ' ', 'b'));
  EXPECT_THAT(encode(tokenizer, "a  <|endoftext|>"), ElementsAre('a', 257, 256));
}

TEST(ByteTokenizer, HasBytesForIdsAndKnowsEndOfText) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->kind(), "bytes");
  EXPECT_EQ(tokenizer->vocabulary_size(), 257U);
  EXPECT_EQ(tokenizer->end_of_text(), 256U);
  EXPECT_THAT(encode(*tokenizer, std::string("a\xff\0", 3)), ElementsAre('a', 0xff, 0));
  EXPECT_THAT(encode(*tokenizer, "<|endoftext|>x<|endo"),
              ElementsAre(256, 'x', '<', '|', 'e', 'n', 'd', 'o'));
  const std::string text = random_text(3, 5000);
  EXPECT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  EXPECT_EQ(encode(*tokenizer, text), encode(BpeTokenizer(byte_vocabulary()), text));
}

TEST(ByteLevelAlphabet, IsGpt2s) {
  EXPECT_EQ(byte_level_alphabet()['a'], "a");
  EXPECT_EQ(byte_level_alphabet()[' '], "\u0120");
  EXPECT_EQ(byte_level_alphabet()['\n'], "\u010a");
  EXPECT_EQ(byte_level_alphabet()[0xAD], "\u0143");
  EXPECT_EQ(byte_level_alphabet()[0xFF], "\u00ff");
  EXPECT_EQ(byte_level_order()[0], '!');
  EXPECT_EQ(byte_level_order()[188], 0);
  EXPECT_EQ(byte_level_order()[255], 0xAD);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(bytes_of_token(byte_level_alphabet()[byte]), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(bytes_of_token("a b"), "a b");        // a space is not in the alphabet
  EXPECT_EQ(bytes_of_token("\u6f22"), "\u6f22");  // nor is this
}

TEST(Fingerprint, DependsOnEverythingThatDecidesIds) {
  const BpeVocabulary plain = with_added({{"xy", false}});
  const auto changed = [&](auto change) {
    BpeVocabulary other = plain;
    change(other);
    return fingerprint_of(other);
  };
  EXPECT_EQ(fingerprint_of(plain), changed([](auto& v) { v.added[1].special = true; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.added[1].normalized = true; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.added.pop_back(); }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { std::swap(v.tokens[0], v.tokens[1]); }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.merges.push_back({1, 2, 3}); }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.end_of_text = 3; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.added[1].left_strip = true; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.added[1].single_word = true; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.pipeline.splits = {{"a"}}; }));
  EXPECT_NE(fingerprint_of(plain), changed([](auto& v) { v.pipeline.ignore_merges = true; }));
  EXPECT_NE(fingerprint_of(plain),
            changed([](auto& v) { v.pipeline.normalizer = {UnicodeForm::kNfc}; }));
  EXPECT_EQ(fingerprint_of(plain), changed([](auto& v) { v.frame.begin = {3}; }));
  EXPECT_EQ(load_tokenizer("bytes")->fingerprint(), fingerprint_of(byte_vocabulary()));
}

}  // namespace
}  // namespace ballast::tokenizer
