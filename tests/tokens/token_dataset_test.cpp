// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/tokens/prepare.h"
#include "ballast/tokens/split_writer.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;
using testing::ElementsAre;
using testing::HasSubstr;

void write_document(SplitWriter& writer, uint32_t domain, std::string_view text,
                    std::optional<double> nats) {
  const std::vector<tokenizer::TokenId> ids(text.begin(), text.end());
  writer.append(domain, ids, text.size());
  writer.end_document(nats);
}

// Domains "one" and "two"; train "hello", "abc" in shards of four tokens, valid "xyz".
DatasetIndex write_dataset(const fs::path& folder, std::optional<double> nats = 2.5) {
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  DatasetIndex index;
  index.tokenizer = identity_of(*tokenizer);
  index.domains = {"one", "two"};
  SplitWriter train(folder, "train", *tokenizer, 4), valid(folder, "valid", *tokenizer, 4);
  write_document(train, 0, "hello", nats);
  write_document(train, 1, "abc", 1.5);
  write_document(valid, 1, "xyz", 3.0);
  index.splits["train"] = train.finish(2);
  index.splits["valid"] = valid.finish(2);
  tokenizer->save(folder);
  write_text_atomically(folder / TokenDataset::kIndexFile, index.to_text());
  return index;
}

TEST(TokenDataset, RoundTripsThroughItsFolder) {
  const test::TemporaryFolder folder;
  write_dataset(folder.path());
  const TokenDataset data(folder.path());
  const auto train = data.open("train");
  EXPECT_THAT(test::all_tokens(*train),
              ElementsAre('h', 'e', 'l', 'l', 'o', 256, 'a', 'b', 'c', 256));
  EXPECT_THAT(test::all_tokens(*data.open("valid")), ElementsAre('x', 'y', 'z', 256));
  EXPECT_EQ(train->info().vocabulary_size, 257u);
  EXPECT_EQ(train->info().end_of_text, 256u);
  EXPECT_EQ(train->info().source_bytes, 8u);
  EXPECT_EQ(train->floor_per_token(), 0.4);
  EXPECT_EQ(train->floor_per_byte(), 0.5);
  EXPECT_EQ(*train->info().tokenizer_fingerprint, data.tokenizer()->fingerprint());
  EXPECT_EQ(open_token_source(folder.path(), "valid")->size(), 4u);
  data.verify();
}

TEST(TokenDataset, SplitsDocumentsOverShardsExactly) {
  const test::TemporaryFolder folder;
  const DatasetIndex index = write_dataset(folder.path());
  const SplitIndex& train = index.splits.at("train");
  ASSERT_EQ(train.shards.size(), 3u);
  EXPECT_EQ(train.totals.documents, 2u);
  EXPECT_EQ(train.domains[0].tokens, 6u);
  EXPECT_EQ(train.domains[1].source_bytes, 3u);
  const TokenDataset data(folder.path());
  const auto& shards = data.shards("train");
  EXPECT_EQ(shards[0].counts().source_bytes, 4u);  // hell
  EXPECT_EQ(shards[1].counts().documents, 1u);     // o, end | ab
  EXPECT_EQ(shards[1].parts()[0].kind, PartKind::kBeganInEarlierShard);
  EXPECT_EQ(shards[1].parts()[1].source_bytes, 2u);
  EXPECT_EQ(shards[2].counts().documents, 0u);  // c, end
}

TEST(TokenDataset, OpensASingleShardToo) {
  const test::TemporaryFolder folder;
  write_dataset(folder.path());
  EXPECT_THAT(test::all_tokens(*open_token_source(folder / "train-00001.tokens")),
              ElementsAre('o', 256, 'a', 'b'));
}

TEST(TokenDataset, HasNoFloorUnlessEveryLawIsKnown) {
  const test::TemporaryFolder folder;
  const DatasetIndex index = write_dataset(folder.path(), std::nullopt);
  EXPECT_EQ(index.splits.at("train").totals.nats, std::nullopt);
  EXPECT_EQ(index.splits.at("train").domains[1].nats, 1.5);
  const TokenDataset data(folder.path());
  EXPECT_EQ(data.open("train")->floor_per_token(), std::nullopt);
  EXPECT_EQ(data.open("valid")->floor_per_token(), 0.75);
}

TEST(TokenDataset, NamesTheSplitsThereAre) {
  const test::TemporaryFolder folder;
  write_dataset(folder.path());
  EXPECT_THAT(test::error_of([&] { TokenDataset(folder.path()).open("test"); }),
              HasSubstr("has no split \"test\", only: train, valid"));
}

TEST(TokenDataset, DetectsAnyChangeOfItsIndex) {
  const test::TemporaryFolder folder;
  const std::string whole = write_dataset(folder.path()).to_text();
  EXPECT_EQ(DatasetIndex::from_text(whole, "index.json").to_text(), whole);
  for (size_t at = 0; at + 1 < whole.size(); ++at) {  // but for the last line break
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_THROW(DatasetIndex::from_text(damaged, "index.json"), UserError) << "byte " << at;
    EXPECT_THROW(DatasetIndex::from_text(whole.substr(0, at), "index.json"), UserError)
        << "length " << at;
  }
}

// Changes the index as an editor would, with a checksum that fits.
std::string message_after(const fs::path& folder,
                          const std::function<void(nlohmann::ordered_json&)>& change) {
  auto object = nlohmann::ordered_json::parse(read_text(folder / "index.json"));
  object.erase("checksum");
  change(object);
  std::string text = object.dump(2);
  text.resize(text.size() - 2);
  text += ",\n  \"checksum\": \"" + checksum_hex(checksum(text)) + "\"\n}\n";
  return test::error_of([&] { DatasetIndex::from_text(text, "index.json"); });
}

