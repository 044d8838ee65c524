// SPDX-License-Identifier: Apache-2.0
// Twenty steps of Muon, of an average of weights and of frozen parameters, in fp64: the losses of
// the PyTorch twin, recorded by benchmarks/twin/record_optimizers.py, are ours too.
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

nlohmann::json golden() {
  std::ifstream file(BALLAST_SOURCE_DIR "/tests/golden/optimizer_losses.json");
  return nlohmann::json::parse(file);
}

config::Config muon_config(const nlohmann::json& golden) {
  config::Config config = test::twin::config_of(golden);
  config.optimizer.schedule = config::Schedule::kCosine;
  config.optimizer.final_learning_rate = 0.1;
  config.optimizer.algorithm = config::Algorithm::kMuon;
  config.optimizer.matrix_rate = golden["muon"]["matrix_rate"];
  config.optimizer.momentum = golden["muon"]["momentum"];
  config.optimizer.average = golden["average"];
  return config;
}

void add_experts(config::Config& config, const nlohmann::json& golden) {
  config.experts.layers = 1;
  config.experts.count = golden["experts"]["count"];
  config.experts.sublayers = golden["experts"]["sublayers"];
}

// Both compute in fp64; over 20 steps their rounding differs by less than 1e-10.
void expect_run(const config::Config& config, const nlohmann::json& golden) {
  parameters::ParameterTable table;
  const model::LanguageModel model(config, table, test::lone_worker());
  ASSERT_EQ(table.freeze(config.training.freeze), "");
  table.allocate({.working = at::kDouble,
                  .master = at::kDouble,
                  .muon = config.optimizer.algorithm == config::Algorithm::kMuon,
                  .average = true});
  test::twin::set_weights(table);
  Optimizer optimizer(table, config.optimizer);
  const std::vector<double> losses = golden["losses"];
  const auto steps = std::ssize(losses);
  ASSERT_EQ(steps, config.training.steps);
  for (int64_t step = 0; step < steps; ++step) {
    const at::Tensor tokens = test::twin::tokens_of(config, step);
    const at::Tensor hidden = model.forward(
        tokens.narrow(1, 0, config.model.context),
        {.mode = experts::RoutingMode::kBalanced, .training = experts::TrainingRoute{}});
    const at::Tensor targets = tokens.narrow(1, 1, config.model.context).reshape({-1});
    const auto result = model.losses_and_gradient(hidden, targets, 1.0 / double(targets.numel()));
    torch::autograd::backward({hidden}, {result.gradient});
    EXPECT_NEAR(result.losses.mean().item<double>(), losses[static_cast<size_t>(step)], 1e-10)
        << "step " << step;
    test::update_weights(optimizer, config.optimizer, step + 1,
                         learning_rate_at(step, steps, config.optimizer));
  }
  EXPECT_LT(losses.back(), losses.front() - 0.3) << "the twin must have learned";
  const double average = golden["average"];
  EXPECT_NEAR(table.average().square().sum().item<double>() / average, 1, 1e-10);
}

TEST(OptimizerTwin, MuonGivesThePyTorchTwinsLosses) {
  const auto recorded = golden();
  expect_run(muon_config(recorded), recorded["dense"]);
}

TEST(OptimizerTwin, MuonOfExpertsGivesThePyTorchTwinsLosses) {
  const auto recorded = golden();
  config::Config config = muon_config(recorded);
  add_experts(config, recorded);
  expect_run(config, recorded["base"]);
}

TEST(OptimizerTwin, FrozenParametersGiveThePyTorchTwinsLosses) {
  const auto recorded = golden();
  config::Config config = muon_config(recorded);
  config.training.freeze = recorded["frozen"].get<std::vector<std::string>>();
  config.optimizer.algorithm = config::Algorithm::kAdam;
  expect_run(config, recorded["adam_partly_frozen"]);
  config.optimizer.algorithm = config::Algorithm::kMuon;
  add_experts(config, recorded);
  expect_run(config, recorded["partly_frozen"]);
}

}  // namespace
}  // namespace ballast::training
