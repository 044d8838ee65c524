// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/tail_split.h"

#include <gtest/gtest.h>

#include "ballast/tokens/split_writer.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

struct Written {
  std::vector<int64_t> train, valid;
  TailSplit split;
};

// Writes `documents` as a train split of `shard_tokens`-token shards and splits its tail off.
// Their text has `text_per_token` times the bytes that their tokens stand for.
Written split(const std::vector<std::string>& documents, double fraction, uint64_t shard_tokens,
              double text_per_token = 1) {
  const test::TemporaryFolder folder;
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  SplitWriter writer(folder.path(), "train", *tokenizer, shard_tokens);
  for (size_t i = 0; i < documents.size(); ++i) {
    const std::string& text = documents[i];
    std::vector<tokenizer::TokenId> ids;
    tokenizer->encode(text, ids);
    const auto bytes = static_cast<uint64_t>(text_per_token * static_cast<double>(text.size()));
    writer.append(static_cast<uint32_t>(i % 2), ids, bytes);
    writer.end_document(1.0);
  }
  Written result{.train = {}, .valid = {}, .split = {}};
  result.split =
      split_off_tail(folder.path(), writer.finish(2), *tokenizer, fraction, shard_tokens);

  DatasetIndex index;
  index.tokenizer = identity_of(*tokenizer);
  index.domains = {"even", "odd"};
  index.splits["train"] = result.split.train;
  index.splits["valid"] = result.split.valid;
  tokenizer->save(folder.path());
  write_text_atomically(folder / "index.json", index.to_text());
  const TokenDataset data(folder.path());  // also proves that all sums are right
  data.verify();
  result.train = test::all_tokens(*data.open("train"));
  result.valid = test::all_tokens(*data.open("valid"));
  size_t files = 0, shards = result.split.train.shards.size() + result.split.valid.shards.size();
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    files += entry.path().extension() == ".tokens";
    EXPECT_NE(entry.path().extension(), ".kept");
  }
  EXPECT_EQ(files, shards);
  return result;
}

std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += id == 256 ? '|' : static_cast<char>(id);
  return text;
}

TEST(TailSplit, CutsOneDocumentAtALineNearItsEnd) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(1000 + i) + "\n";  // 10 bytes each
  const Written written = split({text}, 0.095, 1 << 20);
  EXPECT_EQ(text_of(written.valid), text.substr(910) + "|");
  EXPECT_EQ(text_of(written.train), text.substr(0, 910) + "|");
  EXPECT_EQ(written.split.train.totals.documents, 1u);
  EXPECT_EQ(written.split.valid.totals.documents, 1u);
  EXPECT_EQ(written.split.valid.totals.source_bytes, 90u);
  EXPECT_EQ(written.split.train.totals.nats, std::nullopt);
}

TEST(TailSplit, LosesNothingForAnyShardSizeAndFraction) {
  const std::string first = test::sample_document(1, 400), second = test::sample_document(2, 333);
  const std::string joined = first + "|" + second + "|";
  for (const uint64_t shard_tokens : {60, 100, 101, 1000}) {
    for (const double fraction : {0.01, 0.1, 0.45, 0.6, 0.9}) {
      const Written written = split({first, second}, fraction, shard_tokens);
      std::string train = text_of(written.train), valid = text_of(written.valid);
      ASSERT_TRUE(train.ends_with('|') && valid.ends_with('|'));
      // Where a document was cut the train part got an end of its own.
      const bool whole = train + valid == joined;
      EXPECT_TRUE(whole || train.substr(0, train.size() - 1) + valid == joined)
          << shard_tokens << " " << fraction;
      EXPECT_EQ(written.split.train.totals.source_bytes + written.split.valid.totals.source_bytes,
                733u);
      EXPECT_EQ(written.split.train.totals.documents + written.split.valid.totals.documents,
                whole ? 2u : 3u);
      for (const ShardEntry& shard : written.split.train.shards) {
        EXPECT_LE(shard.counts.tokens, shard_tokens);
      }
    }
  }
}

TEST(TailSplit, SumsAreRightWhereTokensStandForOtherBytesThanTheText) {
  const std::vector<std::string> documents = {std::string(300, 'a'), std::string(500, 'b')};
  for (const double text_per_token : {0.01, 0.5, 3.0}) {
    for (const double fraction : {0.1, 0.6, 0.9}) {
      const Written written = split(documents, fraction, 64, text_per_token);
      EXPECT_GT(written.valid.size(), 0U);
    }
  }
}

TEST(TailSplit, PrefersADocumentsEnd) {
  const Written written = split({std::string(90, 'x'), std::string(20, 'y')}, 0.2, 1000);
  EXPECT_EQ(text_of(written.valid), std::string(20, 'y') + "|");
  EXPECT_EQ(written.split.train.totals.documents, 1u);
}

TEST(TailSplit, MakesNoEmptyDocument) {
  for (const double fraction : {0.25, 0.26, 0.27, 0.3}) {  // the first cut is before the end
    const Written written =
        split({std::string(62, 'a') + "\n", std::string(20, 'b')}, fraction, 99);
    EXPECT_EQ(text_of(written.valid), std::string(20, 'b') + "|") << fraction;
    EXPECT_EQ(written.split.train.totals.documents, 1u);
    EXPECT_EQ(written.split.valid.totals.documents, 1u);
  }
}

TEST(TailSplit, KeepsCharactersWholeWhereThereAreNoLines) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "\xE2\x82\xAC";  // 50 euro signs
  for (const double fraction : {0.2, 0.205, 0.21, 0.215}) {
    const Written written = split({text}, fraction, 1000);
    EXPECT_EQ(written.valid.front(), 0xE2);
    EXPECT_EQ(written.valid.size() % 3, 1u);  // and end-of-text
  }
}

TEST(TailSplit, GivesNoSplitForTooLittleText) {
  const test::TemporaryFolder folder;
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  SplitWriter writer(folder.path(), "train", *tokenizer, 100);
  writer.append(0, std::vector<tokenizer::TokenId>{'h', 'i'}, 2);
  writer.end_document(std::nullopt);
  const TailSplit result = split_off_tail(folder.path(), writer.finish(1), *tokenizer, 0.1, 100);
  EXPECT_TRUE(result.valid.shards.empty());
  EXPECT_EQ(result.train.totals.tokens, 3u);
}

}  // namespace
}  // namespace ballast::tokens