TEST(TokenDataset, RefusesAnIndexThatDoesNotAddUp) {
  const test::TemporaryFolder folder;
  write_dataset(folder.path());
  const auto message = [&](auto change) { return message_after(folder.path(), change); };
  EXPECT_EQ(message([](auto&) {}), "no error");
  EXPECT_THAT(message([](auto& j) { j["format"] = "other"; }), HasSubstr("its format is not"));
  EXPECT_THAT(message([](auto& j) { j["version"] = 2; }), HasSubstr("version 2"));
  EXPECT_THAT(message([](auto& j) { j.erase("tokenizer"); }), HasSubstr("tokenizer"));
  EXPECT_THAT(message([](auto& j) { j["splits"]["train"]["tokens"] = 11; }), HasSubstr("add up"));
  EXPECT_THAT(message([](auto& j) { j["splits"]["train"]["tokens"] = -1; }), HasSubstr("tokens"));
  EXPECT_THAT(message([](auto& j) { j["splits"]["valid"]["shards"][0]["file"] = "../x"; }),
              HasSubstr("not a plain name"));
  EXPECT_THAT(message([](auto& j) { j["domains"].push_back("three"); }), HasSubstr("domain"));
  EXPECT_THAT(message([](auto& j) { j["tokenizer"]["fingerprint"] = "12"; }),
              HasSubstr("16-digit"));
  EXPECT_THAT(message([](auto& j) { j["tokenizer"]["vocabulary_size"] = 1ULL << 32; }),
              HasSubstr("vocabulary_size"));
}

TEST(TokenDataset, DetectsMissingSwappedAndDamagedShards) {
  const test::TemporaryFolder folder;
  write_dataset(folder.path());
  const std::string first = read_text(folder / "train-00000.tokens");
  test::write_bytes(folder / "train-00000.tokens", read_text(folder / "train-00001.tokens"));
  EXPECT_THAT(test::error_of([&] { TokenDataset(folder.path()); }),
              HasSubstr("train-00000.tokens is not the file its data set was written with"));
  std::string damaged = first;
  damaged[81] ^= 1;
  test::write_bytes(folder / "train-00000.tokens", damaged);
  const TokenDataset data(folder.path());  // headers are as they were
  EXPECT_THAT(test::error_of([&] { data.verify(); }), HasSubstr("train-00000.tokens is damaged"));
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    if (entry.path().extension() == ".tokens") bytes += entry.file_size();
  }
  EXPECT_EQ(data.bytes(), bytes);
  fs::remove(folder / "train-00000.tokens");
  EXPECT_THAT(test::error_of([&] { TokenDataset(folder.path()); }),
              HasSubstr("is missing from the data set"));
}

TEST(TokenDataset, RefusesATokenizerThatIsNotItsOwn) {
  const test::TemporaryFolder folder;
  DatasetIndex index = write_dataset(folder.path());
  index.tokenizer.kind = "bpe";
  write_text_atomically(folder / "index.json", index.to_text());
  EXPECT_THAT(test::error_of([&] { TokenDataset(folder.path()).tokenizer(); }),
              HasSubstr("is not the one its shards were written with"));
}

TEST(DatasetIndex, WritesDomainsNamedByAnyBytes) {
  DatasetIndex index;
  index.tokenizer = identity_of(*tokenizer::load_tokenizer("bytes"));
  index.domains = {"caf\xe9"};  // Latin-1: not UTF-8
  index.splits["train"].domains.resize(1);
  const DatasetIndex back = DatasetIndex::from_text(index.to_text(), "index.json");
  EXPECT_EQ(back.domains, std::vector<std::string>{"caf\xEF\xBF\xBD"});
}

TEST(TokenDataset, VerifiesEveryFileOfTheTokenizer) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "text.txt", test::sample_document(1, 5000));
  prepare({.inputs = {(folder / "text.txt").string()},
           .out = folder / "data",
           .tokenizer = "bpe",
           .vocabulary_size = 280});
  const TokenDataset data(folder / "data");
  data.verify();
  EXPECT_EQ(data.index().tokenizer_files.size(), 3u);
  for (const TokenizerFile& file : data.index().tokenizer_files) {
    const fs::path path = folder / "data" / file.file;
    const std::string whole = read_text(path);
    std::string flipped = whole;
    flipped[flipped.size() / 2] = static_cast<char>(flipped[flipped.size() / 2] ^ 1);
    for (const std::string& damaged :
         {flipped, whole + "\n", whole.substr(0, 100), std::string()}) {
      test::write_bytes(path, damaged);
      EXPECT_THAT(test::error_of([&] { data.verify(); }), HasSubstr(path.string()));
    }
    fs::remove(path);
    EXPECT_THAT(test::error_of([&] { data.verify(); }), HasSubstr(path.string()));
    test::write_bytes(path, whole);
  }
  data.verify();
}

TEST(TokenDataset, ItsFingerprintIsThatOfItsTokens) {
  const test::TemporaryFolder one, two, three;
  write_dataset(one.path());
  write_dataset(two.path(), std::nullopt);
  const auto of = [](const fs::path& folder, const char* split) {
    return TokenDataset(folder).open(split)->fingerprint();
  };
  EXPECT_EQ(of(one.path(), "train"), of(two.path(), "train"));
  EXPECT_NE(of(one.path(), "train"), of(one.path(), "valid"));
  const fs::path shard = one / "valid-00000.tokens";
  EXPECT_EQ(open_token_source(shard)->fingerprint(), of(one.path(), "valid"));
}

}  // namespace
}  // namespace ballast::tokens
