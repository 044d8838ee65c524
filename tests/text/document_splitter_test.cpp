// SPDX-License-Identifier: Apache-2.0
#include "ballast/text/document_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ballast/system/random.h"

namespace ballast::text {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Bytes in memory as a source: the splitter must not care where reads end.
class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::string text) : text_(std::move(text)) {}
  size_t read(std::span<char> buffer) override {
    const size_t size = std::min(buffer.size(), text_.size() - position_);
    std::copy_n(text_.begin() + position_, size, buffer.begin());
    position_ += size;
    return size;
  }
  uint64_t bytes_consumed() const override { return position_; }

 private:
  std::string text_;
  size_t position_ = 0;
};

std::vector<TextPiece> pieces_of(const std::string& text, size_t piece_bytes) {
  MemorySource source(text);
  DocumentSplitter splitter(source, piece_bytes);
  std::vector<TextPiece> pieces;
  for (TextPiece piece; splitter.next(piece);) pieces.push_back(piece);
  return pieces;
}

std::vector<std::string> documents_of(const std::string& text, size_t piece_bytes = kPieceBytes) {
  std::vector<std::string> documents;
  bool starts = true;
  for (const TextPiece& piece : pieces_of(text, piece_bytes)) {
    EXPECT_FALSE(piece.text.empty());
    if (starts) documents.emplace_back();
    documents.back() += piece.text;
    starts = piece.ends_document;
  }
  EXPECT_TRUE(starts) << "the last piece must end its document";
  return documents;
}

TEST(DocumentSplitter, SeparatorTakesItsLineBreakAndTheOneBefore) {
  EXPECT_THAT(documents_of("a\n<|endoftext|>\nb"), ElementsAre("a", "b"));
  EXPECT_THAT(documents_of("a\n\n<|endoftext|>\n\nb\n"), ElementsAre("a\n", "\nb\n"));
  EXPECT_THAT(documents_of("a\r\n<|endoftext|>\r\nb\r\n"), ElementsAre("a", "b\r\n"));
  EXPECT_THAT(documents_of("a\n<|endoftext|>"), ElementsAre("a"));
  EXPECT_THAT(documents_of("<|endoftext|>\na\n"), ElementsAre("a\n"));
}

TEST(DocumentSplitter, OnlyAWholeLineSeparates) {
  for (const char* text : {"a <|endoftext|>\nb", "a\n<|endoftext|> \nb", "a\n <|endoftext|>\nb",
                           "a\n<|endoftext|><|endoftext|>\nb", "a\n<|endoftext|>\rb",
                           "<|endoftext|>x", "x<|endoftext|>", "a\n<|endoftext|>\r"}) {
    EXPECT_THAT(documents_of(text), ElementsAre(text));
  }
}

TEST(DocumentSplitter, SkipsEmptyDocuments) {
  EXPECT_THAT(documents_of(""), IsEmpty());
  EXPECT_THAT(documents_of("<|endoftext|>"), IsEmpty());
  EXPECT_THAT(documents_of("<|endoftext|>\n\n<|endoftext|>\n<|endoftext|>\r\n"), IsEmpty());
  EXPECT_THAT(documents_of("<|endoftext|>\n<|endoftext|>\na\n<|endoftext|>\n<|endoftext|>\n"),
              ElementsAre("a"));
}

// Documents of bytes that are hard for the splitter: separators in part, all kinds of line breaks.
std::string nasty_document(RandomStream& random) {
  static const std::vector<std::string> parts = {
      "a", "word",          " ",  "  ",       "\n",   "\r\n", "\r",
      "<", "<|endoftext|>", "|>", "\xc2\xa0", "\xff", "\t"};
  std::string text = "x";
  for (uint64_t n = random.below(40); n > 0; --n) {
    const std::string& part = parts[random.below(parts.size())];
    if (part == "<|endoftext|>") text += "x";  // never at the start of a line
    text += part;
  }
  return text + "x";
}

TEST(DocumentSplitter, GivesDocumentsBackUnchangedWhateverThePieceSize) {
  RandomStream random(1, "test/splitter");
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<std::string> documents;
    std::string text;
    for (uint64_t n = 1 + random.below(6); n > 0; --n) {
      documents.push_back(nasty_document(random));
      text += documents.back() + "\n<|endoftext|>\n";
    }
    for (const size_t piece_bytes : {1, 2, 7, 30, 1000}) {
      ASSERT_EQ(documents_of(text, piece_bytes), documents) << "trial " << trial;
    }
  }
}

