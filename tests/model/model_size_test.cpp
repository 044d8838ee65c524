// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

#include <gtest/gtest.h>

#include "ballast/model/language_model.h"
#include "tests/support/lone_worker.h"

namespace ballast::model {
namespace {

using config::Config;

Config paper_config(const std::string& name) {
  Config config;
  config::read_config_file(config, BALLAST_SOURCE_DIR "/configs/paper_" + name + ".toml");
  config::check_config(config);
  return config;
}

Config small_config() {
  Config config;
  config.model = {.vocabulary = 11, .width = 8, .layers = 4, .heads = 2, .hidden = 12};
  config.experts.count = 3;
  return config;
}

// The counts of the paper, each as it is printed there.
struct PaperSize {
  const char* name;
  double shared, per_expert, total;
};

constexpr double kReadAsShared = 0.91e9;  // of MoE and Switch, where the paper says 1B
constexpr double kNotPrinted = 0;         // or there are no experts

constexpr PaperSize kPaperSizes[] = {
    {"dense_1.3b", 1.3e9, kNotPrinted, 1.3e9},
    {"dense_1.5b", 1.5e9, kNotPrinted, 1.5e9},
    {"dense_3b", 3e9, kNotPrinted, 3e9},
    {"dense_6b", 6e9, kNotPrinted, 6e9},
    {"base_44b", 1.3e9, 335e6, 44.4e9},
    {"base_x2", 1.3e9, 335e6, 44e9},
    {"base_x5", 1.3e9, 335e6, 44e9},
    {"base_top", 1.3e9, 335e6, 44e9},
    {"base_small", 1.5e9, 135e6, 18.8e9},
    {"base_large", 840e6, 911e6, 117e9},
    {"moe_52b", kReadAsShared, kNotPrinted, 52.5e9},
    {"switch_52b", kReadAsShared, kNotPrinted, 52.5e9},
    {"moe_44b", 1.3e9, 335e6, 44e9},
    {"switch_44b", 1.3e9, 335e6, 44e9},
};

TEST(ModelSize, ThePapersModelsHaveThePapersParameters) {
  for (const PaperSize& paper : kPaperSizes) {
    SCOPED_TRACE(paper.name);
    const ModelSize size = model_size(paper_config(paper.name));
    // The paper rounds, and does not say how many blocks and sublayers each model has.
    EXPECT_NEAR(static_cast<double>(size.shared), paper.shared, 0.05 * paper.shared);
    EXPECT_NEAR(static_cast<double>(size.total), paper.total, 0.05 * paper.total);
    if (paper.per_expert == kNotPrinted) continue;
    EXPECT_NEAR(static_cast<double>(size.per_expert), paper.per_expert, 0.05 * paper.per_expert);
  }
}

// Its rule, floor(10 / 3) sublayers in each layer, leaves one of ten out; its total is "roughly
// 44B".
TEST(ModelSize, BaseX3HasTheSublayersOfThePapersRule) {
  const Config config = paper_config("base_x3");
  EXPECT_EQ(config.experts.sublayers_of_layer(), 3);
  const ModelSize x3 = model_size(config), x1 = model_size(paper_config("base_44b"));
  EXPECT_EQ(10 * x3.per_expert, 9 * x1.per_expert);
  EXPECT_NEAR(static_cast<double>(x3.shared), 1.3e9, 0.05 * 1.3e9);
  EXPECT_NEAR(static_cast<double>(x3.total), 40e9, 0.05 * 40e9);
}

TEST(ModelSize, ThePapersLayersStandWhereThePaperPutsThem) {
  const auto places = [](const char* name) {
    const Config config = paper_config(name);
    return config.experts.places(config.model.layers);
  };
  const std::vector<int64_t> every_other = {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24};
  EXPECT_EQ(places("base_44b"), std::vector<int64_t>({12}));
  EXPECT_EQ(places("base_x2"), std::vector<int64_t>({8, 16}));
  EXPECT_EQ(places("base_x3"), std::vector<int64_t>({6, 12, 18}));
  EXPECT_EQ(places("base_x5"), std::vector<int64_t>({4, 8, 12, 16, 20}));
  EXPECT_EQ(places("base_top"), std::vector<int64_t>({24}));
  EXPECT_EQ(places("moe_52b"), every_other);
  EXPECT_EQ(places("switch_52b"), every_other);
  EXPECT_EQ(places("moe_44b"), std::vector<int64_t>({12}));
  EXPECT_EQ(places("switch_44b"), std::vector<int64_t>({12}));
  EXPECT_EQ(paper_config("base_44b").experts.sublayers_of_layer(), 10);
  EXPECT_EQ(paper_config("base_x2").experts.sublayers_of_layer(), 5);
  EXPECT_EQ(paper_config("base_x5").experts.sublayers_of_layer(), 2);
  EXPECT_EQ(paper_config("moe_44b").experts.sublayers_of_layer(), 10);
  EXPECT_EQ(paper_config("moe_52b").experts.sublayers_of_layer(), 1);
}

TEST(ModelSize, ThePapersGatesAreSetAsThePaperSetsThem) {
  for (const auto& [name, router, capacity] : {std::tuple{"moe_52b", "sparsely_gated", 2.0},
                                               {"moe_44b", "sparsely_gated", 2.0},
                                               {"switch_52b", "switch", 1.0},
                                               {"switch_44b", "switch", 1.0}}) {
    const config::ExpertsConfig experts = paper_config(name).experts;
    EXPECT_EQ(experts.router, router) << name;
    EXPECT_EQ(experts.training_capacity(), capacity) << name;
    EXPECT_EQ(experts.balance_weight, 0.01) << name;
  }
}

// What the model declares, summed by owner.
struct Declared {
  int64_t shared = 0, experts = 0;
};

Declared declared_by(const Config& config) {
  parameters::ParameterTable table;  // declared, never allocated
  const LanguageModel model(config, table, test::lone_worker());
  Declared sums;
  for (const parameters::Segment& segment : table.segments())
    (segment.owner == parameters::Owner::kExpert ? sums.experts : sums.shared) += segment.size;
  return sums;
}

void expect_counts_what_is_declared(const Config& config) {
  const ModelSize size = model_size(config);
  const Declared declared = declared_by(config);
  EXPECT_EQ(size.shared, declared.shared);
  EXPECT_EQ(size.per_expert * config.experts.count,
            config.experts.layers > 0 ? declared.experts : 0);
  EXPECT_EQ(size.total, declared.shared + declared.experts);
  EXPECT_EQ(size.active, size.shared + config.experts.experts_of_token() * size.per_expert);
}

TEST(ModelSize, CountsWhatTheModelDeclares) {
  for (const int64_t layers : {0, 1, 2, 3}) {
    for (const int64_t hidden : {0, 12}) {
      SCOPED_TRACE(testing::Message() << layers << " BASE layers, hidden " << hidden);
      Config config = small_config();
      config.model.hidden = hidden;
      config.experts.layers = layers;
      expect_counts_what_is_declared(config);
      config.experts.sublayers = 2;
      expect_counts_what_is_declared(config);
    }
  }
  expect_counts_what_is_declared(paper_config("base_44b"));
  expect_counts_what_is_declared(paper_config("dense_1.5b"));
  expect_counts_what_is_declared(paper_config("moe_52b"));
  expect_counts_what_is_declared(paper_config("switch_44b"));
}

TEST(ModelSize, CountsWhatAModelOfEveryRouterAndPlaceDeclares) {
  for (const char* router : {"base", "sparsely_gated", "switch"}) {
    for (const char* placement : {"spread", "top", "replace"}) {
      for (const int64_t layers : {1, 3}) {
        SCOPED_TRACE(testing::Message() << router << " " << placement << " " << layers);
        if (placement == std::string("top") && layers > 1) continue;
        Config config = small_config();
        config.experts.router = router;
        config.experts.placement = config::choice_of<config::Placement>(placement);
        config.experts.layers = layers;
        expect_counts_what_is_declared(config);
      }
    }
  }
}

TEST(ModelSize, CountsSharedAndFineGrainedExperts) {
  for (const char* placement : {"spread", "replace"}) {
    for (const double shared : {0.0, 0.5, 2.0}) {
      Config config = small_config();
      config.experts.placement = config::choice_of<config::Placement>(placement);
      config.experts.layers = 2;
      config.experts.hidden = 24;
      config.experts.per_token = 2;
      config.experts.shared = shared;
      expect_counts_what_is_declared(config);
    }
  }
}

// Counted by hand: six operations a weight of a matrix that a token meets, and attention.
TEST(ModelSize, OperationsOfASmallModel) {
  Config config = small_config();
  config.model.context = 16;
  const double block = 4 * 8 * 8 + 2 * 8 * 12, attention = 8 * 16, head = 11 * 8;
  const double dense = 6 * (4 * (block + attention) + head);
  EXPECT_EQ(model_size(config).flops_per_token, dense);
  config.experts.layers = 2;
  config.experts.sublayers = 3;
  const double sublayers = 2 * 3 * 6 * (2 * 8 * 12), affinities = 2 * 6 * 8 * 3;
  EXPECT_EQ(model_size(config).flops_per_token, dense + sublayers + affinities);
  config.experts.per_token = 2;
  EXPECT_EQ(model_size(config).flops_per_token, dense + 2 * sublayers + affinities);
  config.experts.hidden = 6;
  EXPECT_EQ(model_size(config).flops_per_token, dense + sublayers + affinities);
  config.experts.per_token = 1;
  config.experts.hidden = 16;
  config.experts.shared = 0.5;
  EXPECT_EQ(model_size(config).flops_per_token, dense + 2 * sublayers + affinities);
  config.experts.shared = 0;
  config.experts.hidden = 0;
  config::take_papers_frame(config.experts);  // where affinities have no gradient
  EXPECT_EQ(model_size(config).flops_per_token, dense + sublayers + affinities / 3);
}

TEST(ModelSize, OperationsOfASmallModelWithGates) {
  Config config = small_config();
  config.model.context = 16;
  const double dense = model_size(config).flops_per_token;
  const double feed_forward = 6 * (2 * 8 * 12), gate = 6 * 8 * 3;  // a gate has a gradient
  config.experts.layers = 2;
  config.experts.placement = config::Placement::kReplace;
  config.experts.router = "switch";
  EXPECT_EQ(model_size(config).flops_per_token, dense + 2 * gate);
  config.experts.router = "sparsely_gated";  // two experts instead of the feed-forward
  EXPECT_EQ(model_size(config).flops_per_token, dense + 2 * (feed_forward + gate));
  config.experts.placement = config::Placement::kSpread;
  config.experts.sublayers = 1;
  EXPECT_EQ(model_size(config).flops_per_token, dense + 2 * (2 * feed_forward + gate));
}

// Counted by hand: width 8, 2 heads, feed-forward 12, context 16, vocabulary 11.
TEST(ModelSize, WhatAWorkerHoldsWhenTwoShareAModel) {
  Config config = small_config();
  config.model.context = 16;
  EXPECT_EQ(parameters_of_worker(config, 1), model_size(config).shared);
  EXPECT_EQ(parameters_of_worker(config, 4), model_size(config).shared);
  config.training.model_parallel = 2;
  const int64_t attention = (3 * 8 * 8 + 3 * 8 + 8 * 8) / 2 + 8;
  const int64_t feed_forward = (8 * 12 + 12 + 12 * 8) / 2 + 8;
  const int64_t blocks = 4 * (attention + feed_forward + 4 * 8);
  const int64_t vocabulary = 6 * 8;  // of 11 tokens 6 and 5
  const int64_t shard = blocks + vocabulary + 16 * 8 + 2 * 8;
  EXPECT_EQ(parameters_of_worker(config, 2), shard);
  config.experts.layers = 1;
  config.experts.sublayers = 1;
  config.experts.count = 6;
  const int64_t expert = 8 * 12 + 12 + 12 * 8 + 8 + 2 * 8;
  EXPECT_EQ(parameters_of_worker(config, 2), shard + 6 * 8 + 2 * 8 + 3 * expert);
  config.experts.router = "switch";
  EXPECT_EQ(parameters_of_worker(config, 6), shard + 6 * 8 + 2 * 8 + expert);
}

TEST(ModelSize, AParameterTakesSixteenBytesInTrainingWhateverThePrecisionButDouble) {
  const ParameterBytes half = bytes_of_parameter(2, 4), single = bytes_of_parameter(4, 4),
                       twice = bytes_of_parameter(8, 8);
  EXPECT_EQ(half.weights, 2 + 4);  // and a master copy
  EXPECT_EQ(half.master, 4);
  EXPECT_EQ(single.master, 0);
  EXPECT_EQ(half.gradients, 2);
  EXPECT_EQ(half.moments, 8);
  EXPECT_EQ(half.total(), 16);
  EXPECT_EQ(single.weights, 4);
  EXPECT_EQ(single.gradients, 4);
  EXPECT_EQ(single.total(), 16);
  EXPECT_EQ(twice.total(), 32);
}

}  // namespace
}  // namespace ballast::model
