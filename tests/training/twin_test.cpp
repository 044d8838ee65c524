// SPDX-License-Identifier: Apache-2.0
// Twenty steps from weights and tokens given by a formula: the losses of the PyTorch twin, recorded
// by benchmarks/twin/record_losses.py, are ours too, dense and with a BASE layer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "ballast/model/language_model.h"
#include "ballast/training/optimizer.h"
#include "ballast/training/schedule.h"
#include "tests/support/lone_worker.h"
#include "tests/training/plain_update.h"
#include "tests/training/twin_start.h"

namespace ballast::training {
namespace {

using test::twin::config_of;
using test::twin::set_weights;
using test::twin::tokens_of;

nlohmann::json golden() {
  std::ifstream file(BALLAST_SOURCE_DIR "/tests/golden/twin_losses.json");
  return nlohmann::json::parse(file);
}

// Twins that compute in fp32 round differently: over 20 steps by less than kRounding.
constexpr double kRounding = 1e-5, kDoubleRounding = 1e-9;

void expect_losses(const config::Config& config, const std::vector<double>& golden,
                   at::ScalarType type = at::kFloat) {
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, test::lone_worker());
  table.allocate({.working = type, .master = type});
  set_weights(table);
  Optimizer optimizer(table, config.optimizer);
  const int64_t rows = config.training.batch, steps = config.training.steps;
  ASSERT_EQ(std::ssize(golden), steps);
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor tokens = tokens_of(config, step);
    const at::Tensor hidden =
        model.forward(tokens.narrow(1, 0, config.model.context),
                      {.mode = experts::RoutingMode::kBalanced,
                       .training = experts::TrainingRoute{.step = static_cast<uint64_t>(step)}});
    const at::Tensor targets = tokens.narrow(1, 1, config.model.context).reshape({-1});
    const auto result = model.losses_and_gradient(
        hidden, targets, 1.0 / static_cast<double>(rows * config.model.context));
    torch::autograd::backward({hidden}, {result.gradient});
    EXPECT_NEAR(result.losses.mean().item<double>(), golden[static_cast<size_t>(step)],
                type == at::kDouble ? kDoubleRounding : kRounding)
        << "step " << step;
    test::update_weights(optimizer, config.optimizer, step + 1,
                         learning_rate_at(step, steps, config.optimizer));
  }
  // Some of the decoders in double learn less: dropout, experts.
  EXPECT_LT(golden.back(), golden.front() - (type == at::kDouble ? 0.3 : 0.5))
      << "the twin must have learned";
}

// Knobs as the record has them: what differs from the paper's decoder.
void set_knobs(config::Config& config, const std::string& section, const nlohmann::json& knobs) {
  for (const auto& [key, value] : knobs.items())
    config::set_knob(config, section + "." + key,
                     value.is_string() ? value.get<std::string>() : value.dump());
}

TEST(Twin, TwentyStepsOfDecodersOfOtherPartsGiveTheTwinsLosses) {
  const auto recorded = golden();
  for (const auto& [name, decoder] : recorded["decoders"].items()) {
    SCOPED_TRACE(name);
    config::Config config = config_of(recorded);
    config.experts = {};
    config.model.hidden = recorded["decoder_hidden"];
    set_knobs(config, "model", {{"separator", recorded["separator"]}});
    set_knobs(config, "model", decoder["model"]);
    if (decoder.contains("experts")) {
      set_knobs(config, "experts", decoder["experts"]);
      config.experts.placement = config::Placement::kReplace;
      config.experts.router_rate = 1;
      config.experts.capacity = 0;
      config.experts.assignment_gap = 0;
      config.experts.groups = 1;
    }
    config::check_config(config);
    expect_losses(config, decoder["losses"], at::kDouble);
  }
}

TEST(Twin, TwentyStepsGiveThePyTorchTwinsLosses) {
  const auto recorded = golden();
  expect_losses(config_of(recorded), recorded["losses"]);
}

TEST(Twin, TwentyStepsWithABaseLayerGiveThePyTorchTwinsLosses) {
  const auto recorded = golden();
  config::Config config = config_of(recorded);
  config.experts.layers = 1;
  config.experts.count = recorded["experts"]["count"];
  config.experts.sublayers = recorded["experts"]["sublayers"];
  expect_losses(config, recorded["base_losses"]);
}

}  // namespace
}  // namespace ballast::training
