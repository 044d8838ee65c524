// SPDX-License-Identifier: Apache-2.0
// PriceDescent where tokens are so much alike that samples mislead it: Newton's method on all
// tokens and experts, from a temperature at which all of them feel each other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/assignment/price_descent.h"

namespace ballast::assignment {

// Whether loads, at prices that came from fewer tokens, are off by far more than chance.
bool PriceDescent::is_lost(const SoftLoads& loads) const {
  if (annealed_ || problem_->has_forbidden || extractor_.merges() || extractor_.grid() > 1) {
    return false;
  }
  if (problem_->experts > WholeShares::kMostExperts) return false;
  const auto& places = targets_.places;
  if (*std::min_element(places.begin(), places.end()) <= 0) return false;
  const double chance = 0.4 * chance_deviation();  // of the tokens that are too many somewhere
  // First prices are found with little care, those of a sample with more.
  const double tolerable = std::max(state_.priced_by > start_rows_ ? 0.15 : 0.3, 1.6 * chance);
  return loads.imbalance > tolerable * state_.rows;
}

// A pass over `rows`; the prices' imbalance with shares (`soft`, of a token) and whole tokens.
int64_t PriceDescent::annealed_imbalance(const RowSample& rows, float temperature, double& soft) {
  set_targets(rows);
  ActiveProblem taken = *problem_;
  taken.tokens = rows.count;
  taken.row_stride *= rows.stride;
  whole_.measure(taken,
                 {.prices = &prices_,
                  .units_per_score = extractor_.units_per_score(),
                  .temperature = temperature},
                 threads_);
  const SoftLoads loads = newton_.adopt(whole_, targets_, prices_, temperature);
  soft = loads.imbalance / static_cast<double>(rows.count);
  ++work_->whole_passes;
  return newton_.whole_imbalance(whole_, targets_) * rows.stride;
}

void PriceDescent::anneal() {
  annealed_ = true;
  start_from_few();
  const auto count = static_cast<double>(all().count);
  const auto enough = static_cast<int64_t>(0.03 * count);
  // Below this, fp32 blurs profits more than the temperature does.
  const auto lowest =
      static_cast<float>(problem_->largest_magnitude * extractor_.units_per_score() / (1 << 24));
  // At the range of all scores tokens feel all experts alike. Where loads cannot be even, it would
  // be doubled until prices overflow.
  const float highest = lowest * (1 << 25);
  float temperature = std::max(0.1F * start_.deviation(), lowest);
  int64_t least = std::numeric_limits<int64_t>::max();
  constexpr int kMostPasses = 60;
  constexpr int64_t kTokensPerExpert = 16;
  for (int i = 0, at_lowest = 0; i < kMostPasses && at_lowest < 3; ++i) {
    double soft = 0;
    // How many tokens there are of each sort must be exact only once sorts are told apart.
    const bool sample = temperature > 0.02F * start_.deviation() && levels_.size() > 1 &&
                        levels_[1].count >= kTokensPerExpert * problem_->experts;
    const RowSample& rows = sample ? levels_[1] : all();
    const int64_t imbalance = annealed_imbalance(rows, temperature, soft);
    if (imbalance < least) {
      least = imbalance;
      best_ = prices_;
    }
    if (imbalance <= enough) break;
    moved_ = newton_.step(prices_);
    // Cooled before loads are even, prices would have farther to go than Newton's method sees.
    const double factor = soft < 0.04 ? 0.4 : soft < 0.07 ? 0.6 : soft > 0.3 ? 2 : 1;
    at_lowest += temperature <= lowest ? 1 : 0;
    temperature = std::clamp(temperature * static_cast<float>(factor), lowest, highest);
  }
  prices_ = best_;
  snap_to_grid();
  measured_rows_ = 0;
}

}  // namespace ballast::assignment
