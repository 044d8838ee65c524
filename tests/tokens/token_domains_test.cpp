// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "ballast/system/error.h"
#include "ballast/text/builtin_corpus.h"
#include "ballast/tokens/prepare.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;
using test::sample_document;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int32_t> domains_in(const TokenSource& source, uint64_t first, size_t count) {
  std::vector<int32_t> out(count, 77);
  source.read_domains(first, out);
  return out;
}

std::vector<int32_t> all_domains(const TokenSource& source) {
  return domains_in(source, 0, source.size());
}

std::unique_ptr<TokenSource> joined(std::vector<std::unique_ptr<TokenSource>> sources) {
  return concatenate(std::move(sources), {.name = "joined"});
}

// Prepares inputs of the given names and texts into FOLDER/OUT, in shards of kShard tokens, all of
// it training text.
constexpr uint64_t kShard = 1024;
void prepare_texts(const test::TemporaryFolder& folder, const std::string& out,
                   const std::vector<std::pair<std::string, std::string>>& texts) {
  PrepareRequest request{
      .out = folder / out, .valid_fraction = 0, .shard_tokens = kShard, .threads = 1};
  for (size_t i = 0; i < texts.size(); ++i) {
    const fs::path path = folder / (out + std::to_string(i) + ".txt");
    test::write_bytes(path, texts[i].second);
    request.inputs.push_back(texts[i].first + "=" + path.string());
  }
  prepare(request);
}

TEST(TokenDomains, EndOfTextIsOfTheDocumentItEnds) {
  const test::TemporaryFolder folder;
  prepare_texts(folder, "data", {{"wiki", "ab\n<|endoftext|>\nc"}, {"code", "de"}});
  const auto source = open_token_source(folder / "data");
  EXPECT_THAT(test::all_tokens(*source), ElementsAre('a', 'b', 256, 'c', 256, 'd', 'e', 256));
  EXPECT_THAT(source->domains(), ElementsAre("wiki", "code"));
  EXPECT_THAT(all_domains(*source), ElementsAre(0, 0, 0, 0, 0, 1, 1, 1));
}

TEST(TokenDomains, EndOfTextInTheNextShardIsStillOfItsDocument) {
  const test::TemporaryFolder folder;
  const std::string full = test::sample_document(1, kShard);
  prepare_texts(folder, "data", {{"wiki", full}, {"code", "de"}, {"wiki", full}});
  const auto source = open_token_source(folder / "data");
  ASSERT_EQ(TokenDataset(folder / "data").shards("train").size(), 3u);
  EXPECT_THAT(domains_in(*source, kShard - 1, 6), ElementsAre(0, 0, 1, 1, 1, 0));
  EXPECT_THAT(domains_in(*source, 0, kShard), Each(0));
  EXPECT_THAT(domains_in(*source, kShard + 4, kShard + 1), Each(0));
}

TEST(TokenDomains, AnyWindowAgreesWithAllOfThem) {
  const test::TemporaryFolder folder;
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<int32_t> expected;
  for (uint64_t i = 0; i < 40; ++i) {  // of 1 to 211 bytes
    const std::string document = test::sample_document(i, 1 + i * i * 10 % 211);
    texts.emplace_back(i % 3 == 0 ? "one" : i % 3 == 1 ? "two" : "three", document);
    expected.insert(expected.end(), document.size() + 1, static_cast<int32_t>(i % 3));
  }
  prepare_texts(folder, "data", texts);
  const auto source = open_token_source(folder / "data");
  ASSERT_GE(TokenDataset(folder / "data").shards("train").size(), 4u);
  ASSERT_EQ(all_domains(*source), expected);
  for (size_t first = 0; first <= expected.size(); ++first) {
    for (const size_t wanted : {0, 1, 2, 300, 2000}) {
      const size_t count = std::min<size_t>(wanted, expected.size() - first);
      const std::vector<int32_t> window = domains_in(*source, first, count);
      ASSERT_TRUE(std::equal(window.begin(), window.end(),
                             expected.begin() + static_cast<ptrdiff_t>(first)))
          << first << ", " << count;
    }
  }
  EXPECT_THROW(domains_in(*source, expected.size() - 1, 2), std::out_of_range);
  EXPECT_THROW(domains_in(*source, ~uint64_t{0}, 2), std::out_of_range);
}

