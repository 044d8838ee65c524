// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokenizer/bpe_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "ballast/system/error.h"
#include "ballast/system/file.h"
#include "ballast/tokenizer/bpe_tokenizer.h"
#include "ballast/tokenizer/bpe_trainer.h"
#include "ballast/tokenizer/text_bounds.h"

namespace ballast::tokenizer {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

class BpeFiles : public testing::Test {
 protected:
  void SetUp() override { make_folder(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  // A small good tokenizer, saved; what tests damage.
  BpeVocabulary save_good() const {
    BpeTrainer trainer;
    trainer.add("the cat and the other cat's hat, 12 12 \u00e9\u00e9");
    const auto tokenizer = trainer.train(270);
    tokenizer->save(folder_);
    return dynamic_cast<const BpeTokenizer&>(*tokenizer).vocabulary();
  }
  Json good_json() const {
    save_good();
    return Json::parse(read_text(json_path()));
  }
  fs::path json_path() const { return folder_ / "tokenizer.json"; }
  BpeVocabulary read_json() const {
    return parse_tokenizer_json(read_text(json_path()), json_path());
  }
  void write(const std::string& name, const std::string& text) const {
    write_text_atomically(folder_ / name, text);
  }

  // The message of loading a tokenizer.json that `damage` has changed names the file and `message`.
  void expect_refused(const std::function<void(Json&)>& damage, const std::string& message) const {
    Json json = good_json();
    damage(json);
    write("tokenizer.json", json.dump());
    EXPECT_THAT([&] { load_tokenizer(folder_); },
                ThrowsMessage<UserError>(AllOf(HasSubstr(json_path()), HasSubstr(message))));
  }
  // Likewise for vocab.json and merges.txt, which the error names.
  void expect_pair_refused(const std::string& file, const std::string& text,
                           const std::string& message) const {
    save_good();
    fs::remove(json_path());
    write(file, text);
    EXPECT_THAT([&] { load_tokenizer(folder_); },
                ThrowsMessage<UserError>(AllOf(HasSubstr(folder_ / file), HasSubstr(message))));
  }

  const fs::path folder_ =
      fs::path(testing::TempDir()) / ("bpe_files_" + std::to_string(::getpid()));
};

TEST_F(BpeFiles, BothFormatsGiveBackWhatWasSaved) {
  const BpeVocabulary saved = save_good();
  EXPECT_EQ(read_json(), saved);
  EXPECT_EQ(read_vocab_and_merges(folder_ / "vocab.json", folder_ / "merges.txt"), saved);
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), fingerprint_of(saved));
  EXPECT_EQ(load_tokenizer(json_path())->fingerprint(), fingerprint_of(saved));
  fs::remove(json_path());
  EXPECT_EQ(load_tokenizer(folder_)->fingerprint(), fingerprint_of(saved));
}

TEST_F(BpeFiles, MergesMayBePairs) {
  const BpeVocabulary saved = save_good();
  Json json = good_json();
  for (Json& merge : json["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
  }
  write("tokenizer.json", json.dump());
  EXPECT_EQ(read_json(), saved);
}

TEST_F(BpeFiles, MergesTxtMayHaveWindowsLinesNoVersionAndNoLastNewline) {
  const BpeVocabulary saved = save_good();
  std::string text = read_text(folder_ / "merges.txt");
  text = text.substr(text.find('\n') + 1);
  text.pop_back();
  for (size_t i = 0; (i = text.find('\n', i)) != std::string::npos; i += 2) text.insert(i, 1, '\r');
  write("merges.txt", text);
  EXPECT_EQ(read_vocab_and_merges(folder_ / "vocab.json", folder_ / "merges.txt"), saved);
}

TEST_F(BpeFiles, OfRepeatedMergesTheLastCounts) {
  const BpeVocabulary saved = save_good();
  Json json = good_json();
  json["model"]["merges"].push_back(json["model"]["merges"][0]);
  write("tokenizer.json", json.dump());
  std::vector<Merge> expected(saved.merges.begin() + 1, saved.merges.end());
  expected.push_back(saved.merges[0]);
  EXPECT_EQ(read_json().merges, expected);
}

TEST_F(BpeFiles, AddedTokensMayFollowTheVocabulary) {
  Json json = good_json();
  json["added_tokens"].push_back(
      {{"id", 270}, {"content", "<|user|>"}, {"special", false}, {"normalized", true}});
  write("tokenizer.json", json.dump());
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->vocabulary_size(), 271U);
  std::vector<TokenId> ids;
  tokenizer->encode("<|user|><|endoftext|>", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{270, 269}));
  tokenizer->save(folder_ / "again");
  EXPECT_EQ(load_tokenizer(folder_ / "again")->fingerprint(), tokenizer->fingerprint());
}