// Many documents around the 256 KiB boundaries of reads, separators across them.
TEST(DocumentSplitter, FindsSeparatorsAcrossReads) {
  for (size_t shift = 0; shift < 20; ++shift) {
    const std::string first((256 << 10) - 18 + shift, 'a'), second((256 << 10) - 30, 'b');
    EXPECT_THAT(documents_of(first + "\r\n<|endoftext|>\r\n" + second + "\n<|endoftext|>\nend"),
                ElementsAre(first, second, "end"))
        << shift;
  }
}

TEST(DocumentSplitter, CutsOnlyBeforeWhiteSpaceThatFollowsANonSpace) {
  RandomStream random(2, "test/splitter");
  const std::vector<std::string> parts = {
      "word",         " ",  "\n",          "\r\n", "\xe3\x80\x80", "\xc2\xa0", "\xe2\x80\xaf",
      "\xe4\xb8\xad", "\t", "\xe2\x80\xa6"};
  std::string text = "start";
  while (text.size() < (1 << 20)) text += parts[random.below(parts.size())];
  const auto pieces = pieces_of(text, 1000);
  EXPECT_GT(pieces.size(), 3U);
  const auto is_alphanumeric = [](char c) { return c >= 'a' && c <= 'z'; };  // as parts have them
  const std::vector<std::string> wide_spaces = {"\xe3\x80\x80", "\xc2\xa0", "\xe2\x80\xaf"};
  for (size_t i = 1; i < pieces.size(); ++i) {
    EXPECT_THAT(std::string(" \n\r\t"), testing::HasSubstr(pieces[i].text.substr(0, 1)));
    const std::string& before = pieces[i - 1].text;
    EXPECT_EQ(std::string(" \n\r\t").find(before.back()), std::string::npos);
    for (const auto& space : wide_spaces) EXPECT_FALSE(before.ends_with(space));
    const char first = pieces[i].text[0];
    const bool is_line_break = first == '\n' || first == '\r';
    EXPECT_TRUE(!is_line_break || is_alphanumeric(before.back()));
  }
}

TEST(DocumentSplitter, LineBreaksStayWithTheSignsBeforeThem) {
  std::string text = "a";
  for (int i = 0; i < 1000; ++i) text += "!\n\u6f22\n";
  EXPECT_EQ(pieces_of(text, 100).size(), 1U);
  text.insert(3000, "x\n");
  EXPECT_EQ(pieces_of(text, 100).size(), 2U);
}

TEST(DocumentSplitter, PiecesOfALongDocumentHaveAboutTheSizeAskedFor) {
  std::string text;
  while (text.size() < (20 << 20)) text += "some words in a line\n";
  const auto pieces = pieces_of(text, kPieceBytes);
  EXPECT_GE(pieces.size(), 14U);
  for (const auto& piece : pieces) EXPECT_LE(piece.text.size(), (1U << 20) + (512U << 10));
}

TEST(DocumentSplitter, ARunWithoutSpaceGrowsOnePiece) {
  const std::string run(8 << 20, 'x');
  const auto pieces = pieces_of(run + " tail", 1 << 20);
  ASSERT_GE(pieces.size(), 1U);
  EXPECT_GE(pieces[0].text.size(), run.size());
}

TEST(DocumentSplitter, AnEndlessRunIsCutBetweenCharacters) {
  std::string run = "x";  // puts the characters of two bytes at odd places
  while (run.size() < (50 << 20)) run += "\u00e9";
  const auto pieces = pieces_of(run + "\n<|endoftext|>\nend", kPieceBytes);
  std::string joined;
  for (const auto& piece : pieces) {
    EXPECT_LE(piece.text.size(), kLongestPiece + (1 << 20));
    EXPECT_NE(static_cast<unsigned char>(piece.text[0]) & 0xC0, 0x80) << "cut inside a character";
    if (piece.text != "end") joined += piece.text;
  }
  EXPECT_GE(pieces.size(), 4U);
  EXPECT_EQ(joined, run);
}

TEST(DocumentSplitter, UnicodeSpacesBeforeASpaceAreNoPlaceToCut) {
  // Every place but one is a space after a space: the one cut must be found there.
  std::string text = "a b";
  for (int i = 0; i < 100000; ++i) text += "\xe2\x80\x83 ";
  const auto pieces = pieces_of(text, 10);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].text, "a");
}

}  // namespace
}  // namespace ballast::text
