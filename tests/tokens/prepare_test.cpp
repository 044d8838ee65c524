// SPDX-License-Identifier: Apache-2.0
#include "ballast/tokens/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ballast/system/checksum.h"
#include "ballast/system/error.h"
#include "ballast/text/builtin_corpus.h"
#include "ballast/tokens/encode_documents.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"
#include "tests/tokens/sample_tokens.h"

namespace ballast::tokens {
namespace {

using test::all_tokens;
using test::sample_document;
using testing::HasSubstr;
using testing::Not;

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_text(entry.path());
  }
  return files;
}

// `count` documents, each a little longer than the last.
void write_corpus(const fs::path& path, uint64_t count) {
  std::string text;
  for (uint64_t i = 0; i < count; ++i)
    text += test::sample_document(i, 50 + i) + "\n<|endoftext|>\n";
  test::write_bytes(path, text);
}

std::string decode(const TokenDataset& data, const std::string& split) {
  std::string text;
  const auto tokenizer = data.tokenizer();
  for (const int64_t id : test::all_tokens(*data.open(split))) {
    text += tokenizer->token_bytes(static_cast<tokenizer::TokenId>(id));
  }
  return text;
}

std::string message_of(const PrepareRequest& request) {
  try {
    prepare(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Prepare, SplitsDocumentsByTheirContent) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 1000);
  const PrepareResult result =
      prepare({.inputs = {folder / "text.txt"}, .out = folder / "data", .valid_fraction = 0.1});
  EXPECT_EQ(result.validation, ValidationOrigin::kDocuments);
  std::string train, valid;
  for (uint64_t i = 0; i < 1000; ++i) {
    const std::string document = test::sample_document(i, 50 + i);
    const double place = static_cast<double>(document_key(document)) * 0x1p-64;
    (place < 0.1 ? valid : train) += document + "<|endoftext|>";
  }
  const TokenDataset data(folder / "data");
  data.verify();
  EXPECT_EQ(decode(data, "train"), train);
  EXPECT_EQ(decode(data, "valid"), valid);
  const auto& splits = data.index().splits;
  EXPECT_EQ(splits.at("train").totals.documents + splits.at("valid").totals.documents, 1000u);
  EXPECT_EQ(data.index().domains, std::vector<std::string>{"text"});
}

TEST(Prepare, GivesTheSameFilesForAnyNumberOfThreads) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 2000);
  for (const char* tokenizer : {"bytes", "bpe"}) {
    std::map<std::string, std::string> one;
    for (const size_t threads : {1, 2, 4}) {
      prepare({.inputs = {folder / "text.txt"},
               .out = folder / "data",
               .existing = ExistingOutput::kReplace,
               .tokenizer = tokenizer,
               .vocabulary_size = 400,
               .shard_tokens = 200'000,
               .threads = threads});
      const auto files = files_in(folder / "data");
      if (threads == 1) one = files;
      EXPECT_EQ(files, one) << tokenizer << " with " << threads << " threads";
    }
    EXPECT_GE(one.size(), 5u);
  }
}

TEST(Prepare, ValidatesOnTheTailOfASingleDocument) {
  const test::TemporaryFolder folder;
  const std::string text = test::sample_document(1, 50'000);
  test::write_bytes(folder / "book.txt", text);
  const PrepareResult result = prepare({.inputs = {folder / "book.txt"}, .out = folder / "data"});
  EXPECT_EQ(result.validation, ValidationOrigin::kTail);
  const TokenDataset data(folder / "data");
  data.verify();
  const std::string end = "<|endoftext|>";
  const std::string train = decode(data, "train"), valid = decode(data, "valid");
  EXPECT_EQ(train.substr(0, train.size() - end.size()) + valid, text + end);
  EXPECT_NEAR(static_cast<double>(valid.size()), 500, 150);
}

TEST(Prepare, TakesGivenValidationText) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "a.txt", "training text");
  test::write_bytes(folder / "b.txt", "validation text");
  const PrepareResult result = prepare({.inputs = {"one=" + (folder / "a.txt").string()},
                                        .valid_inputs = {folder / "b.txt"},
                                        .out = folder / "data"});
  EXPECT_EQ(result.validation, ValidationOrigin::kGiven);
  const TokenDataset data(folder / "data");
  EXPECT_EQ(decode(data, "train"), "training text<|endoftext|>");
  EXPECT_EQ(decode(data, "valid"), "validation text<|endoftext|>");
  EXPECT_EQ(data.index().domains, (std::vector<std::string>{"one", "b"}));
  EXPECT_EQ(data.index().splits.at("valid").domains[0].documents, 0u);
}

