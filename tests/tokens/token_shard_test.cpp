// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ballast/system/error.h"
#include "ballast/tokens/token_source.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;
using testing::ElementsAre;
using testing::HasSubstr;

const TokenizerIdentity kBytes{
    .kind = "bytes", .vocabulary_size = 257, .end_of_text = 256, .fingerprint = 0x1122334455667788};
const TokenizerIdentity kWide{
    .kind = "bpe", .vocabulary_size = 100'000, .end_of_text = 99'999, .fingerprint = 7};

// Two documents, [5 6 7 | eot] and [8 | eot], of domains 0 and 3.
ShardCounts write_sample(const fs::path& path, const TokenizerIdentity& tokenizer = kBytes) {
  const tokenizer::TokenId end = tokenizer.end_of_text;
  TokenShardWriter writer(path, tokenizer);
  writer.begin_part(0, PartKind::kBeganInEarlierShard);
  writer.append(std::vector<tokenizer::TokenId>{5, 6}, 2);
  writer.append(std::vector<tokenizer::TokenId>{7}, 1);
  writer.append(std::vector<tokenizer::TokenId>{end}, 0);
  writer.begin_part(3, PartKind::kBeginsHere);
  writer.append(std::vector<tokenizer::TokenId>{8, end}, 1);
  return writer.finish();
}

TEST(TokenShard, RoundTripsTokensAndDocuments) {
  const test::TemporaryFolder folder;
  for (const TokenizerIdentity& tokenizer : {kBytes, kWide}) {
    const ShardCounts counts = write_sample(folder / "s", tokenizer);
    const TokenShard shard(folder / "s");
    EXPECT_EQ(shard.counts(), counts);
    EXPECT_EQ(counts.tokens, 6u);
    EXPECT_EQ(counts.documents, 1u);
    EXPECT_EQ(counts.parts, 2u);
    EXPECT_EQ(counts.source_bytes, 4u);
    EXPECT_EQ(shard.tokenizer().vocabulary_size, tokenizer.vocabulary_size);
    EXPECT_EQ(shard.tokenizer().fingerprint, tokenizer.fingerprint);
    const int64_t end = tokenizer.end_of_text;
    EXPECT_THAT(test::all_tokens(*shard.tokens()), ElementsAre(5, 6, 7, end, 8, end));
    ASSERT_EQ(shard.parts().size(), 2u);
    EXPECT_EQ(shard.parts()[0].kind, PartKind::kBeganInEarlierShard);
    EXPECT_EQ(shard.parts()[0].source_bytes, 3u);
    EXPECT_EQ(shard.parts()[1].first_token, 4u);
    EXPECT_EQ(shard.parts()[1].domain, 3u);
    shard.verify();
  }
}

TEST(TokenShard, HasTheDocumentedSize) {
  const test::TemporaryFolder folder;
  write_sample(folder / "two");  // 6 tokens of 2 bytes are padded to 16
  EXPECT_EQ(fs::file_size(folder / "two"), 80u + 16 + 2 * 24);
  write_sample(folder / "four", kWide);
  EXPECT_EQ(fs::file_size(folder / "four"), 80u + 24 + 2 * 24);
}

TEST(TokenShard, KeepsTheLargestIds) {
  const test::TemporaryFolder folder;
  const TokenizerIdentity full{.kind = "bpe", .vocabulary_size = 65'536, .end_of_text = 65'535};
  write_sample(folder / "s", full);
  EXPECT_EQ(test::all_tokens(*TokenShard(folder / "s").tokens()).back(), 65'535);
  TokenShardWriter writer(folder / "t", full);
  writer.begin_part(0, PartKind::kBeginsHere);
  EXPECT_THROW(writer.append(std::vector<tokenizer::TokenId>{65'536}, 1), std::logic_error);
}

TEST(TokenShard, IsNoShardBeforeItIsFinished) {
  const test::TemporaryFolder folder;
  {
    TokenShardWriter writer(folder / "s", kBytes);
    writer.begin_part(0, PartKind::kBeginsHere);
    writer.append(std::vector<tokenizer::TokenId>(3'000'000, 1), 3'000'000);
  }
  EXPECT_THROW(TokenShard(folder / "s"), UserError);
  EXPECT_FALSE(is_token_shard(folder / "s"));
}

TEST(TokenShard, RefusesTruncationAtEveryLengthAndExtraBytes) {
  const test::TemporaryFolder folder;
  write_sample(folder / "s");
  const std::string whole = read_text(folder / "s");
  for (size_t length = 0; length < whole.size(); ++length) {
    test::write_bytes(folder / "t", whole.substr(0, length));
    EXPECT_THROW(TokenShard(folder / "t"), UserError) << length;
  }
  test::write_bytes(folder / "t", whole + std::string(8, '\0'));
  EXPECT_THROW(TokenShard(folder / "t"), UserError);
}

TEST(TokenShard, DetectsEveryFlippedBit) {
  const test::TemporaryFolder folder;
  write_sample(folder / "s");
  const std::string whole = read_text(folder / "s");
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    test::write_bytes(folder / "t", damaged);
    const bool in_header = bit < 80 * 8;
    if (in_header) {
      EXPECT_THROW(TokenShard(folder / "t"), UserError) << "bit " << bit;
    } else {
      EXPECT_THROW(TokenShard(folder / "t").verify(), UserError) << "bit " << bit;
    }
  }
}

// A file whose checksums are right but whose numbers are not: only a hostile writer makes one.
TEST(TokenShard, RefusesHostileHeadersWithValidChecksums) {
  const test::TemporaryFolder folder;
  write_sample(folder / "s");
  const std::string whole = read_text(folder / "s");
  const uint64_t huge[] = {0,           1, uint64_t{1} << 32, uint64_t{1} << 61, uint64_t{1} << 63,
                           ~uint64_t{0}};
  for (size_t field = 8; field < 72; field += 8) {
    for (const uint64_t value : huge) {
      std::string hostile = whole;
      std::memcpy(hostile.data() + field, &value, 8);
      const uint64_t sum = checksum(std::string_view(hostile).substr(0, 72));
      std::memcpy(hostile.data() + 72, &sum, 8);
      if (hostile == whole) continue;
      test::write_bytes(folder / "t", hostile);
      if (field == 56) {  // the fingerprint may be any number
        TokenShard(folder / "t").verify();
      } else {
        EXPECT_THROW(TokenShard(folder / "t").verify(), UserError) << field << " = " << value;
      }
    }
  }
}

TEST(TokenShard, VerifyRefusesIdsOutsideTheVocabulary) {
  const test::TemporaryFolder folder;
  write_sample(folder / "s");
  std::string bytes = read_text(folder / "s");
  const uint16_t id = 300;
  std::memcpy(bytes.data() + 80, &id, 2);
  const uint64_t content = checksum(std::string_view(bytes).substr(80));
  std::memcpy(bytes.data() + 64, &content, 8);
  const uint64_t header = checksum(std::string_view(bytes).substr(0, 72));
  std::memcpy(bytes.data() + 72, &header, 8);
  test::write_bytes(folder / "s", bytes);
  const TokenShard shard(folder / "s");
  try {
    shard.verify();
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("token 300 at position 0"));
  }
}

TEST(TokenShard, NamesTheFileAndTheReason) {
  const test::TemporaryFolder folder;
  try {
    TokenShard(folder / "absent");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("absent: No such file"));
  }
  test::write_bytes(folder / "text",
                    "just some text that is long enough to be a header of a shard, "
                    "and then more");
  try {
    TokenShard(folder / "text");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("text is not a token shard"));
  }
}

}  // namespace
}  // namespace ballast::tokens
