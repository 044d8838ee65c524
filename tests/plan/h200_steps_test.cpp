// SPDX-License-Identifier: Apache-2.0
// Steps measured on one H200 (benchmarks/results/fast_path_2026-11-15.md,
// experiments_2026-11-15.md).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/plan/measured_steps.h"

namespace ballast::plan {
namespace {

const config::ModelConfig kSmall = {8192, 128, 8, 4, 0, 256};

std::vector<MeasuredStep> dense_runs() {
  const config::ModelConfig gpt2 = {50304, 768, 12, 12, 0, 1024};
  config::ModelConfig ten_blocks = kSmall;
  ten_blocks.layers = 10;
  return {{"GPT-2 124M, batch 16", dense(gpt2, 16), 29.19e-3},
          {"GPT-2 124M, batch 32", dense(gpt2, 32), 56.8e-3},
          {"GPT-2 124M, batch 64", dense(gpt2, 64), 112.64e-3},
          {"dense 1.3B", dense({51200, 2048, 24, 16, 0, 1024}, 8), 124.29e-3},
          {"dense, width 128", dense(kSmall, 128), 5.15e-3},
          {"dense, 10 blocks", dense(ten_blocks, 128), 6.07e-3}};
}

config::Config in_place(config::Config config, int64_t experts) {
  config = gated(config, "switch", experts);
  config.experts.router = "base";
  return config;
}

// BASE models of 128 experts were measured while their scores were collapsed: they are left out.
std::vector<MeasuredStep> sparse_runs() {
  const config::Config small = dense(kSmall, 128);
  return {{"BASE x1, 8 experts", base(small, 1, 8, 3), 6.62e-3},
          {"BASE x1, 32 experts", base(small, 1, 32, 3), 6.96e-3},
          {"BASE x3, 8 experts", base(small, 3, 8, 3), 8.13e-3},
          {"BASE x3, 32 experts", base(small, 3, 32, 3), 8.60e-3},
          {"BASE in place, 8 experts", in_place(small, 8), 8.09e-3},
          {"BASE in place, 32 experts", in_place(small, 32), 9.13e-3},
          {"Sparsely Gated, 8 experts", gated(small, "sparsely_gated", 8), 7.79e-3},
          {"Sparsely Gated, 32 experts", gated(small, "sparsely_gated", 32), 8.05e-3},
          {"Sparsely Gated, 128 experts", gated(small, "sparsely_gated", 128), 8.88e-3},
          {"Switch, 8 experts", gated(small, "switch", 8), 6.43e-3},
          {"Switch, 32 experts", gated(small, "switch", 32), 6.71e-3},
          {"Switch, 128 experts", gated(small, "switch", 128), 7.62e-3}};
}

double largest_error(const std::vector<MeasuredStep>& runs, const Device& device) {
  double most = 0;
  for (const MeasuredStep& run : runs) most = std::max(most, std::abs(error_of(run, device)));
  return most;
}

TEST(H200Steps, PredictionsAreWithin17PercentOfWhatWasMeasured) {
  fmt::print("{:<30}{:>10}{:>11}{:>9}\n", "", "measured", "predicted", "error");
  for (const auto& runs : {dense_runs(), sparse_runs()}) {
    for (const MeasuredStep& run : runs) {
      const double error = error_of(run, find_device("h200"));
      fmt::print("{:<30}{:>7.1f} ms{:>8.1f} ms{:>+8.1f}%\n", run.name, run.seconds * 1e3,
                 run.seconds * (1 + error) * 1e3, 100 * error);
      // Switch with 8 experts was 16.5 % off, the most; 20 % asked for.
      EXPECT_LT(std::abs(error), 0.17) << run.name;
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
}  // namespace ballast::plan
