// SPDX-License-Identifier: Apache-2.0
#include "ballast/training/step_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ballast/system/error.h"

namespace ballast::training {

double StepGuard::limit() const {
  if (config_.spike_factor <= 0 || recent_norms.size() < kRecentNorms)
    return std::numeric_limits<double>::infinity();
  std::vector<double> sorted(recent_norms.begin(), recent_norms.end());
  std::ranges::nth_element(sorted, sorted.begin() + sorted.size() / 2);
  return config_.spike_factor * sorted[sorted.size() / 2];
}

std::string StepGuard::reason_against(double loss, double norm) const {
  if (!std::isfinite(loss)) return fmt::format("the loss is {}", loss);
  if (!std::isfinite(norm)) return fmt::format("the gradient norm is {}", norm);
  if (norm <= limit()) return "";
  return fmt::format("the gradient norm {:.3g} is more than {:g} times the recent median {:.3g}",
                     norm, config_.spike_factor, limit() / config_.spike_factor);
}

std::string StepGuard::judge(double loss, double norm) {
  std::string reason = reason_against(loss, norm);
  if (reason.empty()) {
    skipped_in_row = 0;
    recent_norms.push_back(norm);
    if (recent_norms.size() > kRecentNorms) recent_norms.pop_front();
    return reason;
  }
  ++skipped;
  if (++skipped_in_row >= config_.max_skipped) {
    fail(
        "training stopped: {} steps in a row were skipped, the last because {}. The newest "
        "checkpoint is unharmed; "
        "try a lower optimizer.learning_rate, a longer optimizer.warmup_steps or a smaller "
        "optimizer.clip_norm",
        skipped_in_row, reason);
  }
  return reason;
}

}  // namespace ballast::training
