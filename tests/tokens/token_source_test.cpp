// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/token_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/system/error.h"
#include "ballast/tokens/token_file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;
using test::as_bytes;
using test::error_of;
using test::write_bytes;
using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<TokenSource> memory(std::vector<int64_t> ids, TokenSourceInfo info = {}) {
  if (info.name.empty()) info.name = "here";
  return tokens_in_memory(std::move(ids), std::move(info));
}

std::unique_ptr<TokenSource> join(std::vector<std::vector<int64_t>> lists) {
  std::vector<std::unique_ptr<TokenSource>> sources;
  for (auto& ids : lists) sources.push_back(memory(std::move(ids)));
  return concatenate(std::move(sources), {.name = "joined", .format = "memory"});
}

TEST(TokenSource, ReadsAnyPartOfAConcatenation) {
  const auto joined = join({{0, 1, 2}, {}, {3}, {4, 5, 6, 7}, {}});
  ASSERT_EQ(joined->size(), 8u);
  for (size_t first = 0; first <= 8; ++first) {
    for (size_t count = 0; first + count <= 8; ++count) {
      std::vector<int64_t> out(count);
      joined->read(first, out);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(out[i], static_cast<int64_t>(first + i));
    }
  }
}

TEST(TokenSource, AConcatenationKnowsWhatAllItsPartsKnow) {
  const auto joined = [](TokenSourceInfo first, TokenSourceInfo second) {
    std::vector<std::unique_ptr<TokenSource>> sources;
    sources.push_back(memory({1}, std::move(first)));
    sources.push_back(memory({2, 3}, std::move(second)));
    return concatenate(std::move(sources), {.name = "joined"})->info();
  };
  const TokenSourceInfo full{.name = "a",
                             .vocabulary_size = 257,
                             .end_of_text = 256,
                             .tokenizer_fingerprint = 5,
                             .tokenizer_folder = "a",
                             .source_bytes = 10,
                             .nats = 1.5};
  TokenSourceInfo other = full;
  other.tokenizer_folder = "b";
  const TokenSourceInfo same = joined(full, other);
  EXPECT_EQ(same.name, "joined");
  EXPECT_EQ(same.vocabulary_size, 257u);
  EXPECT_EQ(same.end_of_text, 256u);
  EXPECT_EQ(same.tokenizer_fingerprint, 5u);
  EXPECT_EQ(same.tokenizer_folder, "a");
  EXPECT_EQ(same.source_bytes, 20u);
  EXPECT_EQ(same.nats, 3.0);
  other.tokenizer_fingerprint = 6;
  other.vocabulary_size = 300;
  other.nats.reset();
  const TokenSourceInfo mixed = joined(full, other);
  EXPECT_EQ(mixed.vocabulary_size, 300u);
  EXPECT_EQ(mixed.tokenizer_fingerprint, std::nullopt);
  EXPECT_EQ(mixed.tokenizer_folder, std::nullopt);
  EXPECT_EQ(mixed.source_bytes, 20u);
  EXPECT_EQ(mixed.nats, std::nullopt);
}

TEST(TokenSource, RefusesToReadBeyondItsEnd) {
  const auto source = memory({1, 2, 3});
  std::vector<int64_t> out(2);
  EXPECT_THROW(source->read(2, out), std::out_of_range);
  EXPECT_THROW(source->read(~uint64_t{0}, out), std::out_of_range);
  EXPECT_EQ(join({})->size(), 0u);
}

TEST(TokenSource, ChecksIdsAgainstTheVocabularyWhenRead) {
  const auto known = memory({1, 2, 9, 3}, {.name = "data.bin", .vocabulary_size = 9});
  std::vector<int64_t> out(2);
  known->read(0, out);
  EXPECT_THAT(error_of([&] { known->read(1, out); }),
              HasSubstr("data.bin: token 9 at position 2 is outside the vocabulary of 9"));
  const auto negative = memory({1, -1});
  EXPECT_THAT(error_of([&] { all_tokens(*negative); }), HasSubstr("token -1 at position 1"));
}