TEST(Prepare, SendsFilesToTheSplitsThatTheirNamesTell) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "wiki/test");
  test::write_bytes(folder / "wiki/train.jsonl",
                    "{\"text\": \"a\"}\n{\"text\": \"\"}\n{\"text\": \"b\"}\n");
  test::write_bytes(folder / "wiki/valid.txt", "validation");
  test::write_bytes(folder / "wiki/test/1.txt", "one");
  test::write_bytes(folder / "wiki/test/2.txt", "two");
  test::write_bytes(folder / "wiki/image.png", "\x89PNG");
  PrepareRequest request{.inputs = {folder / "wiki"}, .out = folder / "data"};
  const PrepareResult result = prepare(request);
  const TokenDataset data(folder / "data");
  data.verify();
  EXPECT_EQ(decode(data, "train"), "a<|endoftext|>b<|endoftext|>");
  EXPECT_EQ(decode(data, "valid"), "validation<|endoftext|>");
  EXPECT_EQ(decode(data, "test"), "one<|endoftext|>two<|endoftext|>");
  EXPECT_EQ(result.validation, ValidationOrigin::kNamed);
  const std::map<std::string, uint64_t> files = {{"train", 1}, {"valid", 1}, {"test", 2}};
  EXPECT_EQ(result.named_files, files);
  EXPECT_EQ(result.input_files, files);
  EXPECT_EQ(result.empty_documents, 1u);
  ASSERT_EQ(result.skipped.size(), 1u);
  EXPECT_EQ(result.skipped[0].path.filename(), "image.png");

  request.reading.split_names = text::SplitNames::kIgnored;
  request.existing = ExistingOutput::kReplace;
  request.valid_fraction = 0;
  EXPECT_TRUE(prepare(request).named_files.empty());
  EXPECT_EQ(TokenDataset(folder / "data").index().splits.size(), 1u);
}

TEST(Prepare, MakesNoValidationSplitWhenNoneIsWanted) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "a.txt", "training text");
  const PrepareResult result =
      prepare({.inputs = {folder / "a.txt"}, .out = folder / "data", .valid_fraction = 0});
  EXPECT_EQ(result.validation, ValidationOrigin::kNone);
  EXPECT_EQ(result.index.splits.count("valid"), 0u);
}

TEST(Prepare, KnowsTheEntropyOfTheBuiltinCorpus) {
  const test::TemporaryFolder folder;
  prepare({.inputs = {"builtin"},
           .out = folder / "data",
           .valid_fraction = 0.2,
           .builtin_bytes = 50'000,
           .seed = 5});
  const TokenDataset data(folder / "data");
  for (const std::string split : {"train", "valid"}) {
    const text::BuiltinCorpus corpus(5);
    std::string text;
    double nats = 0;
    for (uint64_t i = 0; i < data.index().splits.at(split).totals.documents; ++i) {
      const text::BuiltinCorpus::Document document = corpus.document(split, i);
      text += document.text + "<|endoftext|>";
      nats += document.nats;
    }
    EXPECT_EQ(decode(data, split), text);
    EXPECT_DOUBLE_EQ(*data.open(split)->floor_per_token() * double(data.open(split)->size()), nats);
  }
  EXPECT_EQ(data.index().domains, text::BuiltinCorpus::domains());
}

