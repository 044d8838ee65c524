// SPDX-License-Identifier: Apache-2.0
// Steps measured on one H200, bf16, recorded as graphs (benchmarks/results/fast_path_2026-11-16.md,
// plan_h200_2026-11-18.md).
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
  return {{"GPT-2 124M, batch 16", dense(gpt2, 16), 26.8e-3},
          {"GPT-2 124M, batch 32", dense(gpt2, 32), 51.75e-3},
          {"GPT-2 124M, batch 64", dense(gpt2, 64), 103.9e-3},
          {"dense 1.3B, batch 16", dense({51200, 2048, 24, 16, 0, 1024}, 16), 227.4e-3},
          {"dense, width 128", dense(kSmall, 128), 4.37e-3}};
}

// Four layers of 32 experts in place, in 16 groups.
config::Config in_place(int64_t width, const std::string& router) {
  config::ModelConfig model = kSmall;
  model.width = width;
  config::Config config = gated(dense(model, 128), router, 32);
  config.experts.groups = 16;
  return config;
}

// In its papers' frame.
config::Config switch_in_place(int64_t width) {
  config::Config config = in_place(width, "switch");
  config.experts.look_ahead = false;
  return config;
}

std::vector<MeasuredStep> sparse_runs() {
  const config::Config large = dense({50304, 1024, 12, 16, 0, 1024}, 16);
  return {{"BASE x1, 8 experts, width 1024", base(large, 1, 8, 1), 42.5e-3},
          {"BASE x1, 32 experts", base(large, 1, 32, 1), 44.2e-3},
          {"BASE x1, 128 experts", base(large, 1, 128, 1), 52.4e-3},
          {"BASE in place, width 128", in_place(128, "base"), 5.70e-3},
          {"BASE in place, width 256", in_place(256, "base"), 8.53e-3},
          {"Switch in place, width 128", switch_in_place(128), 5.40e-3},
          {"Switch in place, width 256", switch_in_place(256), 8.21e-3}};
}

double largest_error(const std::vector<MeasuredStep>& runs, const Device& device) {
  double most = 0;
  for (const MeasuredStep& run : runs) most = std::max(most, std::abs(error_of(run, device)));
  return most;
}

TEST(H200Steps, PredictionsAreWithinTenPercentOfWhatWasMeasured) {
  fmt::print("{:<30}{:>10}{:>11}{:>9}\n", "", "measured", "predicted", "error");
  for (const auto& runs : {dense_runs(), sparse_runs()}) {
    for (const MeasuredStep& run : runs) {
      const double error = error_of(run, find_device("h200"));
      fmt::print("{:<30}{:>7.1f} ms{:>8.1f} ms{:>+8.1f}%\n", run.name, run.seconds * 1e3,
                 run.seconds * (1 + error) * 1e3, 100 * error);
      // Switch of width 256 is 9.1 % off, the most.
      EXPECT_LT(std::abs(error), 0.1) << run.name;
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