TEST(TokenSource, AcceptsAModelsVocabularyOrSaysWhyNot) {
  const auto unknown = memory({1, 2, 9, 3});
  unknown->limit_vocabulary(9);
  EXPECT_THAT(error_of([&] { all_tokens(*unknown); }), HasSubstr("token 9 at position 2"));
  const auto known = memory({1, 2}, {.name = "shards", .vocabulary_size = 257});
  known->limit_vocabulary(300);
  known->limit_vocabulary(257);
  EXPECT_THAT(
      error_of([&] { known->limit_vocabulary(256); }),
      HasSubstr("shards: its tokens are from a vocabulary of 257, but the model's has only 256"));
}

TEST(TokenSource, TellsTheEntropyFloorWhereTheLawIsKnown) {
  const auto known = memory({1, 2, 3, 4}, {.name = "x", .source_bytes = 8, .nats = 2.0});
  EXPECT_EQ(known->floor_per_token(), 0.5);
  EXPECT_EQ(known->floor_per_byte(), 0.25);
  EXPECT_EQ(memory({1})->floor_per_token(), std::nullopt);
  EXPECT_EQ(memory({1}, {.name = "x", .nats = 1.0})->floor_per_byte(), std::nullopt);
}

TEST(TokenSource, RefusesAnotherTokenizer) {
  const auto tokenizer = tokenizer::load_tokenizer("bytes");
  require_same_tokenizer(*memory({1}), *tokenizer);
  require_same_tokenizer(
      *memory({1}, {.name = "x", .tokenizer_fingerprint = tokenizer->fingerprint()}), *tokenizer);
  const auto other =
      memory({1}, {.name = "x", .tokenizer_fingerprint = tokenizer->fingerprint() + 1});
  EXPECT_THAT(error_of([&] { require_same_tokenizer(*other, *tokenizer); }),
              HasSubstr("x was prepared with another tokenizer"));
}

// llm.c: 256 int32 (magic, version, tokens), then the tokens.
std::string llmc_header(int32_t magic, int32_t version, int32_t tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = tokens;
  return as_bytes(header);
}

TEST(OpenTokenSource, ReadsLlmcFiles) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "a.bin",
              llmc_header(20240520, 1, 3) + as_bytes<uint16_t>({50256, 0, 65535}));
  const auto small = open_token_source(folder / "a.bin");
  EXPECT_THAT(all_tokens(*small), ElementsAre(50256, 0, 65535));
  EXPECT_EQ(small->info().format, "llm.c");
  EXPECT_EQ(small->info().vocabulary_size, std::nullopt);
  write_bytes(folder / "b.bin", llmc_header(20240801, 7, 2) + as_bytes<uint32_t>({128000, 5}));
  EXPECT_THAT(all_tokens(*open_token_source(folder / "b.bin")), ElementsAre(128000, 5));
}

TEST(OpenTokenSource, RefusesDamagedLlmcFiles) {
  const test::TemporaryFolder folder;
  const std::string tokens = as_bytes<uint16_t>({1, 2, 3});
  const auto message = [&](const std::string& bytes) {
    write_bytes(folder / "a.bin", bytes);
    return error_of([&] { open_token_source(folder / "a.bin"); });
  };
  EXPECT_THAT(message(llmc_header(20240520, 2, 3) + tokens), HasSubstr("version 2"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 4) + tokens),
              HasSubstr("says 4 tokens, but 6 bytes"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 3) + "12345"), HasSubstr("truncated"));
  EXPECT_THAT(message(llmc_header(20240520, 1, -3) + tokens), HasSubstr("damaged"));
  EXPECT_THAT(message(llmc_header(20240520, 1, 0)), HasSubstr("holds no tokens"));
  const std::string whole = llmc_header(20240520, 1, 3) + tokens;
  for (size_t length = 12; length < whole.size(); ++length) {
    EXPECT_THAT(message(whole.substr(0, length)), HasSubstr("truncated")) << length;
  }
}

