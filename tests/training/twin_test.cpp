// SPDX-License-Identifier: Apache-2.0
// Twenty steps from weights and tokens given by a formula: the losses of the PyTorch twin, recorded
// by benchmarks/twin/record_losses.py, are ours too.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "ballast/kernels/cross_entropy.h"
#include "ballast/model/language_model.h"
#include "ballast/training/optimizer.h"
#include "ballast/training/schedule.h"
#include "tests/support/config_of.h"
#include "tests/support/lone_worker.h"
#include "tests/training/plain_update.h"

namespace ballast {
namespace {

uint64_t scramble(uint64_t stream, uint64_t i) {
  constexpr uint64_t kMask = 0xFFFFFFFF;
  uint64_t x = (i * 2654435761 + stream * 97586753 + 12345) & kMask;
  x ^= x >> 15;
  x = x * 2246822519 & kMask;
  return x ^ (x >> 13);
}

void set_weights(ParameterTable& table) {
  for (size_t k = 0; k < table.segments().size(); ++k) {
    const Segment& segment = table.segments()[k];
    const bool is_norm_weight = segment.initialization.kind == Initialization::Kind::kOne;
    at::Tensor values = at::empty({segment.size}, at::kFloat);
    for (int64_t i = 0; i < segment.size; ++i) {
      const double value =
          (static_cast<double>(scramble(k, static_cast<uint64_t>(i))) / 4294967296.0 - 0.5) * 0.2;
      values.data_ptr<float>()[i] = static_cast<float>(value + (is_norm_weight ? 1 : 0));
    }
    table.view(table.master(), segment).copy_(values.view(segment.shape));
  }
  table.copy_master_to_working();
}

TEST(Twin, TwentyStepsGiveThePyTorchTwinsLosses) {
  std::ifstream file(BALLAST_SOURCE_DIR "/tests/golden/twin_losses.json");
  const auto golden = nlohmann::json::parse(file);
  const auto& shape = golden["shape"];
  const auto& training = golden["training"];
  ModelConfig config;
  config.vocabulary = shape["vocabulary"];
  config.width = shape["width"];
  config.layers = shape["layers"];
  config.heads = shape["heads"];
  config.context = shape["context"];
  const int64_t rows = shape["batch"], steps = training["steps"], length = config.context + 1;
  OptimizerConfig optimizer_config;
  optimizer_config.learning_rate = training["learning_rate"];
  optimizer_config.warmup_steps = training["warmup_steps"];
  optimizer_config.beta1 = training["beta1"];
  optimizer_config.beta2 = training["beta2"];
  optimizer_config.epsilon = training["epsilon"];
  optimizer_config.weight_decay = training["weight_decay"];
  optimizer_config.clip_norm = training["clip_norm"];

  ParameterTable table;
  const LanguageModel model(test::config_of(config), table, test::lone_worker());
  table.allocate({});
  set_weights(table);
  Optimizer optimizer(table, optimizer_config);
  for (int64_t step = 0; step < steps; ++step) {
    at::Tensor tokens = at::empty({rows, length}, at::kLong);
    for (int64_t i = 0; i < rows * length; ++i) {
      tokens.data_ptr<int64_t>()[i] = static_cast<int64_t>(
          scramble(static_cast<uint64_t>(1000 + step % 3), static_cast<uint64_t>(i)) %
          static_cast<uint64_t>(config.vocabulary));
    }
    const at::Tensor hidden = model.forward(tokens.narrow(1, 0, config.context), {});
    const at::Tensor targets = tokens.narrow(1, 1, config.context).reshape({-1});
    const auto result = next_token_losses_and_gradient(
        hidden, model.token_embedding(), targets, 1.0 / static_cast<double>(rows * config.context));
    torch::autograd::backward({hidden}, {result.gradient});
    // Both compute in fp32; over 20 steps their rounding differs by less than this.
    EXPECT_NEAR(result.losses.mean().item<double>(),
                golden["losses"][static_cast<size_t>(step)].get<double>(), 1e-5)
        << "step " << step;
    test::update_weights(optimizer, optimizer_config, step + 1,
                         learning_rate_at(step, steps, optimizer_config));
  }
  EXPECT_LT(golden["losses"].back().get<double>(), golden["losses"].front().get<double>() - 0.5)
      << "the twin must have learned";
}

}  // namespace
}  // namespace ballast
