// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/system/random.h"
#include "tests/inference/tokens_of_domains.h"
#include "tests/loading/sparse_model.h"
#include "tests/support/config_of.h"
#include "tests/support/lone_worker.h"

namespace ballast::inference {
namespace {

using batches::EvalWindows;

constexpr int64_t kContext = 8, kVocabulary = 11;

struct SmallModel {
  SmallModel() : model(config(), table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(5);
    table.master().mul_(10);
    RandomStream random(1, "evaluate test");
    for (int i = 0; i < 30; ++i) ids.push_back(static_cast<int64_t>(random.below(kVocabulary)));
    source =
        tokens::tokens_in_memory(ids, {.name = "test", .format = "memory", .source_bytes = 60});
  }

  static config::Config config() {
    config::Config config;
    config.model = {
        .vocabulary = kVocabulary, .width = 8, .layers = 1, .heads = 2, .context = kContext};
    return config;
  }

  // -log p of token `i` given the `before` tokens that stand before it.
  double loss_of(int64_t i, int64_t before) const {
    const at::NoGradGuard no_grad;
    const std::vector<int64_t> seen(ids.begin() + i - before, ids.begin() + i);
    const at::Tensor logits =
        model.logits(model.forward(at::tensor(seen, at::kLong).unsqueeze(0), {}))[-1];
    return -at::log_softmax(logits, 0)[ids[static_cast<size_t>(i)]].item<double>();
  }

  parameters::ParameterTable table;
  model::LanguageModel model;
  model::ComputePlace place{.working = at::kDouble, .master = at::kDouble};
  std::vector<int64_t> ids;
  std::shared_ptr<tokens::TokenSource> source;
};

// The sum over all tokens but the first, each with the context its window gives it.
double expected_sum(const SmallModel& s, int64_t stride) {
  double sum = 0;
  for (int64_t i = 1; i < static_cast<int64_t>(s.ids.size()); ++i) {
    const int64_t target = i - 1;  // its place among the predictions
    const int64_t window = target < kContext ? 0 : (target - kContext) / stride + 1;
    sum += s.loss_of(i, i - window * stride);
  }
  return sum;
}

TEST(Evaluate, EqualsOneTokenAtATimeForAnyStrideAndBatch) {
  const SmallModel s;
  for (const int64_t stride : {8, 5, 1}) {
    const double expected = expected_sum(s, stride) / 29;
    for (const int64_t batch : {1, 3, 100}) {
      const EvalWindows windows(s.source, kContext, stride);
      const Evaluation result = evaluate(s.model, s.place, windows, {batch, 0});
      EXPECT_NEAR(result.loss, expected, 1e-12) << "stride " << stride << " batch " << batch;
      EXPECT_EQ(result.tokens, 29U);
      EXPECT_NEAR(result.perplexity, std::exp(expected), 1e-9);
      ASSERT_TRUE(result.bits_per_byte);
      EXPECT_NEAR(*result.bits_per_byte, expected * 29 / std::log(2.0) / 60, 1e-12);
    }
  }
}

// What fills up the last window takes no part: 29 tokens for 4 experts, in one batch.
TEST(Evaluate, BalancedRoutingBalancesTheTokensOfTheTextAlone) {
  const SmallModel dense;
  config::Config config = test::config_of(dense.model.config());
  config.experts.layers = 1;
  config.experts.count = 4;
  config.experts.sublayers = 1;
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, test::lone_worker());
  table.allocate({.working = at::kDouble, .master = at::kDouble});
  table.initialize(5);
  for (const int64_t stride : {8, 5}) {
    const EvalWindows windows(dense.source, kContext, stride);
    const Evaluation result = evaluate(model, dense.place, windows,
                                       {.batch = 100, .routing = experts::RoutingMode::kBalanced});
    ASSERT_EQ(result.experts.size(), 1U);
    EXPECT_EQ(result.experts[0].total(), 29);
    if (stride == 8) {
      EXPECT_THAT(result.experts[0].loads(), testing::Each(testing::AnyOf(7, 8)));
    }
  }
}

TEST(Evaluate, APartOfTheWindowsIsSpreadOverTheSource) {
  const SmallModel s;
  const EvalWindows windows(s.source, kContext, kContext);
  const Evaluation some = evaluate(s.model, s.place, windows, {1, 2});
  EXPECT_EQ(some.tokens, 13U) << "of 4 windows the second has 8 targets, the last 5";
  EXPECT_EQ(some.windows, 2U);
  EXPECT_EQ(some.split_windows, 4U);
  EXPECT_EQ(some.split_tokens, 29U);
  EXPECT_FALSE(some.is_whole_split());
  EXPECT_EQ(extent_in_words(some), "13 of the split's 29 tokens");
  const Evaluation all = evaluate(s.model, s.place, windows, {3, 0});
  EXPECT_EQ(all.windows, 4U);
  EXPECT_TRUE(all.is_whole_split());
  EXPECT_EQ(extent_in_words(all), "the whole split, 29 tokens");
  EXPECT_FALSE(some.bits_per_byte) << "not all of the text was read";
}

TEST(Evaluate, TheBatchIsThatOfAMicroStepUpToSomeTokens) {
  config::Config config;
  config.model.context = 256;
  config.training.batch = 12;
  EXPECT_EQ(evaluation_batch(config), 12);
  config.training.micro_steps = 3;
  EXPECT_EQ(evaluation_batch(config), 4);
  config.training.batch = 512;
  EXPECT_EQ(evaluation_batch(config), 8192 / 256);
  config.model.context = 16384;
  EXPECT_EQ(evaluation_batch(config), 1);
}

TEST(Evaluate, APartReachesTheEndWhateverTheNumbers) {
  const SmallModel s;
  const auto loss_with_last =
      [&](int64_t last) {  // a token that only the last of 100 windows holds
        std::vector<int64_t> ids(100 * kContext + 1, 3);
        ids.back() = last;
        const std::shared_ptr<tokens::TokenSource> tokens =
            tokens::tokens_in_memory(ids, {.name = "test", .format = "memory"});
        return evaluate(s.model, s.place, EvalWindows(tokens, kContext, kContext), {8, 64}).loss;
      };
  EXPECT_NE(loss_with_last(3), loss_with_last(4));
}

// A BASE model's loss over windows side by side, one token at a time.
double loss_token_by_token(const test::SparseModel& m, const std::vector<int64_t>& ids,
                           experts::RoutingMode mode) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  const int64_t context = m.config.model.context;
  for (int64_t i = 1; i < std::ssize(ids); ++i) {
    const int64_t begin = (i - 1) / context * context;
    const std::vector<int64_t> seen(ids.begin() + begin, ids.begin() + i);
    const at::Tensor hidden =
        m.model.forward(at::tensor(seen, at::kLong).unsqueeze(0), {.mode = mode});
    sum -=
        at::log_softmax(m.model.logits(hidden)[-1], 0)[ids[static_cast<size_t>(i)]].item<double>();
  }
  return sum / static_cast<double>(ids.size() - 1);
}

