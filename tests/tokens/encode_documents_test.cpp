// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/encode_documents.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "ballast/system/checksum.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

// Documents from one byte to a megabyte, long ones in several pieces.
test::DocumentsInMemory sample_documents() {
  std::vector<std::vector<std::string>> documents;
  for (uint64_t i = 0; i < 300; ++i) documents.push_back({test::sample_document(i, 1 + i * 7)});
  documents.push_back(
      {test::sample_document(1000, 1 << 20), test::sample_document(1001, 1 << 20), "end"});
  for (uint64_t i = 0; i < 40; ++i) documents.push_back({test::sample_document(2000 + i, 100'000)});
  return test::DocumentsInMemory(std::move(documents));
}

struct Taken {
  std::vector<tokenizer::TokenId> ids;
  std::vector<uint64_t> keys;
  std::vector<size_t> ends;  // ids after each document
  uint64_t bytes = 0;
  bool operator==(const Taken&) const = default;
};

Taken encode_with(size_t threads) {
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  auto reader = sample_documents();
  Taken taken;
  encode_documents(reader, *tokenizer, threads, [&](const EncodedPiece& piece) {
    taken.ids.insert(taken.ids.end(), piece.ids.begin(), piece.ids.end());
    taken.keys.push_back(piece.document_key);
    if (piece.ends_document) taken.ends.push_back(taken.ids.size());
    taken.bytes += piece.source_bytes;
  });
  return taken;
}

TEST(EncodeDocuments, GivesTheSameForAnyNumberOfThreads) {
  const Taken one = encode_with(1);
  EXPECT_EQ(one.ends.size(), 341u);
  EXPECT_EQ(one.bytes, one.ids.size());  // bytes: one token each
  EXPECT_EQ(one.bytes, sample_documents().total_bytes());
  for (const size_t threads : {0, 2, 4, 17}) EXPECT_EQ(encode_with(threads), one) << threads;
}

TEST(EncodeDocuments, KeysTheDocumentByItsBeginning) {
  const Taken taken = encode_with(2);
  EXPECT_EQ(taken.keys[5], checksum(test::sample_document(5, 36)));
  EXPECT_EQ(taken.keys[300], checksum(test::sample_document(1000, 1 << 20).substr(0, 4096)));
  EXPECT_EQ(taken.keys[301], taken.keys[300]);  // the document's second piece
  EXPECT_EQ(taken.keys[302], taken.keys[300]);
  EXPECT_NE(taken.keys[303], taken.keys[300]);
}

TEST(EncodeDocuments, StopsCleanlyWhenTheTakerOrTheReaderThrows) {
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  auto reader = sample_documents();
  int taken = 0;
  EXPECT_THROW(encode_documents(reader, *tokenizer, 4,
                                [&](const EncodedPiece&) {
                                  if (++taken == 200) throw std::runtime_error("disk full");
                                }),
               std::runtime_error);
  EXPECT_EQ(taken, 200);

  struct Failing : test::DocumentsInMemory {
    Failing() : test::DocumentsInMemory({{"a"}, {"b"}}) {}
    bool next(text::TextPiece& piece) override {
      if (!test::DocumentsInMemory::next(piece)) throw std::runtime_error("unreadable");
      return true;
    }
  } failing;
  EXPECT_THROW(encode_documents(failing, *tokenizer, 2, [](const EncodedPiece&) {}),
               std::runtime_error);
}

class FailingTokenizer : public tokenizer::Tokenizer {
 public:
  std::string_view kind() const override { return "bytes"; }
  tokenizer::TokenId vocabulary_size() const override { return 257; }
  tokenizer::TokenId end_of_text() const override { return 256; }
  void encode(std::string_view text, std::vector<tokenizer::TokenId>&) const override {
    if (text.starts_with("end")) throw std::runtime_error("cannot encode");
  }
  std::string_view token_bytes(tokenizer::TokenId) const override { return ""; }
  void save(const std::filesystem::path&) const override {}
  uint64_t fingerprint() const override { return 0; }
};

TEST(EncodeDocuments, PassesOnWhatTheTokenizerThrows) {
  auto reader = sample_documents();
  EXPECT_THROW(encode_documents(reader, FailingTokenizer(), 3, [](const EncodedPiece&) {}),
               std::runtime_error);
}

// Tells by its ids how each piece was encoded.
class StartTokenizer : public FailingTokenizer {
 public:
  void encode(std::string_view, std::vector<tokenizer::TokenId>& ids) const override {
    ids.push_back(1);
  }
  void encode_continued(std::string_view, std::vector<tokenizer::TokenId>& ids) const override {
    ids.push_back(2);
  }
};

TEST(EncodeDocuments, OnlyTheFirstPieceOfADocumentStartsAText) {
  // Pieces that fill a chunk, so that documents go on in the next.
  const std::string large(300000, 'x'), small = "y";
  test::DocumentsInMemory reader({{large, small, large, large}, {small}, {small, small}, {large}});
  std::vector<tokenizer::TokenId> ids;
  encode_documents(reader, StartTokenizer(), 2, [&](const EncodedPiece& piece) {
    ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
  });
  EXPECT_EQ(ids, (std::vector<tokenizer::TokenId>{1, 2, 2, 2, 1, 1, 2, 1}));
}

TEST(EncodeDocuments, TakesNothingFromNothing) {
  test::DocumentsInMemory nothing({});
  encode_documents(nothing, *tokenizer::load_tokenizer("bytes"), 2,
                   [](const EncodedPiece&) { FAIL(); });
}

}  // namespace
}  // namespace ballast::tokens
