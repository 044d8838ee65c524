// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/sinkhorn.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/plain_math.h"
#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Temperatures in units of a row's typical spread: at first shares are nearly equal, at last nearly
// all of a token's share is with one expert.
constexpr double kFirstTemperature = 2;
constexpr double kFall = 0.8254041852680184;  // 24 times: a hundredth of the first
constexpr int kFallingPasses = 24;

double log_of(int64_t load) {
  return load == 0 ? -kInfinity : plain_log(static_cast<double>(load));
}

BALLAST_INLINE int64_t padded_to_lanes(int64_t experts) {
  return (experts + kLanes - 1) / kLanes * kLanes;
}

struct Worth {
  float scale;
  const float* price;
  float operator()(const float* row, int64_t e) const { return row[e] * scale - price[e]; }
};

// Weights of one row's experts, relative to the largest. Returns 1 / their sum; 0: all forbidden.
// `weights` has room for whole vectors; a weight is never quite 0, not even a forbidden pair's.
BALLAST_VECTOR_CLONES
float weigh_row(const float* __restrict__ row, int64_t experts, const Worth& worth,
                float bits_per_worth, float* __restrict__ weights) {
  const int64_t padded = padded_to_lanes(experts);
  for (int64_t e = 0; e < experts; ++e) weights[e] = worth(row, e);
  for (int64_t e = experts; e < padded; ++e) weights[e] = kForbidden;
  Floats largest = load_lanes(weights);
  for (int64_t e = kLanes; e < padded; e += kLanes) {
    largest = larger(largest, load_lanes(weights + e));
  }
  const float best = largest_of(largest);
  if (best == kForbidden) return 0;
  Floats sum = {};
  for (int64_t e = 0; e < padded; e += kLanes) {
    const Floats weight = exp2_of((load_lanes(weights + e) - best) * bits_per_worth);
    store_lanes(weight, weights + e);
    sum += weight;
  }
  return 1 / sum_of(sum);
}

BALLAST_VECTOR_CLONES
void add_weights(const float* weights, float factor, int64_t experts, double* loads) {
  for (int64_t e = 0; e < experts; ++e) loads[e] += static_cast<double>(weights[e] * factor);
}

}  // namespace

// The median over tokens of the standard deviation of a token's scores: outliers do not move it.
double SinkhornSolver::typical_spread(const ActiveProblem& problem) {
  spread_.resize(static_cast<size_t>(problem.tokens));
  for_row_blocks(problem, threads(), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      double count = 0;
      double sum = 0;
      double squares = 0;
      for (int64_t e = 0; e < problem.experts; ++e) {
        const float score = problem.row(t)[e] * scale_;
        if (score == kForbidden) continue;
        count += 1;
        sum += score;
        squares += static_cast<double>(score) * score;
      }
      const double mean = sum / std::max(count, 1.0);
      spread_[t] = static_cast<float>(
          std::sqrt(std::max(0.0, squares / std::max(count, 1.0) - mean * mean)));
    }
  });
  const auto middle = spread_.begin() + std::ssize(spread_) / 2;
  std::nth_element(spread_.begin(), middle, spread_.end());
  return std::max(static_cast<double>(*middle), 1e-6);
}

void SinkhornSolver::open(const ActiveProblem& problem) {
  const auto experts = static_cast<size_t>(problem.experts);
  int exponent = 0;
  std::frexp(problem.largest_magnitude, &exponent);
  scale_ = std::ldexp(1.0F, std::clamp(-exponent, -126, 126));
  price_.assign(experts, 0.0);
  rounded_price_.resize(experts);
  load_.resize(experts);
  block_load_.resize(static_cast<size_t>(num_row_blocks(problem)) * experts);
  weights_.resize(static_cast<size_t>(num_row_blocks(problem) * padded_to_lanes(problem.experts)));
  log_least_.resize(experts);
  log_most_.resize(experts);
  const LoadBounds& bounds = *problem.bounds;
  const bool all_full =
      std::accumulate(bounds.upper.begin(), bounds.upper.end(), int64_t{0}) == problem.tokens;
  for (size_t e = 0; e < experts; ++e) {
    const int64_t most = bounds.upper[e];
    const int64_t least = all_full ? most : std::max<int64_t>(0, bounds.lower[e] - problem.padding);
    log_most_[e] = log_of(most);
    log_least_[e] = log_of(least);
    if (most == 0) price_[e] = kInfinity;
  }
}