std::vector<int64_t> all_of(const tokens::TokenSource& source) {
  std::vector<int64_t> ids(source.size());
  source.read(0, ids);
  return ids;
}

TEST(Evaluate, RoutesAsItIsTold) {
  const test::SparseModel m(test::sparse_config(8));
  const auto source = test::random_tokens(60, 13);
  const EvalWindows windows(source, 8, 8);
  std::vector<double> losses;
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    const double expected = loss_token_by_token(m, all_of(*source), mode);
    for (const int64_t batch : {1, 3, 100}) {
      const Evaluation result =
          evaluate(m.model, m.place, windows, {.batch = batch, .routing = mode});
      EXPECT_NEAR(result.loss, expected, 1e-12)
          << experts::routing_name(mode) << ", batches of " << batch;
    }
    losses.push_back(expected);
  }
  EXPECT_GT(std::abs(losses[0] - losses[1]), 1e-3) << "prices decide";
}

TEST(Evaluate, CountsWhatEveryLayerDidWithThePredictedTokensInputs) {
  const test::SparseModel m(test::sparse_config(8));
  const auto source = test::random_tokens(65, 13);
  const std::vector<int64_t> equal(4, 16);
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kBalanced}) {
    const EvaluationOptions options{.batch = 4, .routing = mode};
    const Evaluation result = evaluate(m.model, m.place, EvalWindows(source, 8, 8), options);
    ASSERT_EQ(result.experts.size(), 2U);
    for (const ExpertUse& use : result.experts) {
      EXPECT_EQ(use.total(), 64);
      EXPECT_EQ(use.loads() == equal, mode == experts::RoutingMode::kBalanced);
    }
    const Evaluation overlapping = evaluate(m.model, m.place, EvalWindows(source, 8, 5), options);
    EXPECT_EQ(overlapping.experts.front().total(), 64) << "inputs that were read again count once";
  }
}

