// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace ballast::training {
namespace {

config::OptimizerConfig schedule(config::Schedule schedule) {
  config::OptimizerConfig config;
  config.learning_rate = 2;
  config.final_learning_rate = 0.1;
  config.warmup_steps = 10;
  config.schedule = schedule;
  return config;
}

TEST(Schedules, AllWarmUpAlikeAndEndAtTheFinalRate) {
  for (const auto kind :
       {config::Schedule::kLinear, config::Schedule::kCosine, config::Schedule::kStable}) {
    const config::OptimizerConfig config = schedule(kind);
    for (int64_t step = 0; step < 10; ++step)
      EXPECT_DOUBLE_EQ(learning_rate_at(step, 110, config), 2 * double(step + 1) / 10);
    EXPECT_DOUBLE_EQ(learning_rate_at(10, 110, config), 2);
    EXPECT_NEAR(learning_rate_at(110, 110, config), 0.2, 1e-12);
    EXPECT_NEAR(learning_rate_at(200, 110, config), 0.2, 1e-12) << "and stay there";
    for (int64_t step = 10; step < 110; ++step)
      EXPECT_GE(learning_rate_at(step, 110, config), learning_rate_at(step + 1, 110, config));
  }
}

TEST(Schedules, CosineIsHalfAWave) {
  const config::OptimizerConfig config = schedule(config::Schedule::kCosine);
  for (const int64_t step : {10, 35, 60, 85, 109}) {
    const double wave = std::cos(std::numbers::pi * double(step - 10) / 100);
    EXPECT_NEAR(learning_rate_at(step, 110, config), 1.1 + 0.9 * wave, 1e-12) << step;
  }
  EXPECT_NEAR(learning_rate_at(60, 110, config), 1.1, 1e-12) << "in the middle, the mean";
}

TEST(Schedules, StableFallsInItsLastPartAlone) {
  config::OptimizerConfig config = schedule(config::Schedule::kStable);
  config.decay_part = 0.2;  // steps 80 to 100
  for (const int64_t step : {10, 50, 79, 80})
    EXPECT_DOUBLE_EQ(learning_rate_at(step, 100, config), 2);
  EXPECT_NEAR(learning_rate_at(90, 100, config), 1.1, 1e-12);
  EXPECT_NEAR(learning_rate_at(99, 100, config), 0.2 + 1.8 / 20, 1e-12);
  config.decay_part = 0;
  EXPECT_DOUBLE_EQ(learning_rate_at(99, 100, config), 2) << "to the end";
  config.decay_part = 1;  // begins with the end of the warm-up
  EXPECT_NEAR(learning_rate_at(55, 100, config), 1.1, 1e-12);
}

}  // namespace
}  // namespace ballast::training
