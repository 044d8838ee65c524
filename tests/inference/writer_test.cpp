// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <stdexcept>

#include "tests/inference/slow_writing.h"
#include "tests/loading/sparse_model.h"

namespace ballast::inference {
namespace {

using test::SparseModel;
using tokenizer::TokenId;

constexpr TokenId kEnd = 10;

// What a writer told of a text.
struct Told {
  std::vector<WrittenToken> written;
  std::optional<WritingEnd> end;
  std::vector<TokenId> tokens() const {
    std::vector<TokenId> ids;
    for (const WrittenToken& token : written) ids.push_back(token.chosen.token);
    return ids;
  }
};

Writing greedy(std::vector<TokenId> text, int64_t max_tokens) {
  return {.text = std::move(text),
          .max_tokens = max_tokens,
          .sampling = {.temperature = 0},
          .stop_at_end_of_text = false,
          .likeliest = 0};
}

std::shared_ptr<Told> add(Writer& writer, Writing writing) {
  auto told = std::make_shared<Told>();
  writing.on_token = [told](const WrittenToken& token) {
    EXPECT_FALSE(told->end);
    told->written.push_back(token);
    return true;
  };
  writing.on_end = [told](WritingEnd end) {
    EXPECT_FALSE(told->end);
    told->end = end;
  };
  writer.add(std::move(writing));
  return told;
}

Writing with_reading(Writing writing, std::vector<WrittenToken>& read) {
  writing.on_read = [&read](const std::vector<WrittenToken>& likelihoods) { read = likelihoods; };
  return writing;
}

int64_t finish(Writer& writer) {
  int64_t steps = 0;
  while (writer.step()) ++steps;
  return steps;
}

Writer writer_of(const SparseModel& m, int64_t rows) {
  return {m.model, m.place, kEnd, experts::RoutingMode::kGreedy, rows};
}

TEST(Writer, TextsThatComeAndGoAreThoseWrittenSlowly) {
  const SparseModel m(test::sparse_config(8));
  Writer writer = writer_of(m, 3);
  const std::vector<std::vector<TokenId>> texts = {
      {kEnd}, {1, 2, 3}, {4, 5, 6, 7, 8, 9, 0, 1, 2, 3}, {7, 7}, {1, 2, 3, 4, 5, 6, 7, 8}, {3}};
  const int64_t counts[] = {30, 3, 12, 1, 9, 20};
  std::vector<std::shared_ptr<Told>> told;
  for (size_t i = 0; i < texts.size(); ++i) {
    told.push_back(add(writer, greedy(texts[i], counts[i])));
    if (i > 0) writer.step();  // the last ones wait for a row
  }
  finish(writer);
  for (size_t i = 0; i < texts.size(); ++i) {
    const test::SlowText slow = test::write_slowly(m.model, texts[i], counts[i]);
    EXPECT_EQ(told[i]->tokens(), slow.tokens) << i;
    EXPECT_EQ(told[i]->end, WritingEnd::kLength) << i;
    for (size_t j = 0; j < slow.tokens.size(); ++j) {
      // fp32 of the logits and of their exponentials' sum
      EXPECT_NEAR(told[i]->written[j].chosen.logprob,
                  slow.logprobs[j][slow.tokens[j]].item<double>(), 3e-6);
    }
  }
  EXPECT_FALSE(writer.step()) << "nothing is left";
}

TEST(Writer, TellsTheLikeliestTokensFalling) {
  const SparseModel m;
  Writer writer = writer_of(m, 1);
  Writing writing = greedy({1, 2}, 2);
  writing.likeliest = 4;
  const auto told = add(writer, std::move(writing));
  finish(writer);
  const test::SlowText slow = test::write_slowly(m.model, {1, 2}, 2);
  ASSERT_EQ(told->written.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const auto [logprobs, ids] = slow.logprobs[i].topk(4);
    ASSERT_EQ(told->written[i].likeliest.size(), 4U);
    for (int64_t j = 0; j < 4; ++j) {
      const Likelihood& likely = told->written[i].likeliest[static_cast<size_t>(j)];
      EXPECT_EQ(static_cast<int64_t>(likely.token), ids[j].item<int64_t>());
      EXPECT_NEAR(likely.logprob, logprobs[j].item<double>(), 3e-6);
    }
  }
}

// Log p of text[1..] as rolling_windows has it: by all that stands before, or in the last context.
void expect_reading(const SparseModel& m, const std::vector<TokenId>& text,
                    const std::vector<WrittenToken>& read, int64_t context) {
  ASSERT_EQ(read.size(), text.size() - 1);
  for (size_t i = 1; i < text.size(); ++i) {
    EXPECT_EQ(read[i - 1].chosen.token, text[i]);
    const auto first = i <= static_cast<size_t>(context) ? text.begin() : text.end() - context - 1;
    const std::vector<TokenId> before(first, text.begin() + static_cast<std::ptrdiff_t>(i));
    const test::SlowText slow = test::write_slowly(m.model, before, 1);
    EXPECT_NEAR(read[i - 1].chosen.logprob, slow.logprobs[0][text[i]].item<double>(), 3e-6) << i;
  }
}

TEST(Writer, TellsHowLikelyTheTextItReadIs) {
  const SparseModel m(test::sparse_config(8));
  Writer writer = writer_of(m, 2);
  const std::vector<std::vector<TokenId>> texts = {
      {5}, {1, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2}};
  std::vector<std::vector<WrittenToken>> read(texts.size());
  std::vector<std::shared_ptr<Told>> told;
  for (size_t i = 0; i < texts.size(); ++i)
    told.push_back(add(writer, with_reading(greedy(texts[i], static_cast<int64_t>(i)), read[i])));
  finish(writer);
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(i);
    expect_reading(m, texts[i], read[i], 8);
    EXPECT_EQ(told[i]->tokens(),
              test::write_slowly(m.model, texts[i], static_cast<int64_t>(i)).tokens);
    EXPECT_EQ(told[i]->end, WritingEnd::kLength);
  }
}

TEST(Writer, ATextEndsWhereItIsTold) {
  const SparseModel m;
  Writer writer = writer_of(m, 4);
  Writing ends{.text = {kEnd}, .max_tokens = 1000, .seed = 2};
  const auto ended = add(writer, ends);
  Writing stops = greedy({1}, 100);
  std::optional<WritingEnd> end;
  int count = 0;
  stops.on_token = [&](const WrittenToken&) { return ++count < 7; };
  stops.on_end = [&](WritingEnd how) { end = how; };
  writer.add(stops);
  Writing unwanted = greedy({1}, 100);
  unwanted.is_wanted = [] { return false; };
  const auto never = add(writer, unwanted);
  finish(writer);
  EXPECT_EQ(ended->end, WritingEnd::kEndOfText);
  EXPECT_LT(ended->written.size(), 1000U);
  EXPECT_THAT(ended->tokens(), ::testing::Not(::testing::Contains(kEnd)));
  EXPECT_EQ(end, WritingEnd::kStopped);
  EXPECT_EQ(count, 7);
  EXPECT_EQ(never->end, WritingEnd::kStopped);
  EXPECT_TRUE(never->written.empty());
}

TEST(Writer, ATextThatEndsMayAddAnother) {
  const SparseModel m;
  Writer writer = writer_of(m, 1);
  std::shared_ptr<Told> next;
  Writing first = greedy({1}, 2);
  first.on_end = [&](WritingEnd) { next = add(writer, greedy({2}, 3)); };
  writer.add(std::move(first));
  finish(writer);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->tokens(), test::write_slowly(m.model, {2}, 3).tokens);
}

TEST(Writer, RefusesWhatTheModelCannotRead) {
  const SparseModel m;
  Writer writer = writer_of(m, 1);
  EXPECT_THROW(writer.add({.text = {}}), std::invalid_argument);
  EXPECT_THROW(writer.add({.text = {1, 13}}), std::invalid_argument);
  EXPECT_FALSE(writer.step());
}

TEST(LikelihoodOf, IsTheLogOfTheSoftmax) {
  const std::vector<float> logits = {1, 3, 3, -INFINITY, 2};
  const WrittenToken token = likelihood_of(4, logits, 9);
  const double sum = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  EXPECT_NEAR(token.chosen.logprob, 2 - sum, 1e-6);  // fp32
  std::vector<TokenId> order;
  for (const Likelihood& likely : token.likeliest) order.push_back(likely.token);
  EXPECT_EQ(order, (std::vector<TokenId>{1, 2, 4, 0, 3})) << "ties go to the lower id";
}

}  // namespace
}  // namespace ballast::inference