// The loss of each token one at a time, with the context its window gives it, by its own domain.
TEST(Evaluate, LossesOfDomainsAreThoseOfTheirTokens) {
  const SmallModel s;
  std::vector<int32_t> domains;
  for (size_t i = 0; i < s.ids.size(); ++i)
    domains.push_back(i < 20 ? static_cast<int32_t>(i / 6 % 2) : 3);
  domains[7] = -1;
  const auto source = std::make_shared<test::TokensOfDomains>(
      s.ids, domains, std::vector<std::string>{"law", "code", "none", "news"});
  for (const int64_t stride : {8, 5, 1}) {
    std::vector<double> sums(4), tokens(4);
    double unknown = 0;
    for (int64_t i = 1; i < std::ssize(s.ids); ++i) {
      const int64_t window = i - 1 < kContext ? 0 : (i - 1 - kContext) / stride + 1;
      const double loss = s.loss_of(i, i - window * stride);
      const int32_t domain = domains[static_cast<size_t>(i)];
      (domain < 0 ? unknown : sums[static_cast<size_t>(domain)]) += loss;
      if (domain >= 0) tokens[static_cast<size_t>(domain)] += 1;
    }
    for (const int64_t batch : {1, 3}) {
      const Evaluation result =
          evaluate(s.model, s.place, EvalWindows(source, kContext, stride), {.batch = batch});
      ASSERT_EQ(result.domains.size(), 4U);
      double weighted = unknown;
      for (size_t i = 0; i < 4; ++i) {
        const DomainLoss& domain = result.domains[i];
        EXPECT_EQ(domain.name, source->domains()[i]);
        EXPECT_EQ(domain.tokens, static_cast<uint64_t>(tokens[i]));
        EXPECT_NEAR(domain.loss, tokens[i] > 0 ? sums[i] / tokens[i] : 0, 1e-12);
        weighted += domain.loss * static_cast<double>(domain.tokens);
      }
      EXPECT_NEAR(weighted / 29, result.loss, 1e-12) << "they are parts of the whole";
    }
  }
  EXPECT_TRUE(evaluate(s.model, s.place, EvalWindows(s.source, kContext, 8), {}).domains.empty());
}

// Counted again from the routes of each window alone.
TEST(Evaluate, CountsTheTokensBeforeThoseOfAnExpert) {
  const test::SparseModel m(test::sparse_config(8));
  const auto source = test::in_three_domains(*test::random_tokens(61, 13));
  for (const int64_t stride : {8, 5}) {
    const EvalWindows windows(source, 8, stride);
    std::vector<ExpertUse> expected(2, ExpertUse(4, 13, {}));
    for (uint64_t window = 0; window < windows.size(); ++window) {
      const batches::Batch batch = windows.at(window, 1);
      const auto count = [&](const experts::SeenRoute& route) {
        const size_t layer = route.layer == m.model.expert_layers()[0]->place() ? 0 : 1;
        for (size_t i = 1; i < 8; ++i) {
          const int32_t expert = route.expert_of_token[static_cast<int64_t>(i)].item<int32_t>();
          if (batch.targets[i] >= 0)
            expected[layer].add({&batch.inputs[i - 1], 1}, {}, {&expert, 1}, {});
        }
      };
      const at::NoGradGuard no_grad;
      m.model.forward(at::tensor(batch.inputs, at::kLong).view({1, 8}), {.seen = count});
    }
    const Evaluation result =
        evaluate(m.model, m.place, windows, {.batch = 3, .previous_tokens = true});
    ASSERT_EQ(result.previous_tokens.size(), 2U);
    for (size_t layer = 0; layer < 2; ++layer) {
      EXPECT_THAT(result.previous_tokens[layer].counts(),
                  testing::ElementsAreArray(expected[layer].counts()));
      const int64_t firsts = stride == 8 ? static_cast<int64_t>(windows.size()) : 1;
      EXPECT_EQ(result.previous_tokens[layer].total(), 60 - firsts) << "a window's first has none";
    }
    EXPECT_TRUE(evaluate(m.model, m.place, windows, {}).previous_tokens.empty());
  }
}

TEST(Evaluate, StopsWhenAskedAndTellsOfWhatItRead) {
  const SmallModel s;
  const EvalWindows windows(s.source, kContext, kContext);
  std::vector<uint64_t> told;
  const Evaluation result = evaluate(s.model, s.place, windows, {.batch = 2}, [&](uint64_t count) {
    told.push_back(count);
    return false;
  });
  EXPECT_EQ(told, std::vector<uint64_t>{2});
  EXPECT_EQ(result.tokens, 16U);
  EXPECT_FALSE(result.bits_per_byte);
}

// Routes of the first layer read the same features, whatever decides them.
TEST(Evaluate, TellsInHowManyDirectionsScoresVary) {
  const test::SparseModel m(test::sparse_config(8));
  const batches::EvalWindows windows(test::random_tokens(60, 13), 8, 8);
  std::vector<double> shares;
  for (const experts::RoutingMode mode :
       {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
    for (const int64_t batch : {1, 100}) {
      const Evaluation result =
          evaluate(m.model, m.place, windows, {.batch = batch, .routing = mode});
      ASSERT_EQ(result.first_direction_shares.size(), 2U);
      shares.push_back(result.first_direction_shares[0]);
    }
  }
  EXPECT_GT(shares[0], 1.0 / 3);
  EXPECT_LT(shares[0], 1);
  EXPECT_THAT(shares, testing::Each(testing::DoubleNear(shares[0], 1e-6)));  // scores are fp32
}

}  // namespace
}  // namespace ballast::inference
