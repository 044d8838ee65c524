// SPDX-License-Identifier: Apache-2.0
#include "ballast/studio/experiments/systems.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ballast/config/system_words.h"
#include "ballast/model/model_size.h"

namespace ballast::experiments {
namespace {

using config::Config;

// What experiments take on a GPU.
Config blocks_of(int64_t layers, int64_t width, int64_t heads) {
  Config config;
  config.model = {
      .vocabulary = 16384, .width = width, .layers = layers, .heads = heads, .context = 256};
  return config;
}

double flops_ratio(const Config& a, const Config& b) {
  return model::model_size(a).flops_per_token / model::model_size(b).flops_per_token;
}

TEST(Systems, BaseXNDividesItsSublayersAmongLayers) {
  const Config blocks = blocks_of(4, 256, 4);
  const Config one = base_system(blocks, 8, 1, 3), three = base_system(blocks, 8, 3, 1);
  EXPECT_EQ(model::model_size(one).per_expert, model::model_size(three).per_expert);
  EXPECT_EQ(config::system_in_words(one), "BASE x1");
  EXPECT_EQ(config::system_in_words(three), "BASE x3");
  EXPECT_EQ(config::system_in_words(base_top_system(blocks, 8, 3)), "BASE Top");
}

TEST(Systems, GatesStandInEveryOtherFeedForwardOrDeepInTheMiddle) {
  const Config blocks = blocks_of(4, 256, 4);
  EXPECT_EQ(config::system_in_words(gated_system(blocks, "switch", 8)),
            "Switch in every other feed-forward");
  const Config deep = deep_gated_system(blocks, "sparsely_gated", 8, 3);
  EXPECT_THAT(deep.experts.places(4), testing::ElementsAre(2));
  EXPECT_EQ(model::model_size(deep).per_expert,
            model::model_size(base_system(blocks, 8, 1, 3)).per_expert);
}

TEST(Systems, KnobsThatAGateRefusesDoNotReachIt) {
  Config blocks = blocks_of(4, 256, 4);
  blocks.experts.solver = config::TrainingSolver::kAuction;
  blocks.experts.test_routing = config::TestRouting::kPriced;
  EXPECT_NO_THROW(config::check_config(gated_system(blocks, "switch", 8)));
  EXPECT_EQ(base_system(blocks, 8, 1, 3).experts.solver, config::TrainingSolver::kAuction);
  EXPECT_NO_THROW(config::check_config(dense_system(gated_system(blocks, "switch", 8), 4)));
}

// A block is 12 D^2 weights and a sublayer 8 D^2: half a block is within 5 % of a model with 10.
TEST(Systems, TheDenseModelOfEqualFlopsIsWithinHalfABlock) {
  for (const int64_t layers : {4, 6, 24}) {
    for (const int64_t sublayers : {3, 10}) {
      const Config blocks = blocks_of(layers, 256, 4);
      const Config base = base_system(blocks, 32, 1, sublayers);
      const Config dense = dense_of_equal_flops(blocks, base);
      const double block =
          flops_ratio(dense_system(blocks, 2), base) - flops_ratio(dense_system(blocks, 1), base);
      EXPECT_LE(std::abs(flops_ratio(dense, base) - 1), block / 2) << layers << " " << sublayers;
      EXPECT_EQ(dense.experts.layers, 0);
    }
  }
  const Config blocks = blocks_of(4, 256, 4);
  const Config base = base_system(blocks, 32, 1, 3);
  EXPECT_NEAR(flops_ratio(dense_of_equal_flops(blocks, base), base), 1, 0.02);
  EXPECT_EQ(dense_of_equal_flops(blocks, base).model.layers, 6);
}

TEST(Systems, LargerDenseModelsHaveTheFactorInParametersAndCanBeDivided) {
  for (const int64_t heads : {2, 4, 8}) {
    const Config dense = blocks_of(6, 64 * heads, heads);
    for (const int64_t factor : {2, 4}) {
      Config larger = larger_dense(dense, factor);
      const double grown = static_cast<double>(model::model_size(larger).total) /
                           static_cast<double>(model::model_size(dense).total);
      EXPECT_NEAR(grown / static_cast<double>(factor), 1, 0.15) << heads << " x" << factor;
      EXPECT_EQ(larger.model.width / larger.model.heads, 64);
      EXPECT_GT(larger.model.width, dense.model.width);
      larger.training.model_parallel = factor;
      EXPECT_NO_THROW(config::check_workers(larger, factor));
    }
  }
}

TEST(Systems, SmallAndLargeExpertsTradeBlocksForSublayersAsInThePaper) {
  Config paper = blocks_of(24, 2048, 16);
  paper.model.vocabulary = 51200;
  paper.model.context = 1024;
  const Config standard = base_system(paper, 128, 1, 10);
  const Config small = resized_base_system(paper, 128, 10, config::ExpertSize::kSmall);
  const Config large = resized_base_system(paper, 128, 10, config::ExpertSize::kLarge);
  EXPECT_EQ(small.model.layers, 28);
  EXPECT_EQ(small.experts.sublayers, 4);
  EXPECT_EQ(large.model.layers, 15);
  EXPECT_EQ(config::system_in_words(large), "BASE x1, large experts");
  EXPECT_NEAR(flops_ratio(large, standard), 1, 0.02);
  // With 4 blocks a sublayer is a ninth of all of them.
  const Config few = blocks_of(4, 256, 4);
  for (const config::ExpertSize size : {config::ExpertSize::kSmall, config::ExpertSize::kLarge}) {
    const Config resized = resized_base_system(few, 8, 3, size);
    EXPECT_NEAR(flops_ratio(resized, base_system(few, 8, 1, 3)), 1, 0.06);
    EXPECT_EQ(resized.experts.sublayers < 3, size == config::ExpertSize::kSmall);
    EXPECT_EQ(resized.model.layers > 4, size == config::ExpertSize::kSmall);
  }
}

}  // namespace
}  // namespace ballast::experiments
