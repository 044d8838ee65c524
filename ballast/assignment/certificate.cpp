// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/certificate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "ballast/assignment/lanes.h"
#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast::assignment {
namespace {

constexpr int64_t kDoubles = 4;  // a vector of them
using Doubles = double __attribute__((vector_size(kDoubles * sizeof(double))));

BALLAST_INLINE Doubles load_doubles(const double* from) {
  Doubles loaded;
  std::memcpy(&loaded, from, sizeof(loaded));
  return loaded;
}

BALLAST_INLINE Doubles larger(Doubles a, Doubles b) { return a > b ? a : b; }

// score - price of a vector of experts; adds the scores to `sums`.
BALLAST_INLINE Doubles profits_at(const float* row, const double* prices, double* sums) {
  using Singles = float __attribute__((vector_size(kDoubles * sizeof(float))));
  Singles read;
  std::memcpy(&read, row, sizeof(read));
  const Doubles score = __builtin_convertvector(read, Doubles);
  const Doubles sum = load_doubles(sums) + score;
  std::memcpy(sums, &sum, sizeof(sum));
  return score - load_doubles(prices);
}

// The largest of score - price in each row, and each expert's sum of scores, added to `sums`.
// Several maxima run side by side.
BALLAST_VECTOR_CLONES
void best_profits(const float* scores, int64_t stride, int64_t rows, const double* prices,
                  int64_t experts, double* best, double* sums) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  constexpr int64_t kTogether = 4 * kDoubles;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const row = scores + r * stride;
    Doubles a = {kNone, kNone, kNone, kNone};
    Doubles b = a;
    Doubles c = a;
    Doubles d = a;
    int64_t e = 0;
    const auto next = [&]() __attribute__((always_inline)) {
      const int64_t at = std::exchange(e, e + kDoubles);
      return profits_at(row + at, prices + at, sums + at);
    };
    while (e + kTogether <= experts) {
      a = larger(next(), a);
      b = larger(next(), b);
      c = larger(next(), c);
      d = larger(next(), d);
    }
    while (e + kDoubles <= experts) a = larger(next(), a);
    a = larger(larger(a, b), larger(c, d));
    double most = std::max(std::max(a[0], a[1]), std::max(a[2], a[3]));
    for (; e < experts; ++e) {
      most = std::max(most, static_cast<double>(row[e]) - prices[e]);
      sums[e] += static_cast<double>(row[e]);
    }
    best[r] = most;
  }
}

}  // namespace

double relative_gap(double primal, double dual, double blind) {
  // Sums of a million doubles are off by less than this part of them.
  constexpr double kRounding = 1e-12;
  const double rounding =
      kRounding * std::max({std::fabs(primal), std::fabs(dual), std::fabs(blind)});
  const double missing = dual - primal;
  if (missing <= rounding) return 0;
  if (dual - blind <= rounding) return std::numeric_limits<double>::infinity();
  return missing / (dual - blind);
}

double magnitude_of(const ActiveProblem& problem) {
  double sum = 0;
  for (int64_t t = 0; t < problem.tokens; ++t) {
    const float* row = problem.row(t);
    float largest = 0;
    for (int64_t e = 0; e < problem.experts; ++e) {
      if (std::isfinite(row[e])) largest = std::max(largest, std::fabs(row[e]));
    }
    sum += largest;
  }
  return sum;
}

void Certifier::weigh_experts(const ActiveProblem& problem) {
  const int64_t most = problem.tokens + problem.padding;
  weights_.resize(static_cast<size_t>(problem.experts));
  for (int64_t e = 0; e < problem.experts; ++e)
    weights_[e] = static_cast<double>(std::min<int64_t>(problem.bounds->upper[e], most));
  weight_ = std::accumulate(weights_.begin(), weights_.end(), 0.0);
}

// What a token is worth that is spread over the experts it is allowed.
double Certifier::blind_score(const float* row) const {
  double sum = 0, weight = 0;
  for (size_t e = 0; e < weights_.size(); ++e) {
    if (row[e] == -std::numeric_limits<float>::infinity()) continue;
    sum += static_cast<double>(row[e]) * weights_[e];
    weight += weights_[e];
  }
  return weight > 0 ? sum / weight : 0;
}

