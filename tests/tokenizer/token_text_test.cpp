// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/token_text.h"

#include <gtest/gtest.h>

#include <set>

#include "ballast/system/utf8.h"

namespace ballast::tokenizer {
namespace {

TEST(TokenText, IsTheTokenWhereItCanBeShown) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(token_text(tokenizer.get(), 'a'), "a");
  EXPECT_EQ(token_text(tokenizer.get(), ' '), " ");
  EXPECT_EQ(token_text(tokenizer.get(), '"'), "\"");
  EXPECT_EQ(token_text(tokenizer.get(), 256), tokenizer->token_bytes(256)) << "end-of-text";
}

TEST(TokenText, EscapesWhatCannot) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(token_text(tokenizer.get(), '\n'), "\\n");
  EXPECT_EQ(token_text(tokenizer.get(), '\t'), "\\t");
  EXPECT_EQ(token_text(tokenizer.get(), 0x1b), "\\x1b");
  EXPECT_EQ(token_text(tokenizer.get(), 0x7f), "\\x7f");
  EXPECT_EQ(token_text(tokenizer.get(), 0xc3), "\\xc3") << "half a character";
  EXPECT_EQ(token_text(tokenizer.get(), '\\'), "\\\\");
}

TEST(TokenText, OfEveryByteIsAnotherAndValid) {
  const auto tokenizer = load_tokenizer("bytes");
  std::set<std::string> texts;
  for (int64_t token = 0; token < 257; ++token) {
    const std::string text = token_text(tokenizer.get(), token).value();
    EXPECT_EQ(replace_invalid_utf8(text), text);
    EXPECT_TRUE(texts.insert(text).second) << text;
  }
}

TEST(TokenText, IsNotKnownWithoutATokenizerOrToken) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(token_text(nullptr, 17), std::nullopt);
  EXPECT_EQ(token_text(tokenizer.get(), 257), std::nullopt);
  EXPECT_EQ(token_text(tokenizer.get(), -1), std::nullopt);
}

}  // namespace
}  // namespace ballast::tokenizer