TEST(Prepare, TrainsAVocabularyAndKeepsTheText) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 300);
  prepare({.inputs = {folder / "text.txt"},
           .out = folder / "data",
           .tokenizer = "bpe",
           .vocabulary_size = 500});
  const TokenDataset data(folder / "data");
  EXPECT_EQ(data.tokenizer()->vocabulary_size(), 500u);
  // The same vocabulary, taken from that data set, for other text.
  test::write_bytes(folder / "other.txt", test::sample_document(9999, 5000));
  prepare({.inputs = {folder / "other.txt"},
           .out = folder / "other",
           .valid_fraction = 0,
           .tokenizer = folder / "data"});
  const TokenDataset other(folder / "other");
  EXPECT_EQ(other.index().tokenizer, data.index().tokenizer);
  EXPECT_EQ(decode(other, "train"), test::sample_document(9999, 5000) + "<|endoftext|>");
}

TEST(Prepare, TrainsTheVocabularyOnASampleSpreadOverTheText) {
  const test::TemporaryFolder folder;
  std::string text;
  // More than the reader has at hand at any moment: what it read is what the sample is spread over.
  for (int i = 0; i < 200'000; ++i) text += "aaaaaaaa aaaaaaaa\n<|endoftext|>\n";
  for (int i = 0; i < 200'000; ++i) text += "bbbbbbbb bbbbbbbb\n<|endoftext|>\n";
  test::write_bytes(folder / "text.txt", text);
  prepare({.inputs = {folder / "text.txt"},
           .out = folder / "data",
           .tokenizer = "bpe",
           .vocabulary_size = 300,
           .sample_bytes = 10'000});
  std::vector<tokenizer::TokenId> ids;
  TokenDataset(folder / "data").tokenizer()->encode("aaaaaaaabbbbbbbb", ids);
  EXPECT_LE(ids.size(), 3u);  // both halves of the text were seen
}

TEST(Prepare, ReadsStandardInputOnceAndTwice) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 200);
  for (const std::string tokenizer : {"bytes", "bpe"}) {
    const PrepareRequest request{.inputs = {folder / "text.txt"},
                                 .out = folder / ("file " + tokenizer),
                                 .tokenizer = tokenizer,
                                 .vocabulary_size = 300};
    prepare(request);
    EXPECT_EQ(test::run_in_child([&] {
                if (std::freopen((folder / "text.txt").c_str(), "rb", stdin) == nullptr) return 1;
                PrepareRequest piped = request;
                piped.inputs = {"text=-"};
                piped.out = folder / ("piped " + tokenizer);
                prepare(piped);
                return 0;
              }),
              0);
    EXPECT_EQ(files_in(folder / ("piped " + tokenizer)), files_in(folder / ("file " + tokenizer)));
  }
}

TEST(Prepare, RefusesWhatCannotBeDone) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "a.txt", "some text");
  const std::string text = folder / "a.txt";
  const fs::path out = folder / "data";
  EXPECT_THAT(message_of({.inputs = {}, .out = out}), HasSubstr("no text to prepare"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = ""}), HasSubstr("--out"));
  EXPECT_THAT(message_of({.inputs = {text, "builtin"}, .out = out}),
              HasSubstr("builtin stands alone"));
  EXPECT_THAT(message_of({.inputs = {"builtin"}, .valid_inputs = {text}, .out = out}),
              HasSubstr("leave out --valid"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .valid_fraction = 1}),
              HasSubstr("below 1"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .valid_fraction = -0.1}),
              HasSubstr("-0.1"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .shard_tokens = 0}),
              HasSubstr("--shard-tokens"));
  EXPECT_THAT(message_of({.inputs = {folder / "absent"}, .out = out}), HasSubstr("absent"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .tokenizer = folder / "absent"}),
              HasSubstr("absent"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .tokenizer = "bpe", .vocabulary_size = 5}),
              HasSubstr("257"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = out, .valid_fraction = 0.9999999}),
              HasSubstr("fell into the validation split"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = "/proc/data"}), HasSubstr("/proc/"));
  EXPECT_THAT(message_of({.inputs = {text}, .out = folder / std::string(300, 'x')}),
              HasSubstr("File name too long"));
  EXPECT_THAT(message_of({.inputs = {"a=-"}, .valid_inputs = {"-"}, .out = out}),
              HasSubstr("standard input (-) can be read only once"));
  EXPECT_THAT(message_of({.inputs = {"a=" + folder.path().string()}, .out = out}),
              HasSubstr("lies within the input"));
  // Nothing of all this left anything behind.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Prepare, NeverDeletesItsInput) {
  const test::TemporaryFolder folder;
  const fs::path data = folder / "data", text = data / "mine.tokens";  // by its name part of a set
  test::write_bytes(folder / "a.txt", "some text");
  prepare({.inputs = {folder / "a.txt"}, .out = data});
  test::write_bytes(text, "precious");
  fs::create_symlink(text, folder / "link.txt");
  for (const std::string& input :
       {text.string(), "x=" + text.string(), (folder / "link.txt").string()}) {
    EXPECT_THAT(message_of({.inputs = {input}, .out = data, .existing = ExistingOutput::kReplace}),
                HasSubstr("lies within --out"));
  }
  EXPECT_EQ(read_text(text), "precious");
}