Certifier::BlockSums Certifier::sum_block(const ActiveProblem& problem, const Choice& choice,
                                          int64_t begin, int64_t end) {
  BlockSums sums;
  constexpr int64_t kTogether = 16;
  double best[kTogether];
  double* const scores = &scores_[begin / kRowsPerBlock * problem.experts];
  for (int64_t first = begin; first < end; first += kTogether) {
    const int64_t rows = std::min(kTogether, end - first);
    best_profits(problem.row(first), problem.row_stride, rows, choice.prices.data(),
                 problem.experts, best, scores);
    for (int64_t r = 0; r < rows; ++r) {
      const int32_t chosen = choice.expert_of_row[first + r];
      const double score = problem.row(first + r)[chosen];
      if (score == -std::numeric_limits<double>::infinity()) {
        sums.forbidden = true;
        continue;
      }
      sums.primal += score;
      sums.slack += best[r] - (score - choice.prices[chosen]);
    }
  }
  if (problem.has_forbidden) {
    for (int64_t row = begin; row < end; ++row) sums.blind += blind_score(problem.row(row));
  } else {
    sums.blind = std::inner_product(weights_.begin(), weights_.end(), scores, 0.0) / weight_;
  }
  return sums;
}

Certificate Certifier::certify(const ActiveProblem& problem, const Choice& choice,
                               std::span<const int32_t> loads, size_t threads) {
  blocks_.assign(static_cast<size_t>(num_row_blocks(problem)), {});
  scores_.assign(blocks_.size() * static_cast<size_t>(problem.experts), 0.0);
  weigh_experts(problem);
  for_row_blocks(problem, threads, [&](int64_t begin, int64_t end) {
    blocks_[begin / kRowsPerBlock] = sum_block(problem, choice, begin, end);
  });
  Certificate certificate{.valid = true};
  for (const BlockSums& block : blocks_) {
    certificate.primal += block.primal;
    certificate.gap += block.slack;
    certificate.blind += block.blind;
    certificate.valid = certificate.valid && !block.forbidden;
  }
  counted_load_.assign(static_cast<size_t>(problem.experts), 0);
  for (int64_t t = 0; t < problem.tokens; ++t) ++counted_load_[choice.expert_of_row[t]];
  double value = 0;  // of the loads as they are
  for (int64_t e = 0; e < problem.experts; ++e) {
    value += choice.prices[e] * counted_load_[e];
    certificate.valid = certificate.valid && problem.bounds->lower[e] <= loads[e] &&
                        loads[e] <= problem.bounds->upper[e];
  }
  certificate.gap += value_of_loads(choice.prices, problem) - value;
  certificate.dual = certificate.primal + certificate.gap;
  return certificate;
}

double Certifier::value_of_loads(std::span<const double> prices, const ActiveProblem& problem) {
  const LoadBounds& bounds = *problem.bounds;
  double value = 0;
  if (problem.padding == 0 && bounds.lower == bounds.upper) {
    for (int64_t e = 0; e < problem.experts; ++e) value += prices[e] * bounds.upper[e];
    return value;
  }
  // Counted tokens take the dearest places. An expert's places above its lower bound are a luxury
  // of which all tokens together, padding included, can use only so many.
  by_price_.resize(static_cast<size_t>(problem.experts));
  std::iota(by_price_.begin(), by_price_.end(), 0);
  std::sort(by_price_.begin(), by_price_.end(), [&](int32_t a, int32_t b) {
    return prices[a] > prices[b] || (prices[a] == prices[b] && a < b);
  });
  int64_t counted = problem.tokens;
  int64_t luxury = problem.tokens + problem.padding -
                   std::accumulate(bounds.lower.begin(), bounds.lower.end(), int64_t{0});
  for (const int32_t e : by_price_) {
    const int64_t required = std::min<int64_t>(bounds.lower[e], counted);
    counted -= required;
    const int64_t extra =
        std::min({static_cast<int64_t>(bounds.upper[e] - bounds.lower[e]), counted, luxury});
    counted -= extra;
    luxury -= extra;
    value += prices[e] * static_cast<double>(required + extra);
  }
  return value;
}

}  // namespace ballast::assignment