TEST_F(BpeFiles, AnUndeclaredEndOfTextIsNotRecognisedInText) {
  Json json = good_json();
  json["added_tokens"].clear();
  write("tokenizer.json", json.dump());
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->end_of_text(), 269U);
  std::vector<TokenId> ids;
  tokenizer->encode("<|endoftext|>", ids);
  EXPECT_GT(ids.size(), 1U);
}

TEST_F(BpeFiles, TheByteTokenizerComesBackFromItsFile) {
  load_tokenizer("bytes")->save(folder_);
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->kind(), "bytes");
  EXPECT_EQ(tokenizer->fingerprint(), load_tokenizer("bytes")->fingerprint());
}

TEST_F(BpeFiles, RefusesMissingEmptyAndDamagedFiles) {
  const auto loading = [&] { load_tokenizer(folder_); };
  EXPECT_THAT([&] { load_tokenizer(folder_ / "nowhere"); },
              ThrowsMessage<UserError>(AllOf(HasSubstr("no tokenizer at"), HasSubstr("nowhere"))));
  EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("holds no tokenizer")));
  write("tokenizer.json", "");
  EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("tokenizer.json is empty")));
  const std::string good = good_json().dump();
  for (const size_t size : {size_t{1}, good.size() / 2, good.size() - 1}) {
    write("tokenizer.json", good.substr(0, size));
    EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("tokenizer.json is not valid JSON")));
  }
  write("tokenizer.json", "{\"model\": \"\xff\"}");
  EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("is not valid JSON")));
  write("tokenizer.json", "[1, 2]");
  EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("holds no JSON object")));
  write("tokenizer.json", "{}");
  EXPECT_THAT(loading, ThrowsMessage<UserError>(HasSubstr("model is missing")));
}

TEST_F(BpeFiles, RefusesWhatItWouldNotEncodeAlike) {
  const Json on = {{"type", "Other"}};
  for (const std::string name :
       {"normalizer", "truncation", "padding", "post_processor", "decoder", "pre_tokenizer"}) {
    expect_refused([&](Json& json) { json[name] = on; }, name);
  }
  expect_refused([](Json& json) { json["pre_tokenizer"] = nullptr; }, "pre_tokenizer is null");
  expect_refused([](Json& json) { json["pre_tokenizer"]["add_prefix_space"] = true; },
                 "pre_tokenizer.add_prefix_space must be false");
  expect_refused([](Json& json) { json["pre_tokenizer"].erase("add_prefix_space"); },
                 "pre_tokenizer.add_prefix_space must be false");
  expect_refused([](Json& json) { json["pre_tokenizer"]["use_regex"] = 1; },
                 "pre_tokenizer.use_regex is neither true nor false");
  expect_refused([](Json& json) { json["version"] = "2.0"; }, "version is \"2.0\"");
  expect_refused([](Json& json) { json["model"]["type"] = "WordPiece"; },
                 "model.type is \"WordPiece\"");
  const Json options = {
      {"dropout", 0.1}, {"continuing_subword_prefix", "##"}, {"end_of_word_suffix", "</w>"}};
  for (const auto& [name, value] : options.items()) {
    expect_refused([&](Json& json) { json["model"][name] = value; }, fmt::format("model.{}", name));
  }
}

TEST_F(BpeFiles, RefusesADamagedVocabulary) {
  const auto vocab = [](Json& json) -> Json& { return json["model"]["vocab"]; };
  expect_refused([&](Json& json) { json["model"].erase("vocab"); }, "model.vocab is missing");
  expect_refused([&](Json& json) { vocab(json) = 3; }, "model.vocab is no object");
  expect_refused([&](Json& json) { vocab(json) = Json::object(); }, "no token for byte 0x00");
  expect_refused([&](Json& json) { vocab(json)["a"] = 5; }, "both have id 5");
  expect_refused([&](Json& json) { vocab(json)["a"] = -5; }, "the id of \"a\" is -5");
  expect_refused([&](Json& json) { vocab(json)["a"] = 1.5; }, "the id of \"a\" is 1.5");
  expect_refused([&](Json& json) { vocab(json)["a"] = 4000000000; }, "without holes");
  expect_refused([&](Json& json) { vocab(json)["new"] = 271; }, "without holes");
  expect_refused([&](Json& json) { vocab(json)[""] = 270; }, "empty token");
  expect_refused(
      [&](Json& json) {
        vocab(json)["something else"] = vocab(json)["\u0120"];
        vocab(json).erase("\u0120");
      },
      "no token for byte 0x20");
  expect_refused(
      [&](Json& json) {
        json["added_tokens"].clear();
        vocab(json).erase("<|endoftext|>");
      },
      "no end-of-text token");
}