TEST(Prepare, StopsOnRequestAndLeavesNothing) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 50);
  int asked = 0;
  for (const std::string tokenizer : {"bytes", "bpe"}) {
    for (int patience = 0; patience < 110; patience += 10) {
      int left = patience;
      const std::string message = message_of({.inputs = {folder / "text.txt"},
                                              .out = folder / "data",
                                              .tokenizer = tokenizer,
                                              .vocabulary_size = 300,
                                              .stop_requested = [&] { return left-- == 0; }});
      if (message == "no error") break;
      EXPECT_EQ(message, "stopped; nothing was written");
      EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
      ++asked;
    }
    fs::remove_all(folder / "data");
  }
  EXPECT_GE(asked, 6 + 11);  // 50 documents are read once and twice
}

TEST(Prepare, DoesNotTakeADataSetForText) {
  const test::TemporaryFolder folder;
  test::write_bytes(folder / "a.txt", "some text");
  prepare({.inputs = {folder / "a.txt"}, .out = folder / "data"});
  EXPECT_THAT(message_of({.inputs = {folder / "data"}, .out = folder / "other"}),
              HasSubstr("was prepared already: train on it"));
}

TEST(Prepare, LeavesNothingWhenTheDiskIsFull) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 2000);  // 2 MB
  EXPECT_EQ(test::run_in_child([&] {
              test::limit_file_size(1'000'000);
              const std::string message =
                  message_of({.inputs = {folder / "text.txt"}, .out = folder / "data"});
              return message.find("train-00000.tokens") != std::string::npos ? 0 : 1;
            }),
            0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

// The process is killed at moments spread over its run; what is there afterwards is whole or
// nothing.
TEST(Prepare, KilledAtAnyMomentLeavesNothingThatLooksComplete) {
  const test::TemporaryFolder folder;
  write_corpus(folder / "text.txt", 3000);
  const PrepareRequest request{.inputs = {folder / "text.txt"},
                               .out = folder / "data",
                               .tokenizer = "bpe",
                               .vocabulary_size = 300,
                               .shard_tokens = 100'000};
  int interrupted = 0;
  for (int moment = 0; moment < 20; ++moment) {
    fs::remove_all(folder / "data");
    const pid_t child = test::start_child([&] {
      prepare(request);
      return 0;
    });
    ::usleep(static_cast<useconds_t>(moment * 25'000));
    ::kill(child, SIGKILL);
    test::wait_for_child(child);
    if (fs::exists(folder / "data")) {
      TokenDataset(folder / "data").verify();
    } else {
      ++interrupted;
    }
  }
  EXPECT_GT(interrupted, 0);
  fs::remove_all(folder / "data");
  prepare(request);
  TokenDataset(folder / "data").verify();
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    left.push_back(entry.path().filename());
  EXPECT_THAT(left, testing::UnorderedElementsAre("data", "text.txt"));
}

}  // namespace
}  // namespace ballast::tokens
