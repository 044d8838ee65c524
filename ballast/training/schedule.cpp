// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/schedule.h"

#include <algorithm>

namespace ballast::training {

double learning_rate_at(int64_t step, int64_t steps, const config::OptimizerConfig& config) {
  const auto now = static_cast<double>(step), warmup = static_cast<double>(config.warmup_steps);
  if (now < warmup) return config.learning_rate * (now + 1) / warmup;
  const double span = std::max(1.0, static_cast<double>(steps) - warmup);
  const double done = std::clamp((now - warmup) / span, 0.0, 1.0);
  return config.learning_rate * (1 - done * (1 - config.final_learning_rate));
}

}  // namespace ballast::training
