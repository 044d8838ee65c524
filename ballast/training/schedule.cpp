// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ballast::training {

double learning_rate_at(int64_t step, int64_t steps, const config::OptimizerConfig& config) {
  const auto now = static_cast<double>(step), all = static_cast<double>(steps),
             warmup = static_cast<double>(config.warmup_steps);
  if (now < warmup) return config.learning_rate * (now + 1) / warmup;
  const bool is_stable = config.schedule == config::Schedule::kStable;
  const double begin = is_stable ? std::max(warmup, all * (1 - config.decay_part)) : warmup;
  const double span = is_stable ? all - begin : std::max(1.0, all - begin);
  double done = span > 0 ? std::clamp((now - begin) / span, 0.0, 1.0) : (now < all ? 0.0 : 1.0);
  if (config.schedule == config::Schedule::kCosine)
    done = (1 - std::cos(std::numbers::pi * done)) / 2;
  return config.learning_rate * (1 - done * (1 - config.final_learning_rate));
}

std::string long_warm_up(int64_t steps, const config::OptimizerConfig& config) {
  if (config.warmup_steps <= steps) return "";
  return fmt::format(
      "the warm-up is longer than the run, {} steps of {}: the learning rate rises to the end, up "
      "to "
      "{:.2g} of {:.2g}, and never falls; fewer optimizer.warmup_steps would let it",
      config.warmup_steps, steps, learning_rate_at(steps - 1, steps, config), config.learning_rate);
}

}  // namespace ballast::training
