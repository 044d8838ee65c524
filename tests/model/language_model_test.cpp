// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/language_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/model/model_size.h"
#include "tests/model/gradients_when_told.h"
#include "tests/support/config_of.h"
#include "tests/support/gradient_check.h"
#include "tests/support/lone_worker.h"

namespace ballast::model {
namespace {

using at::Tensor;

config::ModelConfig small() {
  config::ModelConfig config;
  config.vocabulary = 11;
  config.width = 8;
  config.layers = 2;
  config.heads = 2;
  config.hidden = 12;
  config.context = 6;
  return config;
}

struct DoubleModel {
  explicit DoubleModel(const config::ModelConfig& config)
      : model(test::config_of(config), table, test::lone_worker()) {
    table.allocate({.working = at::kDouble, .master = at::kDouble});
    table.initialize(1);
  }
  parameters::ParameterTable table;
  LanguageModel model;
};

TEST(LanguageModel, GradientsOfEveryParameterMatchCentralDifferences) {
  DoubleModel m(small());
  at::manual_seed(2);
  m.table.master().add_(at::randn_like(m.table.master()) * 0.3);  // away from zeros and ones
  const Tensor tokens = at::randint(0, 11, {2, 6}, at::kLong);
  Tensor targets = at::randint(0, 11, {12}, at::kLong);
  targets[4] = -1;
  const double scale = 1.0 / 11;

  const Tensor hidden = m.model.forward(tokens, {});
  const auto result =
      kernels::next_token_losses_and_gradient(hidden, m.model.token_embedding(), targets, scale);
  torch::autograd::backward({hidden}, {result.gradient});

  const auto loss = [&] {
    return scale * kernels::next_token_losses(m.model.forward(tokens, {}),
                                              m.model.token_embedding().value, targets)
                       .sum()
                       .item<double>();
  };
  for (const parameters::Segment& segment : m.table.segments()) {
    test::expect_gradient(m.table.view(m.table.master(), segment),
                          m.table.view(m.table.gradient(), segment), loss, segment.name);
  }
}

TEST(LanguageModel, TellsOfBlocksWhoseGradientsAreDone) {
  config::ModelConfig config = small();
  config.layers = 3;
  DoubleModel m(config);
  test::GradientsWhenTold progress(m.table);
  const Tensor hidden = m.model.forward(at::randint(0, 11, {2, 6}, at::kLong), {}, &progress);
  torch::autograd::backward({hidden}, {at::randn_like(hidden)});
  ASSERT_EQ(progress.told.size(), 3U);
  for (int64_t i = 0; i < 3; ++i) {
    const auto& [block, gradients] = progress.told[static_cast<size_t>(i)];
    EXPECT_EQ(block, 2 - i);
    const std::vector<Tensor> done = progress.from(block);
    ASSERT_EQ(gradients.size(), done.size());
    for (size_t k = 0; k < done.size(); ++k) {
      EXPECT_GT(done[k].abs().max().item<double>(), 0);
      EXPECT_TRUE(at::equal(gradients[k], done[k])) << block;
    }
  }
}

struct PartsInTurn : step::StepWatch {
  void switched(step::StepPart part) override { parts.emplace_back(step::part_name(part)); }
  std::vector<std::string> parts;
};

TEST(LanguageModel, PassesThePartsOfAStepThereAndBack) {
  DoubleModel m(small());
  PartsInTurn watch;
  const Tensor hidden = m.model.forward(at::randint(0, 11, {2, 6}, at::kLong), {.watch = &watch});
  const std::vector<std::string> there{"vocabulary", "attention",    "feed_forward",
                                       "attention",  "feed_forward", "vocabulary"};
  EXPECT_EQ(watch.parts, there);
  watch.parts.clear();
  torch::autograd::backward({hidden}, {at::randn_like(hidden)});
  EXPECT_EQ(watch.parts, std::vector<std::string>(there.rbegin() + 1, there.rend()));
}

TEST(LanguageModel, LooksOnlyBack) {
  DoubleModel m(small());
  const at::NoGradGuard no_grad;
  Tensor tokens = at::randint(0, 11, {1, 6}, at::kLong);
  const Tensor before = m.model.forward(tokens, {});
  tokens[0][4] = (tokens[0][4] + 1) % 11;
  const Tensor after = m.model.forward(tokens, {});
  EXPECT_TRUE(at::equal(before.narrow(0, 0, 4), after.narrow(0, 0, 4)));
  EXPECT_FALSE(at::allclose(before[4], after[4]));
}

TEST(LanguageModel, CacheGivesTheSameAsTheWholeSequence) {
  DoubleModel m(small());
  const at::NoGradGuard no_grad;
  const Tensor tokens = at::randint(0, 11, {3, 6}, at::kLong);
  const Tensor whole = m.model.forward(tokens, {}).view({3, 6, 8});
  KeyValueCache cache(small(), 3, at::kDouble);
  // A prompt of three tokens, then one by one.
  Tensor part = m.model.forward(tokens.narrow(1, 0, 3), {}, cache).view({3, 3, 8});
  EXPECT_LE((part - whole.narrow(1, 0, 3)).abs().max().item<double>(), 1e-12);
  for (int64_t i = 3; i < 6; ++i) {
    part = m.model.forward(tokens.narrow(1, i, 1), {}, cache);
    EXPECT_LE((part - whole.select(1, i)).abs().max().item<double>(), 1e-12) << i;
  }
}

TEST(LanguageModel, CacheRowsMayDifferInLength) {
  DoubleModel m(small());
  const at::NoGradGuard no_grad;
  const Tensor a = at::randint(0, 11, {1, 5}, at::kLong), b = at::randint(0, 11, {1, 3}, at::kLong);
  KeyValueCache both(small(), 2, at::kDouble);
  for (const auto& [row, prompt] : {std::pair(0, a), std::pair(1, b)}) {
    KeyValueCache one = both.emptied_row(row);
    m.model.forward(prompt.narrow(1, 0, prompt.size(1) - 1), {}, one);
  }
  const Tensor last = at::cat({a.narrow(1, 4, 1), b.narrow(1, 2, 1)});  // [2, 1]
  const Tensor together = m.model.forward(last, {}, both);
  EXPECT_LE((together[0] - m.model.forward(a, {})[4]).abs().max().item<double>(), 1e-12);
  EXPECT_LE((together[1] - m.model.forward(b, {})[2]).abs().max().item<double>(), 1e-12);
}

TEST(LanguageModel, SizeCountsWhatTheTableHolds) {
  for (int64_t hidden : {0, 12}) {
    config::Config config = test::config_of(small());
    config.model.hidden = hidden;
    parameters::ParameterTable table;
    const LanguageModel model(config, table, test::lone_worker());
    EXPECT_EQ(model_size(config).shared, table.num_parameters());
    EXPECT_EQ(model_size(config).total, table.num_parameters());
  }
}

TEST(LanguageModel, FreshModelPredictsNearlyUniformly) {
  DoubleModel m(small());
  const Tensor tokens = at::randint(0, 11, {2, 6}, at::kLong);
  const Tensor losses = kernels::next_token_losses(
      m.model.forward(tokens, {}), m.model.token_embedding().value, tokens.view({-1}));
  EXPECT_NEAR(losses.mean().item<double>(), std::log(11.0), 0.1);
}

}  // namespace
}  // namespace ballast::model