TEST_F(BpeFiles, RefusesDamagedMerges) {
  const auto merges = [](Json& json) -> Json& { return json["model"]["merges"]; };
  expect_refused([&](Json& json) { json["model"].erase("merges"); }, "model.merges is missing");
  expect_refused([&](Json& json) { merges(json) = 3; }, "model.merges is no list");
  expect_refused([&](Json& json) { merges(json)[1] = "a"; }, "model.merges[1]");
  expect_refused([&](Json& json) { merges(json)[1] = "a b c"; }, "model.merges[1]");
  expect_refused([&](Json& json) { merges(json)[1] = {"a", "b", "c"}; }, "model.merges[1]");
  expect_refused([&](Json& json) { merges(json)[1] = {1, 2}; }, "model.merges[1]");
  expect_refused([&](Json& json) { merges(json)[1] = "zzz a"; },
                 "\"zzz\" is not in the vocabulary");
  expect_refused([&](Json& json) { merges(json)[1] = "z z"; }, "\"zz\" is not in the vocabulary");
}

TEST_F(BpeFiles, RefusesAddedTokensItCannotHonour) {
  const auto token = [](Json& json) -> Json& { return json["added_tokens"][0]; };
  for (const char* name : {"lstrip", "rstrip", "single_word"}) {
    expect_refused([&](Json& json) { token(json)[name] = 1; }, name);
  }
  expect_refused([&](Json& json) { json["added_tokens"] = 3; }, "added_tokens is no list");
  expect_refused([&](Json& json) { token(json) = 3; }, "added_tokens[0] is no object");
  expect_refused([&](Json& json) { token(json)["content"] = ""; }, "content is empty");
  expect_refused([&](Json& json) { token(json)["special"] = 1; }, "added_tokens[0].special");
  expect_refused([&](Json& json) { token(json)["id"] = 7; }, "has id 7 here, but 269 is its id");
  expect_refused([&](Json& json) { token(json)["content"] = "<new>"; }, "but 270 is its id");
  expect_refused([&](Json& json) { json["added_tokens"].push_back(token(json)); }, "a second time");
  expect_refused(
      [&](Json& json) {
        token(json)["content"] = "\u0120";
        token(json)["id"] = json["model"]["vocab"]["\u0120"];
      },
      "stands for other bytes");
}