TEST(OpenTokenSource, ReadsNanoGptFiles) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "train.bin", as_bytes<uint16_t>({1, 2, 50256}));
  const auto source = open_token_source(folder / "train.bin");
  EXPECT_THAT(all_tokens(*source), ElementsAre(1, 2, 50256));
  EXPECT_EQ(source->info().format, "nanoGPT");
  write_bytes(folder / "odd.bin", "123");
  EXPECT_THAT(error_of([&] { open_token_source(folder / "odd.bin"); }),
              HasSubstr("odd number of bytes"));
  write_bytes(folder / "empty.bin", "");
  EXPECT_THAT(error_of([&] { open_token_source(folder / "empty.bin"); }), HasSubstr("is empty"));
}

TEST(OpenTokenSource, ChoosesFilesInAFolderBySplit) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "train.bin", as_bytes<uint16_t>({1, 2}));
  write_bytes(folder / "val.bin", as_bytes<uint16_t>({3}));
  EXPECT_THAT(all_tokens(*open_token_source(folder.path(), "train")), ElementsAre(1, 2));
  EXPECT_THAT(all_tokens(*open_token_source(folder.path(), "valid")), ElementsAre(3));
  write_bytes(folder / "train_2.bin", as_bytes<uint16_t>({7}));
  EXPECT_THAT(all_tokens(*open_token_source(folder.path(), "train")), ElementsAre(1, 2, 7));
  write_bytes(folder / "train_3.bin", llmc_header(20240520, 1, 1) + as_bytes<uint16_t>({5}));
  EXPECT_THAT(error_of([&] { open_token_source(folder.path(), "train"); }),
              HasSubstr("name the file to use"));
  EXPECT_THAT(error_of([&] { open_token_source(folder.path(), "test"); }),
              HasSubstr("none with the word \"test\" in its name"));
}

TEST(OpenTokenSource, TakesASplitsNameForAWholeWord) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "pretrain_train-1.bin", as_bytes<uint16_t>({1}));
  write_bytes(folder / "pretrain_val.bin", as_bytes<uint16_t>({2}));
  write_bytes(folder / "retrieval.train00.bin", as_bytes<uint16_t>({3}));
  write_bytes(folder / "x_validation_0.bin", as_bytes<uint16_t>({4}));
  EXPECT_THAT(all_tokens(*open_token_source(folder.path(), "train")), ElementsAre(1, 3));
  EXPECT_THAT(all_tokens(*open_token_source(folder.path(), "valid")), ElementsAre(2, 4));
  write_bytes(folder / "train_and_val.bin", as_bytes<uint16_t>({5}));
  for (const char* split : {"train", "valid"}) {
    EXPECT_THAT(error_of([&] { open_token_source(folder.path(), split); }),
                HasSubstr("train_and_val.bin may be of several splits"));
  }
}

TEST(OpenTokenSource, SaysWhatAPathIsInstead) {
  const test::TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { open_token_source(folder / "absent"); }), HasSubstr("does not exist"));
  EXPECT_THAT(error_of([&] { open_token_source(folder.path()); }), HasSubstr("ballast prepare"));
  EXPECT_THAT(error_of([&] { open_token_source(folder / std::string(300, 'x')); }),
              HasSubstr("File name too long"));
  write_bytes(folder / "book.txt", "It was a dark and stormy night.");
  EXPECT_THAT(error_of([&] { open_token_source(folder / "book.txt"); }),
              HasSubstr("run `ballast prepare"));
  write_bytes(folder / "empty.txt", "");
  EXPECT_THAT(error_of([&] { open_token_source(folder / "empty.txt"); }),
              HasSubstr("not token data"));
}

// Megatron: magic, version, type, sequences, document bounds; sizes, pointers, bounds.
struct Index {
  std::string magic{"MMIDIDX\0\0", 9};
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> sizes{2, 3};
  std::vector<int64_t> pointers{0, 4};
  std::optional<std::vector<int64_t>> bounds{{0, 1, 2}};  // fairseq has none
  std::string modes = {};

