// SPDX-License-Identifier: Apache-2.0
// CoreExtractor where one expert's price is far off: all others' stay, and its share of rows
// decides.
#include <algorithm>
#include <functional>
#include <limits>

#include "ballast/assignment/core_extractor.h"

namespace ballast::assignment {
namespace {

// The price at which a share of the rows wants an expert. gains: what each row has of it at price
// 0 above its best profit elsewhere; they change places.
Units price_of_share(std::vector<Units>& gains, double share) {
  const auto rows = static_cast<int64_t>(gains.size());
  const auto wanted = static_cast<int64_t>(share * static_cast<double>(rows));
  const auto last = gains.begin() + std::min(rows - 1, wanted);
  std::nth_element(gains.begin(), last, gains.end(), std::greater<>());
  return *last;
}

}  // namespace

// With the best profit of each row at the other prices, the expert's share of rows decides.
void CoreExtractor::price_idle(const RowSample& rows, std::span<const int32_t> idle,
                               std::span<const double> shares, std::vector<Units>& prices) {
  std::vector<Units>& best = row_values_;
  best.resize(rows.count);
  const auto units = [&](const float* row, int64_t e) {
    return static_cast<Units>(std::max<double>(row[e] * units_per_score_, -1e17));
  };
  for (int64_t i = 0; i < rows.count; ++i) {
    const float* row = problem_->row(i * rows.stride);
    best[i] = std::numeric_limits<Units>::min() / 2;
    for (int64_t e = 0; e < problem_->experts; ++e) {
      if (problem_->bounds->upper[e] > 0) best[i] = std::max(best[i], units(row, e) - prices[e]);
    }
  }
  for (const int32_t e : idle) {
    gains_.resize(rows.count);
    for (int64_t i = 0; i < rows.count; ++i) {
      gains_[i] = units(problem_->row(i * rows.stride), e) - best[i];
    }
    prices[e] = std::min(prices[e], price_of_share(gains_, shares[e]));
  }
}

// The best profit of each row at experts that are not crowded, and again the share of rows decides.
void CoreExtractor::price_crowded(const RowSample& rows, std::span<const int32_t> crowded,
                                  std::span<const double> shares, std::vector<Units>& prices) {
  if (wide_ || crowded.empty()) return;
  take_prices(prices);
  for (const int32_t e : crowded) prices_[e] = static_cast<int32_t>(highest_price_);
  const auto units = [&](const float* row, int64_t e) {
    return static_cast<Units>(row[e] * static_cast<float>(units_per_score_));
  };
  row_values_.resize(rows.count);
  for (const Harvest& from : harvest_all(rows, 0)) {
    for (int64_t i = 0; i < from.count; ++i) {
      const int32_t best = from.rows[i].first;
      const float* row = problem_->row((from.first + i) * rows.stride);
      row_values_[from.first + i] = units(row, best) - prices_[best];
    }
  }
  for (const int32_t e : crowded) {
    gains_.resize(rows.count);
    for (int64_t i = 0; i < rows.count; ++i) {
      gains_[i] = units(problem_->row(i * rows.stride), e) - row_values_[i];
    }
    prices[e] = std::clamp(price_of_share(gains_, shares[e]), prices[e], highest_price_ - 1);
  }
}

}  // namespace ballast::assignment
