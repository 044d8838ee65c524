// SPDX-License-Identifier: Apache-2.0
// What a text gets does not depend, to the bit, on the texts beside it.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <string>

#include "ballast/inference/writer.h"
#include "ballast/kernels/cuda_plugin.h"
#include "tests/loading/sparse_model.h"
#include "tests/support/decoder_variants.h"

namespace ballast::inference {
namespace {

using experts::RoutingMode;
using test::SparseModel;
using tokenizer::TokenId;

// Tokens and the bits of all logprobs: of the text that was read, and of what was written.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> bits;
  bool ended = false;
  bool operator==(const Answer&) const = default;
};

void note(const WrittenToken& token, Answer& answer) {
  answer.tokens.push_back(token.chosen.token);
  answer.bits.push_back(std::bit_cast<uint32_t>(token.chosen.logprob));
  for (const Likelihood& likely : token.likeliest) {
    answer.tokens.push_back(likely.token);
    answer.bits.push_back(std::bit_cast<uint32_t>(likely.logprob));
  }
}

struct Question {
  std::vector<TokenId> text;
  int64_t max_tokens;
  uint64_t seed;
};

void add(Writer& writer, const Question& question, Answer& answer) {
  Writing writing{.text = question.text,
                  .max_tokens = question.max_tokens,
                  .seed = question.seed,
                  .stop_at_end_of_text = false,
                  .likeliest = 2};
  writing.on_read = [&answer](const std::vector<WrittenToken>& read) {
    for (const WrittenToken& token : read) note(token, answer);
  };
  writing.on_token = [&answer](const WrittenToken& token) {
    note(token, answer);
    return true;
  };
  writing.on_end = [&answer](WritingEnd) { answer.ended = true; };
  writer.add(std::move(writing));
}

const Question kAsked{{1, 2, 3, 4}, 30, 7};  // beyond the context

// Eight, all different.
std::vector<Question> others() {
  std::vector<Question> all;
  for (uint64_t i = 0; i < 8; ++i) {
    const std::vector<TokenId> text(i % 5 + 1, static_cast<TokenId>(i));
    all.push_back({text, static_cast<int64_t>(3 + 4 * i), i});
  }
  return all;
}

// The answer beside `before` texts that came earlier, of which `steps` tokens are written, and the
// others after it.
Answer answer_among(const SparseModel& m, RoutingMode routing, int64_t rows, size_t before,
                    size_t after, int steps) {
  Writer writer(m.model, m.place, 0, routing, rows);
  std::vector<Answer> beside(8);
  Answer answer;
  const std::vector<Question> questions = others();
  for (size_t i = 0; i < before; ++i) add(writer, questions[i], beside[i]);
  for (int i = 0; i < steps; ++i) writer.step();
  add(writer, kAsked, answer);
  for (size_t i = before; i < before + after; ++i) add(writer, questions[i], beside[i]);
  while (writer.step()) {
  }
  EXPECT_TRUE(answer.ended);
  return answer;
}

void expect_alone(const SparseModel& m, RoutingMode routing) {
  const Answer alone = answer_among(m, routing, 1, 0, 0, 0);
  EXPECT_EQ(alone.tokens.size(), (kAsked.text.size() - 1 + 30) * 3);
  EXPECT_EQ(answer_among(m, routing, 8, 0, 0, 0), alone) << "one of eight rows";
  EXPECT_EQ(answer_among(m, routing, 8, 0, 7, 0), alone) << "first of eight";
  EXPECT_EQ(answer_among(m, routing, 8, 7, 0, 0), alone) << "last of eight";
  EXPECT_EQ(answer_among(m, routing, 8, 3, 4, 5), alone) << "when others have begun";
  EXPECT_EQ(answer_among(m, routing, 2, 4, 4, 2), alone) << "when a row became free";
}

config::Config with_router(const std::string& router) {
  config::Config config = test::sparse_config(16);
  config.experts.router = router;
  if (router == "dense") config.experts = {};
  return config;
}

class WriterAlone : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, WriterAlone, ::testing::Values(at::kFloat, at::kDouble));