TEST(TokenDomains, KnowsThoseOfTheBuiltinCorpus) {
  const test::TemporaryFolder folder;
  const PrepareResult result = prepare({.inputs = {"builtin"},
                                        .out = folder / "data",
                                        .valid_fraction = 0.2,
                                        .shard_tokens = 20'000,
                                        .builtin_bytes = 200'000});
  for (const char* split : {"train", "valid"}) {
    const auto source = open_token_source(folder / "data", split);
    ASSERT_EQ(source->domains(), text::BuiltinCorpus::domains());
    ASSERT_EQ(source->domains().size(), 6u);
    const std::vector<int32_t> domains = all_domains(*source);
    const std::vector<int64_t> tokens = test::all_tokens(*source);
    const auto& totals = result.index.splits.at(split).domains;
    for (int32_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::ranges::count(domains, i), totals[static_cast<size_t>(i)].tokens);
    }
    for (size_t i = 1; i < tokens.size(); ++i) {  // it changes between documents only
      if (domains[i] != domains[i - 1]) {
        ASSERT_EQ(tokens[i - 1], 256) << i;
      }
    }
    RandomStream random(3, "windows");
    for (int trial = 0; trial < 1000; ++trial) {
      const size_t first = random.below(domains.size());
      const size_t count = random.below(std::min<size_t>(domains.size() - first, 3000));
      const std::vector<int32_t> window = domains_in(*source, first, count);
      ASSERT_TRUE(std::equal(window.begin(), window.end(),
                             domains.begin() + static_cast<ptrdiff_t>(first)));
    }
  }
}

TEST(TokenDomains, AConcatenationMergesThemByName) {
  const test::TemporaryFolder folder;
  prepare_texts(folder, "a", {{"wiki", "x"}, {"code", "y"}});
  prepare_texts(folder, "b", {{"code", "z"}, {"chat", "w"}});
  std::vector<std::unique_ptr<TokenSource>> sources;
  sources.push_back(open_token_source(folder / "a"));
  sources.push_back(tokens_in_memory({1, 2}, {.name = "memory"}));
  sources.push_back(open_token_source(folder / "b"));
  const auto source = joined(std::move(sources));
  EXPECT_THAT(source->domains(), ElementsAre("wiki", "code", "chat"));
  EXPECT_THAT(all_domains(*source), ElementsAre(0, 0, 1, 1, -1, -1, 1, 1, 2, 2));
}

TEST(TokenDomains, AreUnknownInMemoryAndInOtherProgramsFiles) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "train.bin", test::as_bytes(std::vector<uint16_t>{1, 2, 3}));
  std::vector<std::unique_ptr<TokenSource>> sources;
  sources.push_back(open_token_source(folder / "train.bin"));
  sources.push_back(tokens_in_memory({1, 2, 3}, {.name = "memory"}));
  for (const auto& source : sources) {
    EXPECT_TRUE(source->domains().empty());
    EXPECT_THAT(all_domains(*source), ElementsAre(-1, -1, -1));
    EXPECT_THROW(domains_in(*source, 2, 2), std::out_of_range);
  }
  const auto source = joined(std::move(sources));
  EXPECT_TRUE(source->domains().empty());
  EXPECT_THAT(all_domains(*source), Each(-1));
}

TEST(TokenDomains, ASingleShardHasThoseOfTheIndexBesideIt) {
  const test::TemporaryFolder folder;
  prepare_texts(folder, "data", {{"wiki", test::sample_document(1, kShard)}, {"code", "de"}});
  const fs::path shard = folder / "data" / "train-00001.tokens";  // end | de end
  EXPECT_THAT(open_token_source(shard)->domains(), ElementsAre("wiki", "code"));
  EXPECT_THAT(all_domains(*open_token_source(shard)), ElementsAre(0, 1, 1, 1));
  fs::copy(shard, folder / "train-00001.tokens");
  const auto alone = open_token_source(folder / "train-00001.tokens");
  EXPECT_TRUE(alone->domains().empty());
  EXPECT_THAT(all_domains(*alone), Each(-1));
  // An index that is of other shards, or none at all, says nothing of this one.
  prepare_texts(folder, "other", {{"chat", test::sample_document(2, 2 * kShard)}});
  for (const fs::path& index : {folder / "other" / "index.json", shard}) {
    fs::copy(index, folder / "index.json", fs::copy_options::overwrite_existing);
    EXPECT_TRUE(open_token_source(folder / "train-00001.tokens")->domains().empty());
  }
}

// Large data sets are not verified before use.
TEST(TokenDomains, ADamagedDocumentTableIsRefusedWhenRead) {
  const test::TemporaryFolder folder;
  prepare_texts(folder, "data", {{"wiki", "abc"}, {"code", "de"}, {"chat", "f"}});
  const fs::path shard = folder / "data" / "train-00000.tokens";
  const std::string whole = read_text(shard);
  struct Row {
    uint64_t number, first_token, domain;
  };
  const auto message_with = [&](const Row& row) {
    const uint64_t values[] = {row.first_token, 2, row.domain};
    std::string damaged = whole;
    std::memcpy(damaged.data() + damaged.size() - (3 - row.number) * 24, values, 24);
    test::write_bytes(shard, damaged);
    return test::error_of([&] { all_domains(*open_token_source(folder / "data")); });
  };
  EXPECT_EQ(message_with({1, 4, 1}), "no error");  // as it was
  for (const Row& row : {Row{1, 4, 3}, Row{1, 4, 0xffffffff}, Row{0, 1, 0}}) {
    EXPECT_THAT(message_with(row), HasSubstr("train-00000.tokens is damaged: row " +
                                             std::to_string(row.number) + " of its document"));
  }
  EXPECT_THAT(message_with({2, 2, 2}), HasSubstr("row 1 of its document table is wrong"));
}

}  // namespace
}  // namespace ballast::tokens