  std::string bytes() const {
    std::string text = magic + as_bytes<uint64_t>({version}) + static_cast<char>(type) +
                       as_bytes<uint64_t>({sizes.size()});
    if (bounds) text += as_bytes<uint64_t>({bounds->size()});
    text += as_bytes(sizes) + as_bytes(pointers);
    return text + (bounds ? as_bytes(*bounds) : "") + modes;
  }
};

TEST(OpenTokenSource, ReadsMegatronAndFairseqByAnyOfTheirNames) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "d.bin", as_bytes<uint16_t>({1, 2, 3, 4, 65535}));
  for (const bool is_fairseq : {false, true}) {
    Index index;
    if (is_fairseq) index.bounds.reset();
    write_bytes(folder / "d.idx", index.bytes());
    for (const char* name : {"d", "d.idx", "d.bin"}) {
      const auto source = open_token_source(folder / name);
      EXPECT_THAT(all_tokens(*source), ElementsAre(1, 2, 3, 4, 65535));
      EXPECT_EQ(source->info().format, is_fairseq ? "fairseq" : "Megatron");
    }
  }
  write_bytes(folder / "d.idx", Index{.modes = "\1\1"}.bytes());  // multimodal
  EXPECT_EQ(open_token_source(folder / "d")->size(), 5u);
}

template <typename T>
void expect_type(const fs::path& folder, uint8_t code, std::vector<T> values) {
  write_bytes(folder / "d.bin", as_bytes(values));
  write_bytes(folder / "d.idx",
              Index{.type = code, .sizes = {2, 1}, .pointers = {0, 2 * sizeof(T)}}.bytes());
  EXPECT_EQ(all_tokens(*open_token_source(folder / "d.idx")),
            std::vector<int64_t>(values.begin(), values.end()))
      << int{code};
}

TEST(OpenTokenSource, ReadsEveryMegatronType) {
  const test::TemporaryFolder folder;
  expect_type<uint8_t>(folder.path(), 1, {0, 7, 255});
  expect_type<int8_t>(folder.path(), 2, {0, 7, 127});
  expect_type<int16_t>(folder.path(), 3, {0, 7, 32767});
  expect_type<int32_t>(folder.path(), 4, {0, 7, 2147483647});
  expect_type<int64_t>(folder.path(), 5, {0, 7, 4294967295});
  expect_type<uint16_t>(folder.path(), 8, {0, 7, 65535});
  expect_type<uint32_t>(folder.path(), 9, {0, 7, 4294967295});
  expect_type<uint64_t>(folder.path(), 10, {0, 7, 4294967295});
}

TEST(OpenTokenSource, RefusesDamagedMegatronFiles) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "d.bin", as_bytes<uint16_t>({1, 2, 3, 4, 5}));
  const auto message = [&](const std::string& bytes) {
    write_bytes(folder / "d.idx", bytes);
    return error_of([&] { open_token_source(folder / "d.idx"); });
  };
  EXPECT_EQ(message(Index{}.bytes()), "no error");
  EXPECT_THAT(message(Index{.magic = std::string("MMIDIDY\0\0", 9)}.bytes()),
              HasSubstr("not a Megatron"));
  EXPECT_THAT(message(std::string("TNTIDX\0\0", 8) + Index{}.bytes()),
              HasSubstr("dataset-impl mmap"));
  EXPECT_THAT(message(Index{.version = 2}.bytes()), HasSubstr("version 2"));
  EXPECT_THAT(message(Index{.type = 6}.bytes()), HasSubstr("floating-point"));
  EXPECT_THAT(message(Index{.type = 7}.bytes()), HasSubstr("floating-point"));
  EXPECT_THAT(message(Index{.type = 0}.bytes()), HasSubstr("unknown number type 0"));
  EXPECT_THAT(message(Index{.type = 11}.bytes()), HasSubstr("unknown number type 11"));
  EXPECT_THAT(message(Index{.type = 4}.bytes()), HasSubstr("does not follow"));
  EXPECT_THAT(message(Index{.sizes = {2, -3}}.bytes()), HasSubstr("sequence 1"));
  EXPECT_THAT(message(Index{.pointers = {0, 6}}.bytes()), HasSubstr("sequence 1"));
  EXPECT_THAT(message(Index{.sizes = {2, 4}}.bytes()),
              HasSubstr("has 10 bytes, the index says 12"));
  EXPECT_THAT(message(Index{.sizes = {}, .pointers = {}}.bytes()), HasSubstr("no tokens"));
  const std::string whole = Index{}.bytes();
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message(whole.substr(0, length)), "no error") << length;
  }
  std::string hostile = whole;
  for (size_t at = 18; at < 34; ++at) {  // counts whose products overflow
    hostile[at] = '\xff';
    EXPECT_NE(message(hostile), "no error") << at;
  }
  write_bytes(folder / "alone.idx", whole);
  EXPECT_THAT(error_of([&] { open_token_source(folder / "alone.idx"); }),
              HasSubstr("alone.bin, the tokens of"));
}

