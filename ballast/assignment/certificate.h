// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ballast/assignment/active_problem.h"

namespace ballast::assignment {

// How good a result is, measured in double on the original scores. Padding does not count.
struct Certificate {
  bool valid = false;  // every load keeps to its bounds, and no forbidden pair is used
  double primal = 0;   // sum of scores
  double dual = 0;     // what no valid assignment can exceed, by the result's prices
  double gap = 0;      // dual - primal: a valid result is at most this far from the optimum
  // What a blind spread is worth: each token's scores, weighted by the experts' shares. A share is
  // the upper bound (all tokens at most) over the sum of them: with equal loads each token counts
  // with its mean score. Where pairs are forbidden, the shares of a token's allowed experts.
  double blind = 0;
};

// The gap to the optimum, as a part of what the optimum has above a blind spread: (dual - primal) /
// (dual - blind). 0 is the optimum, 1 what a blind spread reaches. A constant added to a token's
// scores changes nothing; where loads are equal and no pair is forbidden, nor does one added to an
// expert's. Where dual and blind differ by no more than rounding, as with equal scores, it is 0 for
// a primal that does so too, and else infinity.
double relative_gap(double primal, double dual, double blind);

// The sum over rows of the largest finite |score|: what rounding is compared with.
double magnitude_of(const ActiveProblem& problem);

// What an assignment and prices are worth, whatever made them: by weak duality no valid assignment
// exceeds sum_t max_e (s_te - p_e) + value_of_loads(p).
class Certifier {
 public:
  // One pass over the scores. `loads`: [E], of all tokens.
  Certificate certify(const ActiveProblem& problem, const Choice& choice,
                      std::span<const int32_t> loads, size_t threads);

  // The largest sum_e p_e n_e over all loads n that counted tokens can have: the bounds' side of
  // the dual. REQUIRES: bounds that fit (check_bounds).
  double value_of_loads(std::span<const double> prices, const ActiveProblem& problem);

 private:
  struct BlockSums {
    double primal = 0;
    double slack = 0;  // sum_t of max_e (s_te - p_e) - (s_ta - p_a)
    double blind = 0;
    bool forbidden = false;
  };
  void weigh_experts(const ActiveProblem& problem);
  double blind_score(const float* row) const;
  BlockSums sum_block(const ActiveProblem& problem, const Choice& choice, int64_t begin,
                      int64_t end);

  std::vector<BlockSums> blocks_;
  std::vector<double> scores_;         // [blocks, E] sums over the block's rows
  std::vector<double> weights_;        // [E] shares of a blind spread, times their sum
  double weight_ = 0;                  // that sum
  std::vector<int32_t> by_price_;      // [E]
  std::vector<int32_t> counted_load_;  // [E]
};

}  // namespace ballast::assignment
