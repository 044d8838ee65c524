// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/price_start.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/plain_math.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kNone = -1e30F;  // a forbidden pair, or a column that only fills a vector

// Adds each expert's share of each row to `load`. `share`: room for one row.
BALLAST_VECTOR_CLONES
void add_shares(const float* scores, int64_t rows, const float* price, float per_unit,
                int64_t padded, float* share, float* load) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* score = scores + row * padded;
    Floats highest = load_lanes(score) - load_lanes(price);
    for (int64_t e = kLanes; e < padded; e += kLanes) {
      highest = larger(highest, load_lanes(score + e) - load_lanes(price + e));
    }
    const float most = largest_of(highest);
    Floats sum = {};
    for (int64_t e = 0; e < padded; e += kLanes) {
      const Floats profit = load_lanes(score + e) - load_lanes(price + e);
      const Floats s = exp2_of((profit - most) * per_unit);
      store_lanes(s, share + e);
      sum += s;
    }
    const float normal = 1.0F / sum_of(sum);
    for (int64_t e = 0; e < padded; e += kLanes) {
      store_lanes(load_lanes(load + e) + load_lanes(share + e) * normal, load + e);
    }
  }
}

// The same, to the bit, where experts fill one vector: no row's shares go through memory. With 8
// experts and few tokens that saves a sixth of a call.
BALLAST_VECTOR_CLONES
void add_shares_of_few(const float* scores, int64_t rows, const float* price, float per_unit,
                       float* load) {
  const Floats at = load_lanes(price);
  Floats loads = load_lanes(load);
  for (int64_t row = 0; row < rows; ++row) {
    const Floats profit = load_lanes(scores + row * kLanes) - at;
    const Floats share = exp2_of((profit - largest_of(profit)) * per_unit);
    loads += share * (1.0F / sum_of(share));
  }
  store_lanes(loads, load);
}

// Forbidden pairs count as equal to the first row.
BALLAST_VECTOR_CLONES
void add_moments(const float* scores, int64_t rows, int64_t padded, float* sum, float* squares) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t e = 0; e < padded; e += kLanes) {
      const Floats score = load_lanes(scores + row * padded + e);
      const Floats first = load_lanes(scores + e);
      const Floats offset =
          where_larger(smaller(score, first), all_lanes(0.5F * kNone), score - first);
      store_lanes(load_lanes(sum + e) + offset, sum + e);
      store_lanes(load_lanes(squares + e) + offset * offset, squares + e);
    }
  }
}

}  // namespace

void PriceStart::read(const ActiveProblem& problem, const RowSample& rows, double units_per_score) {
  count_ = rows.count;
  experts_ = problem.experts;
  padded_ = (experts_ + kLanes - 1) / kLanes * kLanes;
  scores_.assign(count_ * padded_, kNone);
  price_.assign(padded_, 0.0F);
  load_.assign(padded_, 0.0F);
  share_.assign(padded_, 0.0F);
  for (int64_t i = 0; i < count_; ++i) {
    const float* row = problem.row(i * rows.stride);
    float* score = &scores_[i * padded_];
    for (int64_t e = 0; e < experts_; ++e) {
      score[e] = std::max(static_cast<float>(row[e] * units_per_score), kNone);
    }
  }
  sum_.assign(padded_, 0.0F);
  squares_.assign(padded_, 0.0F);
  // Relative to the first row, so that a large common part does not drown the deviations.
  add_moments(scores_.data(), count_, padded_, sum_.data(), squares_.data());
  double all = 0;
  for (int64_t e = 0; e < experts_; ++e) {
    const double offset = sum_[e] / static_cast<double>(count_);
    const double variance =
        std::max(0.0, squares_[e] / static_cast<double>(count_) - offset * offset);
    const double tail = std::sqrt(2 * plain_log(static_cast<double>(experts_)));
    price_[e] = static_cast<float>(scores_[e] + offset + tail * std::sqrt(variance));
    all += variance;
  }
  deviation_ = static_cast<float>(std::sqrt(all / static_cast<double>(experts_)));
}

void PriceStart::iterate(float temperature, std::span<const double> shares) {
  constexpr float kBitsPerNat = 1.44269504F;
  std::fill(load_.begin(), load_.end(), 0.0F);
  const float per_unit = kBitsPerNat / temperature;
  if (padded_ == kLanes) {
    add_shares_of_few(scores_.data(), count_, price_.data(), per_unit, load_.data());
  } else {
    add_shares(scores_.data(), count_, price_.data(), per_unit, padded_, share_.data(),
               load_.data());
  }
  for (int64_t e = 0; e < experts_; ++e) {
    const double wanted = std::max(shares[e] * static_cast<double>(count_), 0.5);
    const double ratio = std::max(static_cast<double>(load_[e]), 1e-3) / wanted;
    price_[e] += temperature * static_cast<float>(plain_log(ratio));
  }
}

void PriceStart::find(const ActiveProblem& problem, const RowSample& rows, double units_per_score,
                      std::span<const double> shares, std::vector<Units>& prices) {
  read(problem, rows, units_per_score);
  constexpr int kIterations = 6;
  constexpr float kCooler = 0.63F;  // from a column's deviation down to a tenth of it
  float temperature = deviation_;
  for (int i = 0; i < kIterations && temperature > 0; ++i, temperature *= kCooler) {
    iterate(temperature, shares);
  }
  // Only differences matter. A column that is all forbidden has no price of its own.
  const double most = problem.largest_magnitude * units_per_score;
  const double highest = *std::max_element(price_.begin(), price_.begin() + experts_);
  for (int64_t e = 0; e < experts_; ++e) {
    prices[e] = std::llrint(std::max(most + static_cast<double>(price_[e]) - highest, -most));
  }
}

}  // namespace ballast::assignment
