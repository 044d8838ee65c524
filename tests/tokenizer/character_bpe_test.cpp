// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ballast/tokenizer/bpe_tokenizer.h"

namespace ballast::tokenizer {
namespace {

using testing::ElementsAre;

// "_" for a space; merges make "_a", "ab" and "__".
BpeVocabulary small(const Metaspace& metaspace) {
  BpeVocabulary vocabulary;
  vocabulary.tokens = {"<unk>", "</s>", "_",      "a",      "b",     "_a",
                       "ab",    "__",   "<0xC3>", "<0xA9>", "<0x0A>"};
  vocabulary.merges = {{2, 3, 5}, {3, 4, 6}, {2, 2, 7}};
  vocabulary.added = {{.id = 1}};
  vocabulary.end_of_text = 1;
  vocabulary.pipeline.splits.clear();
  vocabulary.pipeline.characters = CharacterModel{.metaspace = metaspace,
                                                  .byte_fallback = true,
                                                  .fuse_unknown = true,
                                                  .unknown = 0,
                                                  .decoder = {{"_", " "}},
                                                  .decodes_bytes = true,
                                                  .stripped_spaces = 1};
  return vocabulary;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

TEST(CharacterBpe, FallsBackToBytesAndThenToTheUnknownToken) {
  const BpeTokenizer tokenizer(small({"_", PrependScheme::kNever, false}));
  EXPECT_THAT(encode(tokenizer, "ab\u00e9\n"), ElementsAre(6, 8, 9, 10));
  EXPECT_THAT(encode(tokenizer, "axyb"), ElementsAre(3, 0, 4));
  EXPECT_THAT(encode(tokenizer, "\xc3\xa9\xc3\xff"), ElementsAre(8, 9, 8, 0));
}

TEST(CharacterBpe, SpacesBecomeMarksAndATextStartsWithOne) {
  const BpeTokenizer never(small({"_", PrependScheme::kNever, false}));
  const BpeTokenizer first(small({"_", PrependScheme::kFirst, false}));
  const BpeTokenizer always(small({"_", PrependScheme::kAlways, false}));
  EXPECT_THAT(encode(never, "a a</s>a"), ElementsAre(3, 5, 1, 3));
  EXPECT_THAT(encode(first, "a a</s>a"), ElementsAre(5, 5, 1, 3));
  EXPECT_THAT(encode(always, "a a</s>a"), ElementsAre(5, 5, 1, 5));
  EXPECT_THAT(encode(first, " a"), ElementsAre(5));
  EXPECT_THAT(encode(first, "</s>a"), ElementsAre(1, 3));
  EXPECT_THAT(encode(first, ""), ElementsAre());
}

TEST(CharacterBpe, OneSpaceIsStrippedWhereATextStarts) {
  const BpeTokenizer tokenizer(small({"_", PrependScheme::kFirst, false}));
  for (const char* text : {"a", " a", "a b", "</s> a", "b\n"}) {
    const std::string decoded = tokenizer.decode_text(encode(tokenizer, text));
    EXPECT_EQ(decoded, text[0] == ' ' ? text + 1 : text);
  }
  EXPECT_EQ(tokenizer.decode({5, 5}), " a a");  // within a text
  EXPECT_EQ(tokenizer.decode_text({5, 5}), "a a");
  EXPECT_EQ(tokenizer.decode_text({}), "");
}

TEST(CharacterBpe, APieceThatContinuesATextGetsNoMark) {
  for (const auto scheme : {PrependScheme::kFirst, PrependScheme::kAlways}) {
    const BpeTokenizer tokenizer(small({"_", scheme, false}));
    std::vector<TokenId> ids;
    tokenizer.encode("a", ids);
    tokenizer.encode_continued("\na", ids);
    EXPECT_EQ(ids, encode(tokenizer, "a\na"));
  }
}

// With a merge across words the text is one word; without, words are encoded apart: alike.
TEST(CharacterBpe, CutsWordsOnlyWhereNoMergeJoinsThem) {
  const BpeTokenizer cut(small({"_", PrependScheme::kNever, false}));
  EXPECT_THAT(encode(cut, "a   ab b_a"), ElementsAre(3, 7, 5, 4, 2, 4, 5));
  BpeVocabulary joining = small({"_", PrependScheme::kNever, false});
  joining.tokens.push_back("b_");
  joining.merges.push_back({4, 2, 11});
  const BpeTokenizer whole(joining);
  EXPECT_THAT(encode(whole, "ab b_b"), ElementsAre(6, 2, 11, 4));
  const BpeTokenizer split(small({"_", PrependScheme::kNever, true}));
  EXPECT_THAT(encode(split, "a   ab"), ElementsAre(3, 2, 2, 5, 4));
}

}  // namespace
}  // namespace ballast::tokenizer
