// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "ballast/config/config.h"

namespace ballast::config {
namespace {

Config read(const std::string& file, const std::string& scale) {
  Config config;
  read_config_file(config, file, scale);
  check_config(config);
  return config;
}

// The files of configs/ whose name starts so.
std::vector<std::string> presets(const std::string& prefix = "") {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(BALLAST_SOURCE_DIR "/configs"))
    if (entry.path().filename().string().starts_with(prefix)) files.push_back(entry.path());
  return files;
}

TEST(Presets, EveryFileIsValid) {
  EXPECT_FALSE(presets().empty());
  for (const std::string& file : presets()) EXPECT_NO_THROW(read(file, "paper")) << file;
}

TEST(Presets, ThePapersSystemsFitThePapersWorkers) {
  EXPECT_FALSE(presets("paper_").empty());
  for (const std::string& file : presets("paper_")) {
    SCOPED_TRACE(file);
    const Config config = read(file, "paper");
    EXPECT_NO_THROW(check_workers(config, 128));
    const int64_t replicas = 128 / config.training.model_parallel;
    EXPECT_EQ(config.training.micro_steps, 8);
    EXPECT_EQ(config.training.batch, replicas * 2 * 8) << "2 sequences a replica, 8 times";
    EXPECT_EQ(config.experts.groups, config.experts.layers > 0 ? 128 : 0);
  }
}

// Stated outright, whatever a new run takes by default.
TEST(Presets, ThePapersSystemsHaveThePapersRoutersAndOptimizer) {
  for (const std::string& file : presets("paper_")) {
    SCOPED_TRACE(file);
    const Config config = read(file, "paper");
    EXPECT_EQ(config.optimizer.clip_norm, 0.1);
    EXPECT_EQ(config.optimizer.warmup_steps, 2000);
    EXPECT_EQ(config.optimizer.beta1, 0.9);
    EXPECT_EQ(config.optimizer.beta2, 0.98);
    EXPECT_EQ(config.model.width / config.model.heads, 128) << "16 heads of 2048, and so wider";
    if (config.model.width == 2048) {
      EXPECT_EQ(config.model.heads, 16);
    }
    for (const char* scale : {"paper", "gpu", "laptop"}) {
      const ExpertsConfig experts = read(file, scale).experts;
      if (experts.layers == 0) continue;
      const bool is_base = experts.router == "base";
      EXPECT_EQ(experts.features, is_base ? Features::kRaw : Features::kNormed);
      EXPECT_EQ(experts.gate, is_base ? Gate::kSigmoid : Gate::kSoftmax);
      EXPECT_EQ(experts.scores, Scores::kDot);
      EXPECT_EQ(experts.router_rate, 1);
      EXPECT_FALSE(experts.look_ahead);
      EXPECT_EQ(experts.solver, is_base ? TrainingSolver::kAuction : TrainingSolver::kExact);
      EXPECT_EQ(experts.tested_routing(), TestRouting::kGreedy);
      EXPECT_EQ(experts.experts_of_token(), experts.router == "sparsely_gated" ? 2 : 1);
      EXPECT_EQ(experts.shared, 0);
      if (!is_base) continue;
      EXPECT_EQ(experts.embedding_gain, 0.1);
      EXPECT_TRUE(experts.gates_at_experts());
    }
  }
}

TEST(Presets, SmallerScalesFitOneTwoAndFourWorkersAndNeedNoData) {
  for (const std::string& file : presets("paper_")) {
    const int64_t shards = read(file, "paper").training.model_parallel;
    for (const char* scale : {"gpu", "laptop"}) {
      SCOPED_TRACE(file + " " + scale);
      Config config = read(file, scale);
      EXPECT_EQ(config.data.train, std::vector<std::string>{"builtin"});
      EXPECT_EQ(config.model.vocabulary, 0) << "the tokenizer's";
      config.model.vocabulary = config.data.builtin_vocabulary;
      for (const int64_t workers : {1, 2, 4}) EXPECT_NO_THROW(check_workers(config, workers));
      config.training.model_parallel = shards;
      for (const int64_t replicas : {1, 2})
        EXPECT_NO_THROW(check_workers(config, replicas * shards));
    }
  }
}

// What makes a system what it is does not change with the scale.
TEST(Presets, ASystemIsTheSameAtEveryScale) {
  const std::map<std::string, int64_t> widths = {{"gpu", 512}, {"laptop", 64}};
  for (const std::string& file : presets("paper_")) {
    const Config paper = read(file, "paper");
    for (const auto& [scale, width] : widths) {
      SCOPED_TRACE(file + " " + scale);
      const Config config = read(file, scale);
      EXPECT_EQ(config.experts.router, paper.experts.router);
      EXPECT_EQ(config.experts.placement, paper.experts.placement);
      EXPECT_EQ(config.experts.training_capacity(), paper.experts.training_capacity());
      EXPECT_EQ(config.experts.balance_weight, paper.experts.balance_weight);
      EXPECT_EQ(config.model.width * 2048, width * paper.model.width);
      EXPECT_EQ(config.model.feed_forward_width(), 4 * config.model.width);
      if (paper.experts.replaces_feed_forwards()) {
        EXPECT_EQ(2 * config.experts.layers, config.model.layers);
      } else {
        EXPECT_EQ(config.experts.layers, paper.experts.layers);
      }
      // Of 24 blocks 12 and 6, up to one.
      const int64_t of_blocks = scale == "gpu" ? 2 : 4;
      EXPECT_NEAR(config.model.layers * of_blocks, paper.model.layers, of_blocks);
    }
  }
}

// BASE xN: of the S sublayers of BASE x1 each layer has floor(S / N), one at least, and the i-th
// layer stands after block floor(i L / (N + 1)).
TEST(Presets, BaseXNKeepsThePapersRuleAtEveryScale) {
  const auto preset = [](const std::string& name, const std::string& scale) {
    return read(fmt::format("{}/configs/paper_base_{}.toml", BALLAST_SOURCE_DIR, name), scale);
  };
  for (const char* scale : {"paper", "gpu", "laptop"}) {
    const Config one = preset("44b", scale);
    EXPECT_EQ(one.experts.places(one.model.layers), std::vector{one.model.layers / 2});
    const int64_t all = one.experts.sublayers_of_layer();
    for (const int64_t layers : {2, 3, 5}) {
      const std::string name = fmt::format("x{}", layers);
      SCOPED_TRACE(fmt::format("{} {}", scale, name));
      const Config config = preset(name, scale);
      EXPECT_EQ(config.model.layers, one.model.layers);
      EXPECT_EQ(config.experts.layers, layers);
      EXPECT_EQ(config.experts.sublayers_of_layer(), std::max<int64_t>(1, all / layers));
      std::vector<int64_t> places;
      for (int64_t i = 1; i <= layers; ++i)
        places.push_back(i * config.model.layers / (layers + 1));
      EXPECT_EQ(config.experts.places(config.model.layers), places);
    }
    EXPECT_EQ(preset("top", scale).experts.sublayers_of_layer(), all);
  }
}

}  // namespace
}  // namespace ballast::config
