// SPDX-License-Identifier: Apache-2.0
// Data sets of tokenizers with a template.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ballast/system/file.h"
#include "ballast/tokens/prepare.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;

// A tokenizer of bytes that puts `<s>` before a text, in a file.
fs::path framed_tokenizer(const fs::path& folder, bool with_end) {
  tokenizer::load_tokenizer("bytes")->save(folder);
  auto json = nlohmann::json::parse(read_text(folder / "tokenizer.json"));
  json["added_tokens"].push_back({{"id", 257},
                                  {"content", "<s>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}});
  nlohmann::json single = {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}};
  if (with_end) single.push_back({{"SpecialToken", {{"id", "<|endoftext|>"}}}});
  json["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", single},
      {"special_tokens", {{"<s>", {{"ids", {257}}}}, {"<|endoftext|>", {{"ids", {256}}}}}}};
  test::write_bytes(folder / "tokenizer.json", json.dump());
  return folder / "tokenizer.json";
}

TEST(FramedDocuments, StandWithinTheTokenizersFrame) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder.path() / "text", "ab\n<|endoftext|>\ncd");
  for (const bool with_end : {false, true}) {
    const fs::path own = folder.path() / (with_end ? "end" : "begin");
    fs::create_directory(own);
    PrepareRequest request{.inputs = {folder.path() / "text"},
                           .out = own / "data",
                           .valid_fraction = 0,
                           .tokenizer = framed_tokenizer(own, with_end)};
    prepare(request);
    const TokenDataset framed(own / "data");
    EXPECT_TRUE(framed.index().is_framed);
    EXPECT_EQ(all_tokens(*framed.open("train")),
              (std::vector<int64_t>{257, 'a', 'b', 256, 257, 'c', 'd', 256}));
    EXPECT_EQ(framed.index().splits.at("train").totals.source_bytes, 4U);
    EXPECT_TRUE(TokenDataset::is_framed(own / "data"));
    request.out = own / "plain";
    request.framing = tokenizer::Framing::kPlain;
    prepare(request);
    const TokenDataset plain(own / "plain");
    EXPECT_FALSE(TokenDataset::is_framed(own / "plain"));
    EXPECT_EQ(all_tokens(*plain.open("train")),
              (std::vector<int64_t>{'a', 'b', 256, 'c', 'd', 256}));
  }
}

// The last part of a single document becomes validation text: begin tokens stand for no bytes.
TEST(FramedDocuments, ATailOfFramedTextHasItsBytes) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int line = 0; line < 100; ++line) text += "a line of text\n";
  test::write_bytes(folder.path() / "text", text);
  prepare({.inputs = {folder.path() / "text"},
           .out = folder.path() / "data",
           .valid_fraction = 0.2,
           .tokenizer = framed_tokenizer(folder.path(), /*with_end=*/false)});
  const TokenDataset data(folder.path() / "data");
  const auto bytes = [&](const char* split) {
    return data.index().splits.at(split).totals.source_bytes;
  };
  EXPECT_GT(bytes("valid"), 0U);
  EXPECT_EQ(bytes("train") + bytes("valid"), text.size());
}

}  // namespace
}  // namespace ballast::tokens
