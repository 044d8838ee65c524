// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/generate.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "ballast/system/random.h"
#include "tests/inference/slow_writing.h"
#include "tests/loading/sparse_model.h"
#include "tests/support/lone_worker.h"

namespace ballast::inference {
namespace {

using tokenizer::TokenId;

constexpr TokenId kEnd = 10;

struct DoubleModel {
  explicit DoubleModel(int64_t context) : model(config(context), table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(5);
    table.master().mul_(20);  // opinions strong enough to tell tokens apart
  }
  static config::Config config(int64_t context) {
    config::Config config;
    config.model = {.vocabulary = 11, .width = 8, .layers = 2, .heads = 2, .context = context};
    return config;
  }
  parameters::ParameterTable table;
  model::LanguageModel model;
  model::ComputePlace place{.working = at::kDouble, .master = at::kDouble};
};

// As the program writes: end-of-text before the prompt.
std::vector<TokenId> generate_slowly(const model::LanguageModel& model, std::vector<TokenId> prompt,
                                     int64_t count, const experts::Routing& routing = {}) {
  prompt.insert(prompt.begin(), kEnd);
  return test::write_slowly(model, prompt, count, routing).tokens;
}

const GenerationOptions kGreedy{
    .max_tokens = 12, .sampling = {.temperature = 0}, .seed = 1, .stop_at_end_of_text = false};

TEST(Generate, CachedTextEqualsTheSlowOne) {
  const DoubleModel m(32);
  const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {}, {4, 5, 6, 7, 8, 9, 0, 1}};
  const auto written = generate(m.model, m.place, kEnd, prompts, kGreedy);
  for (size_t p = 0; p < prompts.size(); ++p)
    EXPECT_EQ(written[p], generate_slowly(m.model, prompts[p], 12)) << p;
}

TEST(Generate, GoesOnWhenTheContextIsFull) {
  const DoubleModel m(8);
  GenerationOptions options = kGreedy;
  options.max_tokens = 50;
  const std::vector<std::vector<TokenId>> prompts = {
      {1, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}, {1, 2, 3, 4, 5, 6, 7}};  // one fills it
  const auto written = generate(m.model, m.place, kEnd, prompts, options);
  for (size_t p = 0; p < prompts.size(); ++p)
    EXPECT_EQ(written[p], generate_slowly(m.model, prompts[p], 50)) << p;
}

TEST(Generate, CachedTextOfABaseModelEqualsTheSlowOne) {
  const test::SparseModel m(test::sparse_config(8));
  const std::vector<std::vector<TokenId>> prompts = {{1, 2, 3}, {}, {4, 5, 6, 7, 8, 9, 0, 1, 2}};
  GenerationOptions options = kGreedy;
  options.max_tokens = 30;
  std::vector<std::vector<std::vector<TokenId>>> texts;
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    options.routing = mode;
    texts.push_back(generate(m.model, m.place, kEnd, prompts, options));
    for (size_t p = 0; p < prompts.size(); ++p)
      EXPECT_EQ(texts.back()[p], generate_slowly(m.model, prompts[p], 30, {.mode = mode})) << p;
  }
  EXPECT_NE(texts[0], texts[1]) << "prices decide";
}

TEST(Generate, StopsAtEndOfTextAndOnRequest) {
  const DoubleModel m(32);
  GenerationOptions options{.max_tokens = 400, .seed = 2};
  const auto ended = generate(m.model, m.place, kEnd, {{1}}, options);
  EXPECT_LT(ended[0].size(), 400U);
  EXPECT_THAT(ended[0], ::testing::Not(::testing::Contains(kEnd)));
  options.stop_at_end_of_text = false;
  int count = 0;
  const auto stopped = generate(m.model, m.place, kEnd, {{1}}, options,
                                [&](size_t, TokenId) { return ++count < 7; });
  EXPECT_EQ(stopped[0].size(), 7U);
}

TEST(Generate, SeedsDecide) {
  const DoubleModel m(32);
  GenerationOptions options{.max_tokens = 30, .seed = 2, .stop_at_end_of_text = false};
  const auto first = generate(m.model, m.place, kEnd, {{1}}, options),
             again = generate(m.model, m.place, kEnd, {{1}}, options);
  EXPECT_EQ(first, again);
  options.seed = 3;
  EXPECT_NE(first, generate(m.model, m.place, kEnd, {{1}}, options));
}

TEST(SampleToken, FollowsTheDistribution) {
  const std::vector<float> logits = {0, std::log(2.0F), -INFINITY, std::log(5.0F)};
  std::map<int64_t, int> counts;
  RandomStream random(1, "sampling test");
  for (int i = 0; i < 80000; ++i) ++counts[sample_token(logits, {}, random.uniform())];
  EXPECT_NEAR(counts[0], 10000, 500);  // five standard deviations
  EXPECT_NEAR(counts[1], 20000, 650);
  EXPECT_EQ(counts.count(2), 0U);
  EXPECT_NEAR(counts[3], 50000, 700);
}

TEST(SampleToken, KeepsTheLikeliest) {
  const std::vector<float> logits = {1, 3, 3, 2};
  const auto reached = [&](const SamplingOptions& options) {
    std::set<int64_t> ids;
    for (int i = 0; i < 1000; ++i) ids.insert(sample_token(logits, options, i / 1000.0));
    return ids;
  };
  EXPECT_EQ(reached({.temperature = 0}), (std::set<int64_t>{1})) << "ties go to the lower id";
  EXPECT_EQ(reached({.top_k = 1}), (std::set<int64_t>{1}));
  EXPECT_EQ(reached({.top_k = 3}), (std::set<int64_t>{1, 2, 3}));
  EXPECT_EQ(reached({.top_p = 0.5}), (std::set<int64_t>{1, 2})) << "one alone has 0.40";
  EXPECT_EQ(reached({.top_p = 0}), (std::set<int64_t>{1})) << "at least one is kept";
  EXPECT_EQ(reached({.top_k = 99, .top_p = 1}), (std::set<int64_t>{0, 1, 2, 3}));
  EXPECT_THROW(sample_token(std::vector<float>{NAN, INFINITY}, {}, 0.5), std::invalid_argument);
}

}  // namespace
}  // namespace ballast::inference