TEST(OpenTokenSource, FindsIdsOutsideTheModelsVocabularyInForeignFiles) {
  const test::TemporaryFolder folder;
  write_bytes(folder / "d.bin", as_bytes<uint16_t>({1, 2, 700}));
  const auto source = open_token_source(folder / "d.bin");
  source->limit_vocabulary(257);
  EXPECT_THAT(error_of([&] { all_tokens(*source); }),
              HasSubstr("d.bin: token 700 at position 2 is outside the vocabulary of 257"));
}

TEST(TokenSource, TheFingerprintIsOfTheContentWhereverItLies) {
  EXPECT_EQ(memory({1, 2, 3})->fingerprint(), memory({1, 2, 3}, {.name = "other"})->fingerprint());
  EXPECT_NE(memory({1, 2, 3})->fingerprint(), memory({1, 3, 2})->fingerprint());
  EXPECT_NE(memory({1, 2, 0})->fingerprint(), memory({1, 2})->fingerprint());
  const test::TemporaryFolder folder;
  const std::vector<uint16_t> narrow = {5, 6, 7};
  test::write_bytes(folder / "a.bin", as_bytes(narrow));
  EXPECT_EQ(open_token_source(folder / "a.bin")->fingerprint(), memory({5, 6, 7})->fingerprint());
}

TEST(TokenSource, AFingerprintOfSeveralCountsTheirOrder) {
  const auto both = [](std::vector<int64_t> first, std::vector<int64_t> second) {
    std::vector<std::unique_ptr<TokenSource>> parts;
    parts.push_back(memory(std::move(first)));
    parts.push_back(memory(std::move(second)));
    return concatenate(std::move(parts), {.name = "both"})->fingerprint();
  };
  EXPECT_EQ(both({1, 2}, {3}), both({1, 2}, {3}));
  EXPECT_NE(both({1, 2}, {3}), both({3}, {1, 2}));
  std::vector<std::unique_ptr<TokenSource>> one;
  one.push_back(memory({1, 2}));
  EXPECT_EQ(concatenate(std::move(one), {})->fingerprint(), memory({1, 2})->fingerprint());
}

TEST(TokenSource, AFingerprintOfALargeFileReadsABoundedPartOfIt) {
  std::vector<int64_t> tokens(3'000'000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i % 251);
  const uint64_t before = memory(tokens)->fingerprint();
  const auto changed = [&](size_t first, size_t count) {
    std::vector<int64_t> others = tokens;
    for (size_t i = first; i < first + count; ++i) others[i] += 1;
    return memory(others)->fingerprint();
  };
  EXPECT_NE(changed(0, 1), before);
  EXPECT_NE(changed(tokens.size() - 1, 1), before);
  // Blocks begin every 11749 tokens: a run of tokens as long as what lies between two is found.
  EXPECT_NE(changed(1'234'567, 11750 - 4096), before);
  tokens.pop_back();
  EXPECT_NE(memory(tokens)->fingerprint(), before);
}

}  // namespace
}  // namespace ballast::tokens
