// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/text_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/system/error.h"

namespace ballast::inference {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Reader bytes_reader(int64_t context = 100) {
  static const auto bytes = tokenizer::load_tokenizer("bytes");
  return {.file = "file.jsonl", .tokenizer = *bytes, .context = context};
}

// Of a model to which a target costs as many nats as its second letter tells, the first being a
// space: 'a' is likely, 'z' is not.
TaskResult answer(const TextTask& task) {
  std::vector<ContinuationScore> scores;
  for (const Continuation& one : task.questions) {
    const int64_t letter = one.target.at(1);
    scores.push_back(
        {.nats = static_cast<double>(letter - 'a' + 1), .is_likeliest = letter == 'a'});
  }
  return task.sum_up(scores);
}

double value_of(const TaskResult& result, const std::string& name) {
  for (const Metric& metric : result.metrics)
    if (metric.name == name) return metric.value;
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

// What Python's len(re.split(r"\s+", text)) says.
TEST(TextTasks, WordsAreCountedAsPythonSplitsThem) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"", 1},
      {"word", 1},
      {"two words", 2},
      {" = Title = \n", 5},
      {"a\t\n b ", 3},
      {"a\xc2\xa0"
       "b",
       2},
      {"a\xe3\x80\x80\xe2\x80\x83 b", 2},
      {"a\x1c"
       "b",
       2},
      {"a\xe2\x80\x8b"
       "b",
       1},  // a zero-width space is none
  };
  for (const auto& [text, words] : cases) EXPECT_EQ(count_words(text), words) << text;
}

TEST(TextTasks, APairIsEncodedTogetherAndSpaceBelongsToWhatFollows) {
  const auto bytes = tokenizer::load_tokenizer("bytes");
  EXPECT_THAT(encode_pair(*bytes, "ab", " c").context, ElementsAre('a', 'b'));
  EXPECT_THAT(encode_pair(*bytes, "ab", " c").target, ElementsAre(' ', 'c'));
  const Continuation moved = encode_pair(*bytes, "ab \n", "c");
  EXPECT_THAT(moved.context, ElementsAre('a', 'b'));
  EXPECT_THAT(moved.target, ElementsAre(' ', '\n', 'c'));
  const Continuation alone = encode_pair(*bytes, "", "c");
  EXPECT_THAT(alone.context, ElementsAre(bytes->end_of_text()));
  EXPECT_THAT(alone.target, ElementsAre('c'));
}

// Bytes, with two tokens of their own before a text.
class FramedBytes : public tokenizer::Tokenizer {
 public:
  std::string_view kind() const override { return "bytes"; }
  tokenizer::TokenId vocabulary_size() const override { return 259; }
  tokenizer::TokenId end_of_text() const override { return 256; }
  void encode(std::string_view text, std::vector<tokenizer::TokenId>& ids) const override {
    for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  }
  std::string_view token_bytes(tokenizer::TokenId) const override { return "?"; }
  const tokenizer::TextFrame& frame() const override { return frame_; }
  void save(const std::filesystem::path&) const override {}
  uint64_t fingerprint() const override { return 0; }

 private:
  const tokenizer::TextFrame frame_{{257, 258}, {}};
};

TEST(TextTasks, AFramedModelReadsTheFramesBegin) {
  const FramedBytes framed;
  constexpr auto kFramed = tokenizer::Framing::kFramed;
  const Continuation pair = encode_pair(framed, "ab", " c", kFramed);
  EXPECT_THAT(pair.context, ElementsAre(257, 258, 'a', 'b'));
  EXPECT_THAT(pair.target, ElementsAre(' ', 'c'));
  EXPECT_THAT(encode_pair(framed, "", "c", kFramed).context, ElementsAre(257, 258));
  EXPECT_THAT(encode_pair(framed, "ab", " c").context, ElementsAre('a', 'b'));
  const Reader reader{.file = "f", .tokenizer = framed, .context = 10, .framing = kFramed};
  const TextTask task = word_perplexity(reader, {"de"});
  EXPECT_THAT(task.questions.at(0).context, ElementsAre(258));
  EXPECT_THAT(task.questions.at(0).target, ElementsAre('d', 'e'));
}

TEST(TextTasks, LastWordsAndTheirErrors) {
  const TaskResult result =
      answer(last_words(bytes_reader(), {{"the a"}, {"of a"}, {"in c"}, {"x a"}}));
  EXPECT_EQ(result.items, 4U);
  EXPECT_DOUBLE_EQ(value_of(result, "acc"), 0.75);
  EXPECT_NEAR(*result.metrics[1].error, std::sqrt(0.75 * 0.25 / 3), 1e-12);
  EXPECT_NEAR(value_of(result, "perplexity"), std::exp((1 + 1 + 3 + 1) / 4.0), 1e-12);
  for (const char* text : {"word", "word ", ""}) {
    try {
      last_words(bytes_reader(), {{"good a"}, {text}});
      FAIL();
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("file.jsonl, item 2: its text has no last word"));
    }
  }
  EXPECT_THROW(last_words(bytes_reader(3), {{"of long"}}), UserError);
}

TEST(TextTasks, ChoicesAreComparedByNatsAndByNatsACharacter) {
  // 'b' costs 2; "cccc" costs 3, less a character; in the second item both agree.
  const TaskResult result =
      answer(multiple_choice(bytes_reader(), {{"q", {"b", "cccc"}, 0}, {"q", {"dd", "a"}, 1}}));
  EXPECT_DOUBLE_EQ(value_of(result, "acc"), 1);
  EXPECT_DOUBLE_EQ(value_of(result, "acc_norm"), 0.5);
}

TEST(TextTasks, PerplexitiesAreThoseOfAllDocumentsTogether) {
  const TaskResult result = answer(word_perplexity(bytes_reader(), {"xa b c", "yb"}));
  EXPECT_EQ(result.items, 2U);
  EXPECT_NEAR(value_of(result, "word_perplexity"), std::exp((1 + 2) / 4.0), 1e-12);
  EXPECT_NEAR(value_of(result, "byte_perplexity"), std::exp((1 + 2) / 8.0), 1e-12);
  EXPECT_NEAR(value_of(result, "bits_per_byte"), (1 + 2) / 8.0 / std::log(2.0), 1e-12);
  const TextTask longer = word_perplexity(bytes_reader(4), {"123456789"});
  EXPECT_EQ(longer.questions.size(), 3U);
}

}  // namespace
}  // namespace ballast::inference
