// SPDX-License-Identifier: Apache-2.0
#include "ballast/model/model_size.h"

#include <gtest/gtest.h>

#include "ballast/model/language_model.h"
#include "tests/support/lone_worker.h"

namespace ballast {
namespace {

Config paper_config(const std::string& name) {
  Config config;
  read_config_file(config, BALLAST_SOURCE_DIR "/configs/paper_" + name + ".toml");
  check_config(config);
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

constexpr PaperSize kPaperSizes[] = {
    {"base_44b", 1.3e9, 335e6, 44e9},    {"base_x2", 1.3e9, 335e6, 44e9},
    {"base_top", 1.3e9, 335e6, 44e9},    {"base_small", 1.5e9, 135e6, 18.8e9},
    {"base_large", 840e6, 911e6, 117e9}, {"dense_1.5b", 1.5e9, 0, 1.5e9},
    {"dense_1.3b", 1.3e9, 0, 1.3e9},
};

TEST(ModelSize, ThePapersModelsHaveThePapersParameters) {
  for (const PaperSize& paper : kPaperSizes) {
    SCOPED_TRACE(paper.name);
    const ModelSize size = model_size(paper_config(paper.name));
    // The paper rounds, and does not say how many blocks and sublayers each model has.
    EXPECT_NEAR(static_cast<double>(size.shared), paper.shared, 0.05 * paper.shared);
    EXPECT_NEAR(static_cast<double>(size.per_expert), paper.per_expert, 0.05 * paper.per_expert);
    EXPECT_NEAR(static_cast<double>(size.total), paper.total, 0.05 * paper.total);
  }
}

TEST(ModelSize, ThePapersLayersStandWhereThePaperPutsThem) {
  const auto places = [](const char* name) {
    const Config config = paper_config(name);
    return config.experts.places(config.model.layers);
  };
  EXPECT_EQ(places("base_44b"), std::vector<int64_t>({12}));
  EXPECT_EQ(places("base_x2"), std::vector<int64_t>({8, 16}));
  EXPECT_EQ(places("base_top"), std::vector<int64_t>({24}));
  EXPECT_EQ(paper_config("base_44b").experts.sublayers_of_layer(), 10);
  EXPECT_EQ(paper_config("base_x2").experts.sublayers_of_layer(), 5);
}

TEST(ModelSize, ThePapersWorkersDivideTheirModels) {
  for (const char* name : {"base_44b", "base_x2", "base_top", "base_small", "base_large"}) {
    Config config = paper_config(name);
    EXPECT_EQ(config.experts.groups, 128) << name;
    EXPECT_NO_THROW(check_workers(config, 128)) << name;
    EXPECT_EQ(config.training.batch / config.training.micro_steps, 2 * 128) << name;
  }
}

// What the model declares, summed by owner.
struct Declared {
  int64_t shared = 0, experts = 0;
};

Declared declared_by(const Config& config) {
  ParameterTable table;  // declared, never allocated
  const LanguageModel model(config, table, test::lone_worker());
  Declared sums;
  for (const Segment& segment : table.segments())
    (segment.owner == Owner::kShared ? sums.shared : sums.experts) += segment.size;
  return sums;
}

void expect_counts_what_is_declared(const Config& config) {
  const ModelSize size = model_size(config);
  const Declared declared = declared_by(config);
  EXPECT_EQ(size.shared, declared.shared);
  EXPECT_EQ(size.per_expert * config.experts.count,
            config.experts.layers > 0 ? declared.experts : 0);
  EXPECT_EQ(size.total, declared.shared + declared.experts);
  EXPECT_EQ(size.active, size.shared + size.per_expert);
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
  const double experts = 2 * (3 * 6 * (2 * 8 * 12) + 2 * 8 * 3);  // affinities have no gradient
  EXPECT_EQ(model_size(config).flops_per_token, dense + experts);
}

}  // namespace
}  // namespace ballast