TEST_P(WriterAlone, DenseModels) {
  expect_alone(SparseModel(with_router("dense"), GetParam()), RoutingMode::kGreedy);
}

TEST_P(WriterAlone, BaseModels) {
  const SparseModel m(with_router("base"), GetParam());
  expect_alone(m, RoutingMode::kGreedy);
  expect_alone(m, RoutingMode::kPriced);
}

TEST_P(WriterAlone, SwitchAndSparselyGatedModels) {
  for (const char* router : {"switch", "sparsely_gated"})
    expect_alone(SparseModel(with_router(router), GetParam()), RoutingMode::kGreedy);
}

TEST_P(WriterAlone, ModernDecoders) {
  for (const auto& [name, change] : test::decoder_variants()) {
    SCOPED_TRACE(name);
    config::Config config = with_router("dense");
    change(config);
    expect_alone(SparseModel(config, GetParam()), RoutingMode::kGreedy);
  }
}

// Longer than what is read at a time.
TEST(WriterAloneWithLongTexts, ReadsThemInPartsBesideOthers) {
  config::Config config = test::sparse_config(800);
  const SparseModel m(config, at::kFloat);
  std::vector<TokenId> text;
  for (uint32_t i = 0; i < 700; ++i) text.push_back(static_cast<TokenId>(i * i % 13));
  const auto answer_beside = [&](size_t others_before) {
    Writer writer(m.model, m.place, 0, RoutingMode::kGreedy, 8);
    std::vector<Answer> beside(others_before);
    Answer answer;
    for (size_t i = 0; i < others_before; ++i) add(writer, others()[i], beside[i]);
    add(writer, {text, 3, 7}, answer);
    while (writer.step()) {
    }
    return answer;
  };
  const Answer alone = answer_beside(0);
  EXPECT_EQ(alone.tokens.size(), (699 + 3) * 3);
  EXPECT_EQ(answer_beside(5), alone);
}

TEST(WriterAloneOnTwoThreads, DividesProductsAmongThem) {
  config::Config config = with_router("base");
  config.model.width = 64;
  config.model.vocabulary = 3001;  // products that are worth two threads
  const SparseModel m(config, at::kFloat);
  at::set_num_threads(2);
  const Answer alone = answer_among(m, RoutingMode::kGreedy, 1, 0, 0, 0);
  EXPECT_EQ(answer_among(m, RoutingMode::kGreedy, 8, 3, 4, 5), alone);
  at::set_num_threads(1);
}

// Sizes are the same whoever asks: of a dense model nothing but the other rows' values changes.
TEST(WriterAloneCuda, ADenseModelAnswersInTheSameRowWhoeverElseAsks) {
  ASSERT_TRUE(kernels::load_cuda_plugin().loaded);
  const at::Device device(at::kCUDA, 0);
  const config::Config config = with_router("dense");
  parameters::ParameterTable table;
  const model::LanguageModel language_model(config, table, test::lone_worker());
  table.allocate({.device = device, .working = at::kBFloat16, .master = at::kFloat});
  table.initialize(5);
  const model::ComputePlace place{.device = device, .working = at::kBFloat16, .master = at::kFloat};
  std::vector<Answer> answers(2);
  for (const size_t beside : {size_t{0}, size_t{7}}) {
    Writer writer(language_model, place, 0, RoutingMode::kGreedy, 8);
    std::vector<Answer> ignored(8);
    add(writer, kAsked, answers[beside > 0]);
    for (size_t i = 0; i < beside; ++i) add(writer, others()[i], ignored[i]);
    while (writer.step()) {
    }
  }
  EXPECT_TRUE(answers[0].ended);
  EXPECT_EQ(answers[1], answers[0]);
}

}  // namespace
}  // namespace ballast::inference
