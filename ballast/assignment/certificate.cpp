// SPDX-License-Identifier: Apache-2.0
#include "ballast/assignment/certificate.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "ballast/assignment/row_blocks.h"
#include "ballast/system/vector_clones.h"

namespace ballast {
namespace {

BALLAST_VECTOR_CLONES
double best_profit(const float* row, const double* prices, int64_t experts) {
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t e = 0; e < experts; ++e) {
    const double profit = static_cast<double>(row[e]) - prices[e];
    best = profit > best ? profit : best;
  }
  return best;
}

}  // namespace

Certifier::BlockSums Certifier::sum_block(const ActiveProblem& problem, const Choice& choice,
                                          int64_t begin, int64_t end) {
  BlockSums sums;
  for (int64_t t = begin; t < end; ++t) {
    const float* row = problem.row(t);
    const int32_t expert = choice.expert_of_row[t];
    const double score = row[expert];
    if (score == -std::numeric_limits<double>::infinity()) {
      sums.forbidden = true;
      continue;
    }
    sums.primal += score;
    sums.slack += best_profit(row, choice.prices.data(), problem.experts) -
                  (score - choice.prices[expert]);
  }
  return sums;
}

Certificate Certifier::certify(const ActiveProblem& problem, const Choice& choice,
                               std::span<const int32_t> loads, size_t threads) {
  blocks_.assign(static_cast<size_t>(num_row_blocks(problem)), {});
  for_row_blocks(problem, threads, [&](int64_t begin, int64_t end) {
    blocks_[begin / kRowsPerBlock] = sum_block(problem, choice, begin, end);
  });
  Certificate certificate{.valid = true};
  for (const BlockSums& block : blocks_) {
    certificate.primal += block.primal;
    certificate.gap += block.slack;
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

}  // namespace ballast