TEST_F(BpeFiles, RefusesTypesItDoesNotKnowByName) {
  const auto part = [](const char* type) { return Json{{"type", type}}; };
  const auto refused = [&](const char* key, const Json& value, const std::string& message) {
    expect_refused([&](Json& json) { json[key] = value; }, message);
  };
  const auto sequence = [](const char* list, const Json& parts) {
    return Json{{"type", "Sequence"}, {list, parts}};
  };
  refused("normalizer", part("Lowercase"), "normalizer has the type \"Lowercase\"");
  refused("normalizer", sequence("normalizers", {part("NFC"), part("Precompiled")}),
          "normalizer.normalizers[1] has the type \"Precompiled\"");
  refused("normalizer",
          sequence("normalizers", Json::array({sequence("normalizers", Json::array())})),
          "a Sequence within a Sequence");
  refused("normalizer", 3, "normalizer is no object");
  const Json replace = {{"type", "Replace"}, {"pattern", {{"Regex", " "}}}, {"content", "_"}};
  refused("normalizer", replace, "normalizer.pattern is no");
  refused("pre_tokenizer", part("Whitespace"), "pre_tokenizer has the type \"Whitespace\"");
  const auto split = [&](const Json& pattern, const char* behavior) {
    const Json cut = {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}};
    return sequence("pretokenizers", {cut, {{"type", "ByteLevel"}, {"add_prefix_space", false}}});
  };
  refused("pre_tokenizer", split({{"String", " "}}, "Isolated"), "pretokenizers[0].pattern is no");
  refused("pre_tokenizer", split({{"Regex", "a"}}, "Removed"), "behavior is \"Removed\"");
  refused("pre_tokenizer", split({{"Regex", "a|(b"}}, "Isolated"), "pattern.Regex is a pattern");
  refused("pre_tokenizer", split({{"Regex", "\\w+"}}, "Isolated"), "`\\w` at 0");
  refused("pre_tokenizer", {{"type", "Digits"}}, "does not end in ByteLevel");
  refused("post_processor", part("BertProcessing"), "post_processor has the type");
  const Json single = {{{"SpecialToken", {{"id", "<x>"}}}}, {{"Sequence", {{"id", "A"}}}}};
  const auto framed = [&](const Json& tokens) {
    return Json{{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", tokens}};
  };
  refused("post_processor", framed(Json::object()), "special_tokens.<x> is missing");
  refused("post_processor", framed({{"<x>", {{"ids", {999}}}}}), "adds a token with id 999");
}

TEST_F(BpeFiles, TheFilesThatWereReadAreWrittenToTheByte) {
  Json json = good_json();
  json["pre_tokenizer"]["use_regex"] = false;
  json["something_new"] = {{"kept", true}};
  const std::string text = json.dump(4) + "\n\n", config = "{ \"chat_template\": \"x\" }";
  write("tokenizer.json", text);
  write("tokenizer_config.json", config);
  load_tokenizer(folder_)->save(folder_ / "again");
  EXPECT_EQ(read_text(folder_ / "again" / "tokenizer.json"), text);
  EXPECT_EQ(read_text(folder_ / "again" / "tokenizer_config.json"), config);
  EXPECT_FALSE(fs::exists(folder_ / "again" / "vocab.json"));  // it would be taken for GPT-2's
}

TEST_F(BpeFiles, EndOfTextMayStandInTheConfigBesideIt) {
  const auto rename = [](Json& json) {
    json["added_tokens"][0]["content"] = "<stop>";
    json["model"]["vocab"]["<stop>"] = json["model"]["vocab"]["<|endoftext|>"];
    json["model"]["vocab"].erase("<|endoftext|>");
  };
  expect_refused(rename, "no end-of-text token");
  for (const char* config :
       {R"({"eos_token": "<stop>"})", R"({"eos_token": {"content": "<stop>"}})"}) {
    write("tokenizer_config.json", config);
    EXPECT_EQ(load_tokenizer(folder_)->end_of_text(), 269U);
  }
  write("tokenizer_config.json", R"({"eos_token": 3})");
  EXPECT_THAT([&] { load_tokenizer(folder_); },
              ThrowsMessage<UserError>(HasSubstr("tokenizer_config.json: eos_token is no text")));
}

TEST_F(BpeFiles, WhatAPostProcessorPutsAroundATextIsTold) {
  Json json = good_json();
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing",
       "single": [{"SpecialToken": {"id": "<a>"}}, {"Sequence": {"id": "A"}},
                  {"SpecialToken": {"id": "<b>"}}],
       "special_tokens": {"<a>": {"ids": [3, 4]}, "<b>": {"ids": [5]}}}]})");
  write("tokenizer.json", json.dump());
  const auto tokenizer = load_tokenizer(folder_);
  EXPECT_EQ(tokenizer->frame().begin, (std::vector<TokenId>{3, 4}));
  EXPECT_EQ(tokenizer->frame().end, (std::vector<TokenId>{5}));
  using Ids = std::vector<TokenId>;
  const TokenId end = tokenizer->end_of_text();
  EXPECT_EQ(start_of_text(*tokenizer, Framing::kFramed), (Ids{3, 4}));
  EXPECT_EQ(end_of_document(*tokenizer, Framing::kFramed), (Ids{5, end}));
  EXPECT_EQ(start_of_text(*tokenizer, Framing::kPlain), Ids{end});
  EXPECT_EQ(end_of_document(*tokenizer, Framing::kPlain), Ids{end});
  const auto bytes = load_tokenizer("bytes");
  EXPECT_FALSE(has_frame(*bytes));
  EXPECT_TRUE(has_frame(*tokenizer));
  EXPECT_EQ(start_of_text(*bytes, Framing::kFramed), Ids{bytes->end_of_text()});
  EXPECT_EQ(end_of_document(*bytes, Framing::kFramed), Ids{bytes->end_of_text()});
}

TEST_F(BpeFiles, RefusesADamagedPairOfFiles) {
  expect_pair_refused("vocab.json", "", "is empty");
  expect_pair_refused("vocab.json", "{\"a\":", "not valid JSON");
  expect_pair_refused("vocab.json", "{\"a\": 0}", "no token for byte 0x00");
  expect_pair_refused("merges.txt", "#version: 0.2\na t\nhe", "line 3 is not two tokens");
  expect_pair_refused("merges.txt", "a t\n\n", "line 2 is not two tokens");
  expect_pair_refused("merges.txt", "a t\na  t", "line 2 is not two tokens");
  expect_pair_refused("merges.txt", "a t\nqq q\n", "line 2: \"qq\" is not in the vocabulary");
}

TEST_F(BpeFiles, SavingWhereNothingCanBeWrittenSaysSo) {
  write("file", "");
  EXPECT_THAT([&] { load_tokenizer("bytes")->save(folder_ / "file" / "folder"); },
              ThrowsMessage<UserError>(HasSubstr("cannot create folder")));
}

}  // namespace
}  // namespace ballast::tokenizer
