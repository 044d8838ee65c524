// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ballast/system/error.h"
#include "ballast/text/piece_cut.h"

namespace ballast::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string text) : text_(std::move(text)) {}
  size_t read(std::span<char> buffer) override {
    const size_t size = std::min(buffer.size(), text_.size() - position_);
    std::copy_n(text_.begin() + static_cast<std::ptrdiff_t>(position_), size, buffer.begin());
    position_ += size;
    return size;
  }
  uint64_t bytes_consumed() const override { return position_; }

 private:
  std::string text_;
  size_t position_ = 0;
};

std::vector<std::string> documents_of(const std::string& lines, const std::string& field = "text") {
  const auto source = read_json_lines(std::make_unique<MemorySource>(lines), "file.jsonl", field);
  std::vector<std::string> documents;
  bool starts = true;
  for (TextPiece piece; source->next(piece); starts = piece.ends_document) {
    EXPECT_FALSE(piece.text.empty());
    EXPECT_LE(piece.text.size(), kLongestPiece);
    if (starts) documents.emplace_back();
    documents.back() += piece.text;
  }
  EXPECT_TRUE(starts);
  EXPECT_EQ(source->bytes_consumed(), lines.size());
  return documents;
}

std::string error_of(const std::string& lines, const std::string& field = "text") {
  try {
    documents_of(lines, field);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonLines, EachLineIsADocument) {
  EXPECT_THAT(
      documents_of("{\"text\":\"one\"}\n{\"id\":2,\"text\":\"two\\n\\u00fc\\ud83d\\ude00\"}"),
      ElementsAre("one", "two\nü😀"));
  EXPECT_THAT(documents_of("{\"a\":\"x\",\"b\":\"y\"}\n", "b"), ElementsAre("y"));
  EXPECT_THAT(documents_of(""), IsEmpty());
}

TEST(JsonLines, LineEndsBlankLinesAndAMarkDoNotMatter) {
  EXPECT_THAT(documents_of("\xef\xbb\xbf{\"text\":\"1\"}\r\n\n  \t\r\n{\"text\":\"2\"}\r\n"),
              ElementsAre("1", "2"));
}

// Unlike in plain text.
TEST(JsonLines, ASeparatorWithinADocumentIsText) {
  EXPECT_THAT(documents_of("{\"text\":\"a\\n<|endoftext|>\\nb\"}"),
              ElementsAre("a\n<|endoftext|>\nb"));
}

TEST(JsonLines, EmptyDocumentsArePassedOverAndCounted) {
  const std::string lines = "{\"text\":\"\"}\n{\"text\":\"x\"}\n{\"text\":\"\"}\n";
  const auto source = read_json_lines(std::make_unique<MemorySource>(lines), "f", "text");
  TextPiece piece;
  ASSERT_TRUE(source->next(piece));
  EXPECT_EQ(piece.text, "x");
  EXPECT_FALSE(source->next(piece));
  EXPECT_EQ(source->empty_documents(), 2U);
}

TEST(JsonLines, LongDocumentsComeInPiecesThatAreCutBeforeWhiteSpace) {
  std::string text;
  for (int i = 0; text.size() < 5'000'000; ++i) text += std::to_string(i) + (i % 7 ? " " : " \n ");
  const std::string line = nlohmann::json{{"text", text}}.dump();
  EXPECT_THAT(documents_of(line + "\n" + line), ElementsAre(text, text));
  const auto source = read_json_lines(std::make_unique<MemorySource>(line), "f", "text");
  std::vector<std::string> pieces;
  for (TextPiece piece; source->next(piece);) pieces.push_back(piece.text);
  ASSERT_GE(pieces.size(), 4U);
  for (size_t i = 1; i < pieces.size(); ++i) {
    EXPECT_GE(pieces[i - 1].size(), kPieceBytes);
    EXPECT_EQ(pieces[i][0], ' ');
    EXPECT_TRUE(std::isdigit(pieces[i - 1].back())) << pieces[i - 1].back();
  }
}

TEST(JsonLines, ARunWithoutWhiteSpaceIsCutBetweenCharacters) {
  std::string run = "x";
  while (run.size() < 2 * kLongestPiece) run += "ü";
  DocumentPieces pieces;
  pieces.start(run);
  std::string whole;
  for (TextPiece piece; !pieces.is_done();) {
    pieces.next(piece);
    EXPECT_NE(static_cast<unsigned char>(piece.text[0]) & 0xC0U, 0x80U);
    EXPECT_LE(piece.text.size(), kLongestPiece);
    whole += piece.text;
  }
  EXPECT_EQ(whole, run);
}

TEST(JsonLines, WhatIsWrongWithALineIsSaidWithItsNumber) {
  const std::string good = "{\"text\":\"x\"}\n\n";
  EXPECT_THAT(error_of(good + "{\"text\":\"cut"),
              HasSubstr("file.jsonl, line 3: its JSON is damaged"));
  EXPECT_THAT(error_of(good + "{\"text\":\"x\"} {}\n"), HasSubstr("line 3: its JSON is damaged"));
  EXPECT_THAT(error_of("{\"text\":\"\xff\"}\n"), HasSubstr("line 1: its JSON is damaged"));
  EXPECT_THAT(error_of("{\"text\":\"\\ud800\"}\n"), HasSubstr("line 1: its JSON is damaged"));
  EXPECT_THAT(error_of("plain text\n"), HasSubstr("line 1: its JSON is damaged"));
  EXPECT_THAT(error_of(good + "[1]\n"), HasSubstr("line 3: it holds an array"));
  EXPECT_THAT(error_of(good + "{\"body\":\"x\",\"id\":1}\n"),
              testing::AllOf(HasSubstr("line 3: it has no field 'text'"), HasSubstr("body, id"),
                             HasSubstr("--field")));
  EXPECT_THAT(error_of(good + "{\"text\":3}\n"), HasSubstr("line 3: its field 'text' is a number"));
  EXPECT_THAT(error_of(good + "{\"text\":null}\n"), HasSubstr("line 3: its field 'text' is null"));
  EXPECT_THAT(error_of(std::string(100, '[')), HasSubstr("line 1"));
}

}  // namespace
}  // namespace ballast::text
