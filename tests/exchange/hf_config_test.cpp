// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "ballast/exchange/family.h"
#include "ballast/exchange/read_config.h"
#include "ballast/exchange/tensor_map.h"
#include "ballast/exchange/write_config.h"
#include "ballast/system/error.h"

namespace ballast::exchange {
namespace {

using config::Config;

Config gpt2() {
  Config config;
  config.model.vocabulary = 50;
  config.model.hidden = 100;
  config.model.activation = config::Activation::kGelu;
  return config;
}

Config llama() {
  Config config;
  config::ModelConfig& m = config.model;
  m.vocabulary = 50;
  m.heads_kv = 2;
  m.head_width = 32;
  m.hidden = 96;
  m.positions = config::Positions::kRope;
  m.rope_theta = 5000;
  m.norm = config::NormKind::kRms;
  m.norm_epsilon = 1e-6;
  m.activation = config::Activation::kSwiglu;
  m.biases = config::Biases::kNone;
  m.tied = false;
  return config;
}

Config llama3() {
  Config config = llama();
  config.model.rope_scaling = config::RopeScaling::kLlama3;
  config.model.rope_factor = 8;
  config.model.rope_context = 32;
  return config;
}

Config llama_with_biases_and_yarn() {
  Config config = llama();
  config.model.biases = config::Biases::kAll;
  config.model.rope_scaling = config::RopeScaling::kYarn;
  config.model.rope_factor = 4;
  config.model.rope_context = 64;
  config.model.rope_high = 32;
  config.model.rope_magnitude = 1.25;
  return config;
}

Config qwen2() {
  Config config = llama();
  config.model.biases = config::Biases::kQkv;
  config.model.head_width = 0;
  config.model.rope_scaling = config::RopeScaling::kLinear;
  config.model.rope_factor = 2;
  return config;
}

Config qwen3() {
  Config config = llama();
  config.model.query_key_norm = config::QueryKeyNorm::kHead;
  config.model.tied = true;
  return config;
}

Config with_gates(Config config, int64_t layers) {
  config::ExpertsConfig& e = config.experts;
  e.layers = layers;
  e.router = "sparsely_gated";
  e.per_token = 3;
  e.placement = config::Placement::kReplace;
  e.norm = config::ExpertNorm::kLayer;
  take_papers_frame(e);
  e.capacity = 0;
  return config;
}

Config mixtral() { return with_gates(llama(), 4); }

Config olmoe() {
  Config config = with_gates(llama(), 4);
  config.model.query_key_norm = config::QueryKeyNorm::kWidth;
  config.model.head_width = 0;
  config.experts.renormalise = false;
  return config;
}

Config qwen3_moe() {
  Config config = with_gates(qwen3(), 2);
  config.experts.hidden = 48;
  return config;
}

Config qwen3_moe_of_switch() {
  Config config = qwen3_moe();
  config.experts.router = "switch";
  config.experts.per_token = 0;
  return config;
}

struct Case {
  Family family;
  Config config;
};

std::vector<Case> cases() {
  return {{Family::kGpt2, gpt2()},          {Family::kLlama, llama()},
          {Family::kLlama, llama3()},       {Family::kLlama, llama_with_biases_and_yarn()},
          {Family::kQwen2, qwen2()},        {Family::kQwen3, qwen3()},
          {Family::kMixtral, mixtral()},    {Family::kOlmoe, olmoe()},
          {Family::kQwen3Moe, qwen3_moe()}, {Family::kQwen3Moe, qwen3_moe_of_switch()}};
}

// What read_model() makes of a folder with this config.json and no tensors.
HfModel read(const nlohmann::ordered_json& json) {
  const TemporaryFolder folder;
  write_text_atomically(folder.path() / kConfigFile, json.dump());
  checkpoint::write_safetensors(folder.path() / kWeightsFile, {});
  return read_model(HfFolder(folder.path()));
}

// Values that a config leaves to be derived.
Config resolved(Config config) {
  config::ModelConfig& m = config.model;
  m.hidden = m.feed_forward_width();
  m.heads_kv = m.kv_heads();
  m.head_width = m.width_of_head();
  config.experts.hidden = config.experts.width_of_expert(m);
  return config;
}

TEST(HfConfig, ADecoderIsTheFamilyThatComputesIt) {
  for (const Case& given : cases())
    EXPECT_EQ(fitting_family(given.config), given.family) << traits_of(given.family).architecture;
}

TEST(HfConfig, WhatIsWrittenIsReadBack) {
  for (const Case& given : cases()) {
    const HfModel back =
        read(config_of_family(given.family, given.config, {.dtype = "float32", .end_of_text = 3}));
    EXPECT_EQ(back.family, given.family);
    EXPECT_THAT(config::differences(resolved(given.config), resolved(back.config),
                                    config::Compare::kEverything),
                testing::IsEmpty())
        << traits_of(given.family).architecture;
  }
}

TEST(HfConfig, WhatNoFamilyComputesIsOurOwn) {
  const auto change = [](Config config, const auto& by) {
    by(config);
    return config;
  };
  const std::vector<Config> others = {
      change(llama(), [](Config& c) { c.model.logit_cap = 30; }),
      change(llama(), [](Config& c) { c.model.norm = config::NormKind::kLayer; }),
      change(llama(), [](Config& c) { c.model.activation = config::Activation::kRelu2; }),
      change(llama(), [](Config& c) { c.model.query_key_norm = config::QueryKeyNorm::kWidth; }),
      change(gpt2(), [](Config& c) { c.model.heads_kv = 2; }),
      change(gpt2(), [](Config& c) { c.experts.layers = 1; }),
      change(mixtral(), [](Config& c) { c.experts.renormalise = false; }),
      change(mixtral(), [](Config& c) { c.experts.layers = 2; }),
      change(mixtral(), [](Config& c) { c.experts.look_ahead = true; }),
      change(mixtral(), [](Config& c) { c.experts.scores = config::Scores::kCosine; }),
      change(mixtral(), [](Config& c) { c.experts.router = "base"; }),
      change(qwen3_moe(), [](Config& c) { c.experts.shared = 1; }),
      change(qwen3_moe(), [](Config& c) { c.experts.layers = 3; }),
      change(qwen3_moe(), [](Config& c) { c.experts.norm = config::ExpertNorm::kOwn; }),
  };
  for (const Config& config : others) {
    EXPECT_EQ(fitting_family(config), std::nullopt) << config::to_toml(config);
    const auto json = config_of_our_own(config, {.dtype = "float32"});
    EXPECT_EQ(json.at("model_type"), kOwnModelType);
    const HfModel back = read(json);
    EXPECT_EQ(back.family, Family::kBallast);
    EXPECT_THAT(config::differences(config, back.config, config::Compare::kEverything),
                testing::IsEmpty());
  }
}

TEST(HfConfig, AConfigOfOursThatSomebodyChangedIsRefused) {
  Config config = gpt2();
  config.experts.layers = 1;
  auto json = config_of_our_own(config, {.dtype = "float32"});
  json.erase("positions");  // transformers may leave out what is its default
  EXPECT_NO_THROW(read(json));
  auto other = json;
  other["experts"]["routing"] = "sideways";
  EXPECT_THROW(read(other), UserError);
  other = json;
  other["hidden_size"] = 24;
  EXPECT_THROW(read(other), UserError);
  json.erase(kOwnConfigKey);
  EXPECT_THROW(read(json), UserError);
}

// Seen while fuzzing: blocks were counted one by one, and heads divided by, before anyone looked.
TEST(HfConfig, SizesBeyondAnyModelAreRefusedAtOnce) {
  const auto json = config_of_family(Family::kMixtral, mixtral(), {.dtype = "float32"});
  const std::pair<const char*, uint64_t> sizes[] = {{"num_hidden_layers", uint64_t{1} << 40},
                                                    {"num_hidden_layers", 0},
                                                    {"num_attention_heads", 0},
                                                    {"num_local_experts", uint64_t{1} << 40},
                                                    {"hidden_size", 0}};
  for (const auto& [key, size] : sizes) {
    auto other = json;
    other[key] = size;
    EXPECT_THROW(read(other), UserError) << key;
  }
}

TEST(HfConfig, EveryTensorOfOursHasItsRowsInTheirs) {
  for (const Case& given : cases()) {
    for (const bool packed : {false, true}) {
      Layout layout = usual_layout(given.family);
      layout.packed = packed;
      for (const Correspondence& tensor : correspondences(given.family, given.config, layout)) {
        int64_t rows = 0;
        for (const Part& part : tensor.parts) {
          const size_t first = part.slice ? 1 : part.transposed ? 1 : 0;
          rows += part.shape[first];
        }
        EXPECT_EQ(rows, tensor.shape.front()) << tensor.ours;
      }
    }
  }
}

}  // namespace
}  // namespace ballast::exchange
