// SPDX-License-Identifier: Apache-2.0
// PriceDescent where prices of a sample meet more rows: one look at whole tokens brings them near,
// so that the core that comes next can be small.
#include <algorithm>
#include <cstdint>

#include "ballast/assignment/price_descent.h"

namespace ballast::assignment {

// Where scores do not stay in a cache, reading them once more costs more than a larger core. Rows
// that are equal go to and fro together, and no step that is not held within a core ends that.
bool PriceDescent::can_glance() const {
  constexpr int64_t kMostScores = int64_t{1} << 22;
  if (problem_->tokens * problem_->experts > kMostScores) return false;
  return !extractor_.is_wide() && !extractor_.merges();
}

// Whether curvature was measured, in fewer tokens than those in work.
bool PriceDescent::knows_curvature() const {
  return measured_rows_ > 0 && measured_rows_ < state_.rows && targets_.free == 0;
}

// A long step, for which whole tokens and a sample's curvature will do.
void PriceDescent::glance(const RowSample& rows) {
  set_targets(rows);
  glanced_by_ = 0;
  state_ = {.rows = static_cast<double>(rows.count), .priced_by = priced_rows_};
  if (!can_glance() || !knows_curvature()) return;
  const SoftLoads loads = newton_.measure_whole(extractor_.best_loads(rows, prices_), targets_,
                                                static_cast<float>(state_.rows / measured_rows_));
  work_->rows_read += rows.count;
  lost_ = is_lost(loads);
  if (lost_) return;
  ++work_->newton_steps;
  before_ = prices_;
  newton_.step(prices_);
  glanced_by_ = spread(before_, prices_);
  snap_to_grid();
}

}  // namespace ballast::assignment