// The plan's loads at these prices. Blocks are summed in order, whatever threads made them.
void SinkhornSolver::add_shares(const ActiveProblem& problem, double temperature) {
  const int64_t experts = problem.experts;
  std::copy(price_.begin(), price_.end(), rounded_price_.begin());
  const Worth worth{.scale = scale_, .price = rounded_price_.data()};
  const auto bits_per_worth = static_cast<float>(1.4426950408889634 / temperature);
  for_row_blocks(problem, threads(), [&](int64_t begin, int64_t end) {
    double* loads = &block_load_[begin / kRowsPerBlock * experts];
    float* weights = &weights_[begin / kRowsPerBlock * padded_to_lanes(experts)];
    std::fill_n(loads, experts, 0.0);
    for (int64_t t = begin; t < end; ++t) {
      const float factor = weigh_row(problem.row(t), experts, worth, bits_per_worth, weights);
      if (factor != 0) add_weights(weights, factor, experts, loads);
    }
  });
  std::fill(load_.begin(), load_.end(), 0.0);
  for (size_t i = 0; i < block_load_.size(); ++i) load_[i % load_.size()] += block_load_[i];
}

// The price at which an expert's load, all else equal, keeps to its bounds; 0 where they do not
// matter.
void SinkhornSolver::change_prices(double temperature) {
  for (size_t e = 0; e < price_.size(); ++e) {
    if (price_[e] == kInfinity) continue;
    const double free = plain_log(std::max(load_[e], 1e-30)) + price_[e] / temperature;
    price_[e] = temperature * (free - std::clamp(free, log_least_[e], log_most_[e]));
  }
}

void SinkhornSolver::take_largest_shares(const ActiveProblem& problem, Choice& choice) {
  std::copy(price_.begin(), price_.end(), rounded_price_.begin());
  const Worth worth{.scale = scale_, .price = rounded_price_.data()};
  margin_.resize(static_cast<size_t>(problem.tokens));
  for_row_blocks(problem, threads(), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t best = -1;
      float largest = kForbidden;
      float second = kForbidden;
      int64_t e = t % problem.experts;  // from another expert for each row: equal shares spread out
      for (int64_t i = 0; i < problem.experts; ++i, e = e + 1 == problem.experts ? 0 : e + 1) {
        const float value = worth(problem.row(t), e);
        if (value > largest) {
          second = largest;
          largest = value;
          best = e;
        } else {
          second = value > second ? value : second;
        }
      }
      choice.expert_of_row[t] = static_cast<int32_t>(best);
      margin_[t] = largest - second;
    }
  });
}

// Experts with too many tokens let go of those that lose least elsewhere.
void SinkhornSolver::make_room(const ActiveProblem& problem, Choice& choice) {
  rows_.clear();
  rows_.reserve(static_cast<size_t>(problem.tokens));
  for (int32_t t = 0; t < static_cast<int32_t>(problem.tokens); ++t) {
    if (choice.expert_of_row[t] >= 0) rows_.push_back(t);
  }
  std::sort(rows_.begin(), rows_.end(), [&](int32_t a, int32_t b) {
    const int32_t of_a = choice.expert_of_row[a];
    const int32_t of_b = choice.expert_of_row[b];
    if (of_a != of_b) return of_a < of_b;
    return margin_[a] != margin_[b] ? margin_[a] > margin_[b] : a < b;
  });
  int32_t expert = -1;
  int32_t kept = 0;
  for (const int32_t row : rows_) {
    if (choice.expert_of_row[row] != expert) kept = 0;
    expert = choice.expert_of_row[row];
    if (++kept > problem.bounds->upper[expert]) choice.expert_of_row[row] = -1;
  }
}

void SinkhornSolver::choose(const ActiveProblem& problem, std::span<const double>, Choice& choice) {
  open(problem);
  if (problem.tokens > 0) {
    double temperature = kFirstTemperature * typical_spread(problem);
    for (int pass = 0; pass < kPasses; ++pass) {
      add_shares(problem, temperature);
      change_prices(temperature);
      if (pass < kFallingPasses) temperature *= kFall;
    }
    take_largest_shares(problem, choice);
    make_room(problem, choice);
  }
  double lowest = kInfinity;
  double dearest = -kInfinity;
  for (const double price : price_) {
    if (price == kInfinity) continue;
    lowest = std::min(lowest, price);
    dearest = std::max(dearest, price);
  }
  if (lowest == kInfinity) return;  // no expert may have a token, so there is none
  const double too_dear = (dearest - lowest) / scale_ + 4.0 * problem.largest_magnitude;
  for (size_t e = 0; e < price_.size(); ++e) {
    choice.prices[e] = price_[e] == kInfinity ? too_dear : (price_[e] - lowest) / scale_;
  }
  completion_.complete(problem, choice.prices, choice.expert_of_row);
}

}  // namespace ballast::assignment
