// SPDX-License-Identifier: Apache-2.0
// Steps measured on one H200 (benchmarks/results/foundation_2026-11-15.md,
// baselines_2026-11-15.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ballast/plan/plan.h"

namespace ballast {
namespace {

struct Measured {
  std::string name;
  Config config;
  double seconds;
};

// As `ballast bench step --size V,D,L,H,S,B` makes it.
Config dense(const ModelConfig& model, int64_t batch) {
  Config config;
  config.model = model;
  config.training.batch = batch;
  config.experts.groups = 1;
  return config;
}

// As `--systems` makes them of it: `experts`, and `sublayers` of all BASE layers together.
Config base(Config config, int64_t layers, int64_t experts, int64_t sublayers) {
  config.experts.layers = layers;
  config.experts.count = experts;
  config.experts.sublayers = sublayers / layers;
  return config;
}

Config gated(Config config, const std::string& router, int64_t experts) {
  config.experts.router = router;
  config.experts.layers = config.model.layers / 2;
  config.experts.count = experts;
  config.experts.placement = "replace";
  return config;
}

constexpr double kTokens = 16384;  // of a step of the systems
const ModelConfig kFirst = {50304, 512, 8, 8, 0, 1024}, kSecond = {8192, 512, 12, 8, 0, 512};

std::vector<Measured> dense_runs() {
  return {{"GPT-2 124M", dense({50304, 768, 12, 12, 0, 1024}, 16), 39.3e-3},
          {"dense 1.3B", dense({51200, 2048, 24, 16, 0, 1024}, 8), 138.2e-3},
          {"dense, first size", dense(kFirst, 16), kTokens / 816e3},
          {"dense, second size", dense(kSecond, 32), kTokens / 807e3}};
}

std::vector<Measured> sparse_runs() {
  const Config first = dense(kFirst, 16), second = dense(kSecond, 32);
  return {{"BASE x1, first size", base(first, 1, 8, 3), kTokens / 670e3},
          {"BASE x3, first size", base(first, 3, 8, 3), kTokens / 575e3},
          {"Sparsely Gated, first size", gated(first, "sparsely_gated", 8), kTokens / 611e3},
          {"Switch, first size", gated(first, "switch", 8), kTokens / 707e3},
          {"BASE x1, second size", base(second, 1, 32, 6), kTokens / 558e3},
          {"BASE x3, second size", base(second, 3, 32, 6), kTokens / 516e3},
          {"Sparsely Gated, second size", gated(second, "sparsely_gated", 32), kTokens / 473e3},
          {"Switch, second size", gated(second, "switch", 32), kTokens / 541e3}};
}

double error_of(const Measured& run, const Device& device) {
  const Plan plan =
      make_plan(run.config, {.workers = 1, .device = device, .network = find_network("nvlink")});
  return plan.own().step.total() / run.seconds - 1;
}

double largest_error(const std::vector<Measured>& runs, const Device& device) {
  double most = 0;
  for (const Measured& run : runs) most = std::max(most, std::abs(error_of(run, device)));
  return most;
}

TEST(H200Steps, PredictionsAreWithin20PercentOfWhatWasMeasured) {
  fmt::print("{:<30}{:>10}{:>11}{:>9}\n", "", "measured", "predicted", "error");
  for (const auto& runs : {dense_runs(), sparse_runs()}) {
    for (const Measured& run : runs) {
      const double error = error_of(run, find_device("h200"));
      fmt::print("{:<30}{:>7.1f} ms{:>8.1f} ms{:>+8.1f}%\n", run.name, run.seconds * 1e3,
                 run.seconds * (1 + error) * 1e3, 100 * error);
      EXPECT_LT(std::abs(error), 0.2) << run.name;
    }
  }
}

// The one constant that is no measurement of a single operation; models with experts had no say.
TEST(H200Steps, TheTimeToStartAnOperationSuitsDenseModelsBest) {
  Device device = find_device("h200");
  double best = 0, error = 1;
  for (double launch = 0; launch < 30e-6; launch += 0.1e-6) {
    device.launch = launch;
    const double now = largest_error(dense_runs(), device);
    if (now < error) {
      error = now;
      best = launch;
    }
  }
  EXPECT_NEAR(find_device("h200").launch, best, 0.3e-6);
}

}  // namespace
}  // namespace ballast
