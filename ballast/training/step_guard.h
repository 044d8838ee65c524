// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>

#include "ballast/config/config.h"

namespace ballast::training {

// Decides whether a step's gradient may move the weights: not if loss or norm are not finite, nor
// if the norm is a spike. Its state is part of the checkpoint.
class StepGuard {
 public:
  // The median is taken over this many; before there are as many, none is a spike.
  static constexpr size_t kRecentNorms = 64;

  explicit StepGuard(const config::TrainingConfig& config) : config_(config) {}

  // The largest norm that is no spike; infinite: all are fine.
  double limit() const;
  // The reason to skip this step; empty: it is fine. Counts skipped steps; throws UserError once
  // max_skipped were skipped in a row.
  std::string judge(double loss, double norm);

  int64_t skipped = 0;         // in all
  int64_t skipped_in_row = 0;  // since the last good step
  std::deque<double> recent_norms;

 private:
  std::string reason_against(double loss, double norm) const;
  config::TrainingConfig config_;
};

}  // namespace ballast::training
