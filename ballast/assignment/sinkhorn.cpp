// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/sinkhorn.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Temperatures in units of a row's typical spread: at first shares are nearly equal, at last nearly
// all of a token's share is with one expert.
constexpr double kFirstTemperature = 2;
constexpr double kFall = 0.8254041852680184;  // 24 times: a hundredth of the first
constexpr int kFallingPasses = 24;

// e^-x for x >= 0 within 2e-7 of it; above 87 the value there. A plain loop over it vectorises, and
// it has no rounding that depends on the processor.
inline float decay(float x) {
  // Compared as integers, which orders them the same and cannot trap.
  const int32_t bits = std::min(std::bit_cast<int32_t>(x), std::bit_cast<int32_t>(87.0F));
  const float power = -std::bit_cast<float>(bits);
  const float shifted = power * 1.44269504F + 12582912.0F;  // 1.5 * 2^23: rounds to an integer
  const float whole = shifted - 12582912.0F;
  const float rest = (power - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float series = 1.0F / 720;
  series = series * rest + 1.0F / 120;
  series = series * rest + 1.0F / 24;
  series = series * rest + 1.0F / 6;
  series = series * rest + 0.5F;
  series = series * rest + 1.0F;
  series = series * rest + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) << 23;
  return std::bit_cast<float>(std::bit_cast<int32_t>(series) + exponent);
}

// The C library's logarithm may differ by processor in the last bit.
double natural_log(double x) {
  if (x == 0) return -kInfinity;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.7) {
    mantissa *= 2;
    --exponent;
  }
  const double z = (mantissa - 1) / (mantissa + 1);
  double series = 0;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * (z * z) + 1.0 / odd;
  return 2 * z * series + exponent * 0.6931471805599453;
}

constexpr int64_t kLanes = 8;  // of sums and maxima, so that they vectorise

struct Worth {
  float scale;
  const float* price;
  float operator()(const float* row, int64_t e) const { return row[e] * scale - price[e]; }
};

inline float largest_of(const float* values, int64_t size) {
  float largest[kLanes];
  std::fill_n(largest, kLanes, kForbidden);
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      largest[lane] = values[i + lane] > largest[lane] ? values[i + lane] : largest[lane];
    }
  }
  for (; i < size; ++i) largest[0] = std::max(largest[0], values[i]);
  return *std::max_element(largest, largest + kLanes);
}

inline float sum_of(const float* values, int64_t size) {
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += values[i + lane];
  }
  for (; i < size; ++i) sums[0] += values[i];
  return std::accumulate(sums, sums + kLanes, 0.0F);
}

// Weights of one row's experts, relative to the largest. Returns 1 / their sum; 0: all forbidden.
BALLAST_VECTOR_CLONES
float weigh_row(const float* __restrict__ row, int64_t experts, const Worth& worth,
                float inverse_temperature, float* __restrict__ weights) {
  for (int64_t e = 0; e < experts; ++e) weights[e] = worth(row, e);
  const float largest = largest_of(weights, experts);
  if (largest == kForbidden) return 0;
  for (int64_t e = 0; e < experts; ++e) {
    weights[e] = decay((largest - weights[e]) * inverse_temperature);
  }
  return 1 / sum_of(weights, experts);
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
  weights_.resize(block_load_.size());
  log_least_.resize(experts);
  log_most_.resize(experts);
  const LoadBounds& bounds = *problem.bounds;
  const bool all_full =
      std::accumulate(bounds.upper.begin(), bounds.upper.end(), int64_t{0}) == problem.tokens;
  for (size_t e = 0; e < experts; ++e) {
    const int64_t most = bounds.upper[e];
    const int64_t least = all_full ? most : std::max<int64_t>(0, bounds.lower[e] - problem.padding);
    log_most_[e] = natural_log(static_cast<double>(most));
    log_least_[e] = natural_log(static_cast<double>(least));
    if (most == 0) price_[e] = kInfinity;
  }
}

// The plan's loads at these prices. Blocks are summed in order, whatever threads made them.
void SinkhornSolver::add_shares(const ActiveProblem& problem, double temperature) {
  const int64_t experts = problem.experts;
  std::copy(price_.begin(), price_.end(), rounded_price_.begin());
  const Worth worth{.scale = scale_, .price = rounded_price_.data()};
  const auto inverse_temperature = static_cast<float>(1 / temperature);
  for_row_blocks(problem, threads(), [&](int64_t begin, int64_t end) {
    double* loads = &block_load_[begin / kRowsPerBlock * experts];
    float* weights = &weights_[begin / kRowsPerBlock * experts];
    std::fill_n(loads, experts, 0.0);
    for (int64_t t = begin; t < end; ++t) {
      const float factor = weigh_row(problem.row(t), experts, worth, inverse_temperature, weights);
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
    const double free = natural_log(std::max(load_[e], 1e-30)) + price_[e] / temperature;
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

}  // namespace ballast
